"""An object around output that is none, for revisions whose structured output is always one.

2025-06-18 and 2025-11-25 want `outputSchema` to have `type: object` at its root and
`structuredContent` to be an object; a list or a number travels there as `{"result": ...}`.
"""

from __future__ import annotations

from typing import Any

from mcp_django.protocol.subschemas import Schema, map_subschemas

_PLACE = "#/properties/result"


def is_object_schema(schema: Schema) -> bool:
    """Return whether those revisions can have the schema as it is."""
    return schema.get("type") == "object"


def wrap_value(value: Any) -> dict[str, Any]:
    """Return the object that stands for `value`."""
    return {"result": value}


def wrap_schema(schema: Schema) -> dict[str, Any]:
    """Return the schema of what `wrap_value` makes of values of `schema`."""
    inner = _moved(schema)
    # A dialect can be named at the root only.
    dialect = {"$schema": inner.pop("$schema")} if "$schema" in inner else {}
    return {**dialect, "type": "object", "properties": {"result": inner}, "required": ["result"]}


def _moved(schema: Schema) -> dict[str, Any]:
    # Below an `$id` references count from there, wherever the schema is put.
    if "$id" in schema:
        return dict(schema)
    moved = map_subschemas(schema, _moved)
    for keyword in ("$ref", "$dynamicRef"):
        reference = moved.get(keyword)
        if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
            moved[keyword] = _PLACE + reference[1:]
    return moved
