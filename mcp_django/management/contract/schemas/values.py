"""What JSON Schema means by an equal value, and the kinds of value that there are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

INTEGER, FRACTION = "integer", "fraction"
NUMBERS = frozenset({INTEGER, FRACTION})
KINDS = frozenset({"null", "boolean", "string", "array", "object"}) | NUMBERS
"""The types, with those numbers apart that are no integers: each value is of one of these."""


def kind_of(value: Any) -> str:
    """The kind of a value; 1.0 is an integer (validation, section 6.1.1)."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return INTEGER
    if isinstance(value, float):
        return FRACTION
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list | tuple) else "object"


def kinds_of_types(types: Any) -> frozenset[str]:
    """The kinds that ``type`` lets in; those it does not know, none."""
    named = {types} if isinstance(types, str) else {one for one in types if isinstance(one, str)}
    found = named & KINDS
    return frozenset(found | NUMBERS if "number" in named else found)


def fingerprint(value: Any) -> str:
    """The same text for equal values, and for those alone."""
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value


def is_among(value: Any, values: Iterable[Any]) -> bool:
    """Whether an equal value is there."""
    mine = fingerprint(value)
    return any(mine == fingerprint(one) for one in values)


def without(values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The values that are not among the others."""
    known = {fingerprint(one) for one in others}
    return [one for one in values if fingerprint(one) not in known]
