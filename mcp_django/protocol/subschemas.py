"""Where a JSON Schema holds further schemas (JSON Schema 2020-12, and what draft-07 adds).

A key such as `$ref` means something only where a schema stands: below `properties` it is the name
of a property, below `default` or `enum` it is data. Walking by keyword keeps them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_SINGLE = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_SEQUENCE = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_MAPPING = frozenset(
    {
        "$defs",
        "definitions",
        "dependencies",
        "dependentSchemas",
        "patternProperties",
        "properties",
    }
)


def subschemas(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield each schema directly inside `schema`, with the keyword that holds it."""
    for keyword, value in schema.items():
        if isinstance(value, Mapping):
            if keyword in _SINGLE:
                yield keyword, value
            elif keyword in _MAPPING:
                yield from ((keyword, v) for v in value.values() if isinstance(v, Mapping))
        elif isinstance(value, list | tuple) and keyword in _SEQUENCE:
            yield from ((keyword, v) for v in value if isinstance(v, Mapping))


def map_subschemas(schema: Schema, change: Callable[[Schema], dict[str, Any]]) -> dict[str, Any]:
    """Return a copy of `schema` with each schema directly inside as `change` made it."""

    def changed(value: Any) -> Any:
        return change(value) if isinstance(value, Mapping) else value

    copy: dict[str, Any] = {}
    for keyword, value in schema.items():
        if isinstance(value, Mapping) and keyword in _SINGLE:
            copy[keyword] = change(value)
        elif isinstance(value, Mapping) and keyword in _MAPPING:
            copy[keyword] = {name: changed(inner) for name, inner in value.items()}
        elif isinstance(value, list | tuple) and keyword in _SEQUENCE:
            copy[keyword] = [changed(inner) for inner in value]
        else:
            copy[keyword] = value
    return copy
