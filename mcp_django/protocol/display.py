"""How components and content present themselves: annotations and icons.

MCP 2026-07-28, "Resources: Annotations" and "Icons". `content` exports both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from mcp_django.protocol.errors import clip

Role: TypeAlias = Literal["user", "assistant"]

_SIZE = re.compile(r"any|[1-9][0-9]*x[1-9][0-9]*")


def check_role(role: str) -> None:
    """Raise `ValueError` for anything but the two roles of a conversation."""
    if role not in ("user", "assistant"):
        raise ValueError(f"A role is 'user' or 'assistant', not {clip(repr(role))}")


def _check_tuple(name: str, values: Sequence[str]) -> None:
    # A string is a sequence of its characters, and the mistake easily made.
    if isinstance(values, str):
        raise ValueError(f"{name} is a tuple of strings, not the string {clip(repr(values))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """Hints about whom some content is for and how much it matters."""

    audience: tuple[Role, ...] = ()
    priority: float | None = None
    """From 0, optional, to 1, required."""
    last_modified: str | datetime | None = None
    """A date and time, as text in ISO 8601."""

    def __post_init__(self) -> None:
        _check_tuple("audience", self.audience)
        for role in self.audience:
            check_role(role)
        if self.priority is not None and not 0 <= self.priority <= 1:
            raise ValueError(f"priority is from 0 to 1, not {self.priority}")
        if isinstance(self.last_modified, str):
            _check_iso_8601(self.last_modified)

    def to_wire(self) -> dict[str, Any]:
        """Return the members that are set."""
        wire: dict[str, Any] = {}
        if self.audience:
            wire["audience"] = list(self.audience)
        if self.priority is not None:
            wire["priority"] = self.priority
        if isinstance(self.last_modified, datetime):
            wire["lastModified"] = self.last_modified.isoformat().replace("+00:00", "Z")
        elif self.last_modified is not None:
            wire["lastModified"] = self.last_modified
        return wire


def _check_iso_8601(text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"last_modified is ISO 8601, not {clip(repr(text))}") from None


@dataclass(frozen=True, slots=True)
class Icon:
    """An image for a component; hosts show only `https:` and `data:` sources.

    A `src` that begins with a slash is a path on this site, to be made absolute before it leaves.
    """

    src: str
    _: KW_ONLY
    mime_type: str | None = None
    sizes: tuple[str, ...] = ()
    """Such as `48x48`, or `any` for a scalable one."""
    theme: Literal["light", "dark"] | None = None

    def __post_init__(self) -> None:
        # Two slashes would name another host.
        is_path = self.src.startswith("/") and not self.src.startswith("//")
        if not is_path and not self.src.lower().startswith(("https:", "data:")):
            raise ValueError(
                "An icon's src is an https: or data: URI or a path on this site, "
                f"not {clip(repr(self.src))}"
            )
        _check_tuple("sizes", self.sizes)
        if not all(map(_SIZE.fullmatch, self.sizes)):
            raise ValueError(f"sizes are like ('48x48', 'any'), not {clip(repr(self.sizes))}")
        if self.theme not in (None, "light", "dark"):
            raise ValueError(f"theme is 'light' or 'dark', not {clip(repr(self.theme))}")

    def to_wire(self) -> dict[str, Any]:
        """Return the members that are set."""
        wire: dict[str, Any] = {"src": self.src}
        if self.mime_type is not None:
            wire["mimeType"] = self.mime_type
        if self.sizes:
            wire["sizes"] = list(self.sizes)
        if self.theme is not None:
            wire["theme"] = self.theme
        return wire
