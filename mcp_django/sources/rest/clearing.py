"""What empties the fields of a change: a list of their names.

``null`` cannot say it, since some clients send it for every argument that they leave out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rest_framework import serializers

from mcp_django.schema.arguments import Problem
from mcp_django.schema.serializers import writable_fields
from mcp_django.schema.structure import Schema, accepts_null

CLEAR = "clear"


def emptied(shape: Schema, serializer: serializers.BaseSerializer[Any] | None) -> Mapping[str, Any]:
    """What stands for nothing in the members of a body that may be left out or empty.

    One that has to be sent is sent as ``null``, as its schema says.
    """
    fields = {} if serializer is None else writable_fields(serializer)
    found: dict[str, Any] = {}
    for name, schema in shape["properties"].items():
        if name in shape.get("required", ()):
            continue
        field = fields.get(name)
        if field.allow_null if field is not None else accepts_null(shape, schema):
            found[name] = None
        elif getattr(field, "allow_blank", False):
            found[name] = ""
    return found


def clear_schema(names: list[str]) -> Schema:
    """The schema of the argument."""
    return {
        "type": "array",
        "items": {"type": "string", "enum": names},
        "description": "Fields to empty.",
    }


def contradictions(arguments: Mapping[str, Any], clear: Any) -> Iterator[Problem]:
    """A problem for each field that is to be emptied and has a value."""
    for name in clear if isinstance(clear, list) else ():
        if isinstance(name, str) and name in arguments:
            yield Problem(path=name, message="is to be emptied and has a value; send one of them")
