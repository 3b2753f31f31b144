"""The answer of ``describe_model``: what a caller may send for a model, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_django.auth.principal import Principal
from mcp_django.core.tool import Tool
from mcp_django.schema.structure import Schema
from mcp_django.sources.models.arguments import PREVIEW
from mcp_django.sources.models.generic import Member
from mcp_django.sources.models.generic_shapes import SHAPES

# The same for every model, and said by the tools themselves.
_SAID = frozenset({"cursor", PREVIEW})


def describe(member: Member, principal: Principal, names: Mapping[str, str]) -> dict[str, Any]:
    """A model as this caller may use it; ``names`` are those of the generic tools."""
    declaration = member.declaration
    return {
        "model": member.name,
        "about": " ".join(part for part in (f"{declaration.nouns}.", declaration.doc) if part),
        "fields": declaration.exposed.schema.get("properties", {}),
        "tools": {
            names[operation]: _arguments(member, operation, tool)
            for operation, tool in member.visible(principal).items()
        },
    }


def _arguments(member: Member, operation: str, tool: Tool) -> dict[str, Any]:
    """The arguments of a generic tool with this model, as JSON Schema."""
    schema = tool.arguments.json_schema
    required = set(schema.get("required", ()))
    shape = SHAPES[operation]
    key = member.declaration.lookup.name if shape.has_key else ""
    described: dict[str, Any] = {}
    inner: dict[str, Schema] = {}
    for name, one in schema["properties"].items():
        if name == key:
            described["key"] = {**one, "description": f"The {name} of the record."}
        elif name not in shape.plain:
            inner[name] = one
        elif name not in _SAID:
            described[name] = one
    if not shape.within:
        return described
    needed = [name for name in inner if name in required]
    described[shape.within] = {
        "type": "object",
        "properties": inner,
        **({"required": needed} if needed else {}),
        "additionalProperties": False,
    }
    return described
