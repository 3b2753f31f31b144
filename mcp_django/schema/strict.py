"""The strict dialect: every member required, nothing beside the named ones.

Some model APIs promise arguments that fit the schema exactly, for schemas in which every object
lists all its members as required and an optional one may be `null`. This is opt-in, as it says less
than the plain schema: there are no defaults and no maps with free keys.
"""

from __future__ import annotations

from typing import Any

from mcp_django.schema.arguments import quote
from mcp_django.schema.rewriting import with_sentence
from mcp_django.schema.structure import Schema, accepts_null, map_children, walk

_UNKNOWN_KEYWORDS = frozenset({"default", "uniqueItems"})


def strict(schema: Schema) -> Schema:
    """Return a portable schema in the strict dialect.

    Raises:
        ValueError: the schema has a map with free keys, for which the dialect has no words.
    """
    for path, member in walk(schema):
        if member.get("type") == "object" and _has_free_keys(member):
            where = "/".join(map(str, path)) or "the root"
            raise ValueError(
                f"The strict dialect cannot describe the object at {where}, because its keys are "
                "not fixed; take a list of objects with a key and a value instead."
            )
    result: Schema = _strict(schema, root=schema)
    return result


def _has_free_keys(schema: Schema) -> bool:
    if "properties" not in schema:
        return True
    return bool(schema.get("additionalProperties")) or "patternProperties" in schema


def _strict(schema: Any, *, root: Schema) -> Any:
    if not isinstance(schema, dict):
        return schema
    complete = _all_required(schema, root=root) if schema.get("type") == "object" else schema
    result = map_children(complete, lambda child: _strict(child, root=root))
    return {key: value for key, value in result.items() if key not in _UNKNOWN_KEYWORDS}


def _all_required(schema: Schema, *, root: Schema) -> Schema:
    required = schema.get("required", ())
    properties = {
        name: member
        if name in required or not isinstance(member, dict)
        else _nullable(member, root)
        for name, member in schema["properties"].items()
    }
    result = {**schema, "properties": properties, "additionalProperties": False}
    return {**result, "required": list(properties)} if properties else result


def _nullable(member: Schema, root: Schema) -> Schema:
    member = dict(member)
    default = member.pop("default", None)
    shared = {"description": member.pop("description")} if "description" in member else {}
    if default is not None:
        sentence = f"Default: {quote(default)}."
        shared["description"] = with_sentence(shared.get("description", ""), sentence)
    if accepts_null(root, member):
        return {**member, **shared}
    kinds = member.pop("anyOf") if set(member) == {"anyOf"} else [member]
    return {"anyOf": [*kinds, {"type": "null"}], **shared}
