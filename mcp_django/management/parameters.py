"""The members of a schema as rows of a table, in words that need no knowledge of JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One member, in the words of a table."""

    name: str
    type: str
    required: bool
    default: Any = None
    has_default: bool = False
    description: str = ""

    @property
    def default_text(self) -> str:
        """The default as somebody would write it, empty without one."""
        return f"= {json.dumps(self.default, ensure_ascii=False)}" if self.has_default else ""

    def as_json(self) -> dict[str, Any]:
        """The same as one JSON object."""
        default = {"default": self.default} if self.has_default else {}
        return {
            "name": self.name,
            "type": self.type,
            "required": self.required,
            **default,
            "description": self.description,
        }


def parameters_of(schema: Schema) -> list[Parameter]:
    """The members of a schema, in the declared order."""
    required = schema.get("required", ())
    return [
        Parameter(
            name=name,
            type=type_text(member),
            required=name in required,
            default=member.get("default"),
            has_default="default" in member,
            description=str(member.get("description", "")),
        )
        for name, member in schema.get("properties", {}).items()
    ]


def type_text(schema: Schema) -> str:
    """The type of a value in a few words: ``integer``, ``"early" or "late"``, ``date or null``."""
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(json.dumps(value, ensure_ascii=False) for value in values)
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        return " or ".join(dict.fromkeys(map(type_text, alternatives)))
    declared = schema.get("type", "any")
    if isinstance(declared, list):
        return " or ".join(declared)
    if declared == "array" and isinstance(schema.get("items"), Mapping):
        return f"array of {type_text(schema['items'])}"
    return str(schema.get("format", declared)) if declared == "string" else str(declared)
