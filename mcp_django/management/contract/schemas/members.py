"""What a value is made of: the schemas that its items and members have to satisfy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from mcp_django.schema.structure import Schema

Alternatives = list[Any]
"""Schemas of which one holds, and nobody knows which."""


def named(part: Schema, keyword: str) -> Mapping[str, Any]:
    """The schemas that a keyword has by name."""
    found = part.get(keyword)
    return found if isinstance(found, dict) else {}


def members_of(parts: list[Schema]) -> list[str]:
    """Every member that is named."""
    return list(dict.fromkeys(name for part in parts for name in named(part, "properties")))


def required_in(parts: list[Schema]) -> set[str]:
    """The members that are always there."""
    return {
        name
        for part in parts
        if isinstance(part.get("required"), list)
        for name in part["required"]
        if isinstance(name, str)
    }


def member(part: Schema, name: str) -> Alternatives:
    """What one part says of a member of this name; a pattern may or may not fit the name."""
    properties = named(part, "properties")
    if name in properties:
        return [properties[name]]
    return others(part)


def others(part: Schema) -> Alternatives:
    """What one part says of members that it does not name."""
    return [part.get("additionalProperties", True), *named(part, "patternProperties").values()]


def combined(alternatives: list[Alternatives]) -> Iterator[tuple[Any, ...]]:
    """Every case: in each, one schema of each part holds."""
    return itertools.product(*alternatives)


def item(part: Schema, index: int) -> Any:
    """What one part says of the item at a place."""
    fixed = fixed_items(part)
    return fixed[index] if index < len(fixed) else rest(part)


def fixed_items(part: Schema) -> list[Any]:
    """The schemas of the first items, one by one."""
    found = part.get("prefixItems")
    return found if isinstance(found, list) else []


def rest(part: Schema) -> Any:
    """What one part says of the items behind those."""
    found = part.get("items", True)
    return found if isinstance(found, dict | bool) else True
