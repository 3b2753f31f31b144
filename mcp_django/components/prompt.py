"""Prompts: messages that a person picks and a function or a Django template writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mcp_django.components.component import Component
from mcp_django.schema.arguments import ArgumentSource


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptArgument:
    """One argument of a prompt, for the form that a host shows."""

    name: str
    schema: Mapping[str, Any]
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt(Component):
    """A prompt. With ``template`` the function returns that Django template's context."""

    kind: ClassVar[str] = "prompt"

    arguments: ArgumentSource
    template: str | None = None

    @property
    def parameters(self) -> list[PromptArgument]:
        """The arguments in the declared order."""
        schema = self.arguments.json_schema
        required = schema.get("required", ())
        return [
            PromptArgument(name=name, schema=spec, required=name in required)
            for name, spec in schema.get("properties", {}).items()
        ]
