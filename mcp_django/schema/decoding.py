"""From the JSON text of a call to what a validator may see.

Hosts and models take liberties that JSON Schema would not: no arguments at all, `null` for an
argument left out. Numbers keep every digit (RFC 8259, section 6, leaves precision to us), so that
an amount of money is never rounded through a float. Of a repeated name the last one counts, as it
does everywhere in this package.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, Self

from mcp_django.schema.arguments import (
    InvalidArguments,
    Problem,
    format_path,
    unknown_argument,
)
from mcp_django.schema.structure import Path, Schema, accepts_null, alternatives

# What a form, a serializer or a person nests; beyond it the functions here would run out of stack.
MAX_DEPTH = 64
TOO_DEEP = f"the arguments are nested deeper than {MAX_DEPTH} levels"


class _NoNumberError(ValueError):
    """Something that stands for a number and is none."""


class ExactFloat(float):
    """A float that still knows how it was written; `str` gives that text to a `Decimal`."""

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> Self:
        self = super().__new__(cls, text)
        self.text = text
        return self

    def __str__(self) -> str:
        return self.text


def is_empty(raw: bytes) -> bool:
    """Tell whether a call came without arguments."""
    return raw.strip() in {b"", b"null"}


def decode_arguments(
    raw: bytes, *, parse_float: Callable[[str], Any] = ExactFloat
) -> dict[str, Any]:
    """Return the arguments as plain JSON values.

    Raises:
        InvalidArguments: the text is no JSON object.
    """
    if is_empty(raw):
        return {}
    try:
        arguments = json.loads(raw, parse_float=parse_float, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        problem = Problem(path="", message=f"the arguments are not valid JSON: {_reason(exc)}")
        raise InvalidArguments([problem]) from exc
    if is_too_deep(raw, arguments):
        raise InvalidArguments([Problem(path="", message=TOO_DEEP)])
    if not isinstance(arguments, dict):
        problem = Problem(path="", value=arguments, message="the arguments must be an object")
        raise InvalidArguments([problem])
    return arguments


def is_too_deep(raw: bytes, value: Any) -> bool:
    """Tell whether lists and objects are nested deeper than `MAX_DEPTH`."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner.extend(one.values())
            elif isinstance(one, list):
                inner.extend(one)
        level = [one for one in inner if isinstance(one, dict | list)]
        if not level:
            return False
    return True


def _reason(exc: Exception) -> str:
    if isinstance(exc, RecursionError):
        return "it is nested too deep"
    if isinstance(exc, json.JSONDecodeError | UnicodeDecodeError | _NoNumberError):
        return str(exc)
    # What is left are integers of many digits, which Python refuses in terms of its own settings.
    return "a number is too large"


def finite_float(text: str) -> float:
    """Return a number as a float, unless it is too large for one."""
    value = float(text)
    if not math.isfinite(value):
        raise _NoNumberError("a number is too large")
    return value


def _refuse_constant(name: str) -> Any:
    raise _NoNumberError(f"{name} is no JSON number")


def drop_nulls(value: Any, schema: Any, root: Schema) -> Any:
    """Return `value` without the members that are `null`, may be left out and may not be `null`."""
    if isinstance(value, list):
        items = schema.get("items") if isinstance(schema, dict) else None
        return [drop_nulls(item, items, root) for item in value]
    if not isinstance(value, dict):
        return value
    objects = [member for member in alternatives(root, schema) if "properties" in member]
    if len(objects) != 1:
        return value
    properties, required = objects[0]["properties"], objects[0].get("required", ())
    return {
        name: drop_nulls(member, properties.get(name), root)
        for name, member in value.items()
        if member is not None
        or name not in properties
        or name in required
        or accepts_null(root, properties[name])
    }


def unknown_members(value: Any, schema: Any, path: Path = ()) -> Iterator[Problem]:
    """Yield a problem for each name in `value` for which a closed schema has no property."""
    if not isinstance(schema, dict):
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_members(item, schema.get("items"), (*path, index))
    elif isinstance(value, dict) and "properties" in schema:
        properties = schema["properties"]
        for name, member in value.items():
            if name in properties:
                yield from unknown_members(member, properties[name], (*path, name))
            elif schema.get("additionalProperties") is False:
                yield unknown_argument(name, properties, path=format_path(path))
