"""The strict dialect of JSON Schema: every member is required, and no others are allowed.

Some model APIs guarantee arguments that match the schema exactly, if every object lists all its
members as required and optional ones may be ``null``. This is opt-in, because the dialect is less
expressive: it has no defaults and no maps with free keys.
"""

from __future__ import annotations

from typing import Any

from mcp_django.protocol.headers import map_subschemas
from mcp_django.schema.arguments import to_json_text
from mcp_django.schema.structure import Schema, accepts_null, walk
from mcp_django.schema.vocabulary import append_sentence

_NON_STRICT_KEYWORDS = frozenset({"default", "uniqueItems"})


def to_strict(schema: Schema) -> Schema:
    """Return a portable schema in the strict dialect.

    Raises:
        ValueError: the schema has a map with free keys, which the dialect cannot describe.
    """
    for path, member in walk(schema):
        has_free_keys = (
            "properties" not in member
            or member.get("additionalProperties")
            or "patternProperties" in member
        )
        if member.get("type") == "object" and has_free_keys:
            where = "/".join(map(str, path)) or "the root"
            raise ValueError(
                f"The strict dialect cannot describe the object at {where}, because its keys are "
                "not fixed; use a list of objects with a key and a value instead."
            )
    result: Schema = _strict(schema, root=schema)
    return result


def _strict(schema: Any, *, root: Schema) -> Any:
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "object":
        required = schema.get("required", ())
        properties = {
            name: member
            if name in required or not isinstance(member, dict)
            else _nullable(member, root)
            for name, member in schema["properties"].items()
        }
        schema = {**schema, "properties": properties, "additionalProperties": False}
        if properties:
            schema["required"] = list(properties)
    result = map_subschemas(schema, lambda child: _strict(child, root=root))
    return {key: value for key, value in result.items() if key not in _NON_STRICT_KEYWORDS}


def _nullable(member: Schema, root: Schema) -> Schema:
    member = dict(member)
    default = member.pop("default", None)
    shared = {"description": member.pop("description")} if "description" in member else {}
    if default is not None:
        sentence = f"Default: {to_json_text(default)}."
        shared["description"] = append_sentence(shared.get("description", ""), sentence)
    if accepts_null(root, member):
        return {**member, **shared}
    kinds = member.pop("anyOf") if set(member) == {"anyOf"} else [member]
    return {"anyOf": [*kinds, {"type": "null"}], **shared}
