"""One field of a form at a terminal: what it wants, in words, and what a typed line means.

The fields are those of elicitation (MCP 2026-07-28, "Elicitation", requested schema). The server
checks the whole answer again; what is refused here saves a round.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from mcp_django.management.typed import FORMATS, READERS, UnfitText
from mcp_django.management.values import load_json
from mcp_django.protocol.errors import clip

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A named member of a form."""

    name: str
    schema: Schema
    is_required: bool

    @property
    def label(self) -> str:
        """What the form calls it."""
        return str(self.schema.get("title") or self.name)

    @property
    def choices(self) -> list[tuple[Any, str]]:
        """The values to choose from with their titles; empty where anything may be typed."""
        schema = self.schema.get("items", {}) if self.is_multiple else self.schema
        titled = schema.get("oneOf") or schema.get("anyOf")
        if titled:
            return [(one["const"], str(one.get("title", one["const"]))) for one in titled]
        values = schema.get("enum", [])
        titles = schema.get("enumNames") or values
        return [(value, str(title)) for value, title in zip(values, titles, strict=False)]

    @property
    def is_multiple(self) -> bool:
        """Whether several of the choices may be taken."""
        return self.schema.get("type") == "array"

    @property
    def has_default(self) -> bool:
        """Whether nothing typed means something."""
        return "default" in self.schema

    def with_default(self, value: Any) -> Field:
        """The same field where nothing typed means this value."""
        return replace(self, schema={**self.schema, "default": value})

    def wants(self) -> str:
        """What may be typed, in a few words."""
        words = [_kind(self)]
        words += [
            text.format(self.schema[key]) for key, text in RULES.items() if key in self.schema
        ]
        if not self.is_required and not self.has_default:
            words.append("may be empty")
        return ", ".join(words)

    def default_text(self) -> str:
        """The default as it would be typed."""
        default = self.schema["default"]
        if isinstance(default, bool):
            return "yes" if default else "no"
        if isinstance(default, list):
            return ", ".join(map(str, default))
        return default if isinstance(default, str) else json.dumps(default)

    def read(self, text: str) -> Any:
        """Return the value that a line means: an empty one the default, or ``None`` for no value.

        Raises:
            UnfitText: it means none.
        """
        if not text:
            return self._default()
        if self.is_multiple:
            return self._several(text)
        if self.choices:
            return self._chosen(text)
        value = READERS[self.schema.get("type", "string")](text)
        self._check(value)
        return value

    def _default(self) -> Any:
        if self.is_required and not self.has_default:
            raise UnfitText("A value is needed.")
        return self.schema.get("default")

    def _several(self, text: str) -> list[Any]:
        chosen = list(dict.fromkeys(self._chosen(part) for part in _parts(text)))
        low, high = self.schema.get("minItems", 0), self.schema.get("maxItems", math.inf)
        if not low <= len(chosen) <= high:
            raise UnfitText(f"Choose {self.wants()}.")
        return chosen

    def _chosen(self, text: str) -> Any:
        """The choice by its number, its value or its title."""
        text = text.strip()
        for value, title in self.choices:
            if text.lower() in (str(value).lower(), title.lower()):
                return value
        for number, (value, _) in enumerate(self.choices, start=1):
            if text == str(number):
                return value
        titles = ", ".join(title for _, title in self.choices)
        raise UnfitText(f"{clip(text)!r} is none of: {titles}.")

    def _check(self, value: Any) -> None:
        size = len(value) if isinstance(value, str) else value
        low, high = ("minLength", "maxLength") if isinstance(value, str) else ("minimum", "maximum")
        if isinstance(value, bool):
            return
        if not self.schema.get(low, -math.inf) <= size <= self.schema.get(high, math.inf):
            raise UnfitText(f"Write {self.wants()}.")
        check = FORMATS.get(self.schema.get("format", ""))
        if check is not None and not check(value):
            raise UnfitText(f"Write {self.wants()}.")


def _parts(text: str) -> list[str]:
    """Return the members of a list: with commas between, or of a JSON array."""
    if text.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            return [str(part) for part in load_json(text)]
    return [part for part in text.split(",") if part.strip()]


def fields_of(schema: Schema) -> list[Field]:
    """The fields of a form, in its order."""
    required = schema.get("required", ())
    return [
        Field(name=name, schema=member, is_required=name in required)
        for name, member in schema.get("properties", {}).items()
    ]


RULES = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minItems": "at least {}",
    "maxItems": "at most {}",
}
KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
    "email": "an e-mail address",
    "uri": "a URI",
    "date": "a date (2026-03-01)",
    "date-time": "a date and time (2026-03-01T14:30:00Z)",
}


def _kind(field: Field) -> str:
    if field.choices:
        return "some of these, with commas between" if field.is_multiple else "one of these"
    kind = field.schema.get("type", "string")
    return KINDS.get(field.schema.get("format", ""), KINDS.get(kind, "text"))
