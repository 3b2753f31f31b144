"""Tools: functions that a model may call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from django.core.exceptions import ImproperlyConfigured

from mcp_django.components.component import Component
from mcp_django.protocol.headers import HeaderParameter, header_parameters
from mcp_django.schema.arguments import ArgumentSource
from mcp_django.schema.output import OutputAdapter

# TOOL-12: the specification's own alphabet and length.
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Component):
    """A tool. The four hints are published only when the author set them (TOOL-16)."""

    kind: ClassVar[str] = "tool"

    arguments: ArgumentSource
    output: OutputAdapter | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    mirrored: tuple[HeaderParameter, ...] = ()

    def __post_init__(self) -> None:
        super(Tool, self).__post_init__()
        if not NAME.fullmatch(self.name):
            raise ImproperlyConfigured(
                f"{self.name!r} is no tool name: use 1 to 128 of A-Z a-z 0-9 _ - . "
                "(pass name=… to the decorator)."
            )
        for hint, value in self.hints.items():
            self.require(isinstance(value, bool), f"{hint} is {value!r}; write True or False.")
        self.require(
            not (self.read_only and self.destructive),
            "read_only and destructive exclude each other; keep one.",
        )
        try:
            mirrored = header_parameters(self.arguments.json_schema)
        except ValueError as exc:
            raise ImproperlyConfigured(f"{self}: {exc}") from None
        object.__setattr__(self, "mirrored", mirrored)

    @property
    def hints(self) -> dict[str, bool]:
        """The annotations of the specification that the author set."""
        hints = {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }
        return {name: value for name, value in hints.items() if value is not None}
