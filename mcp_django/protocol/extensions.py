"""Extensions of the protocol: their names, and how a request says that its client has one.

MCP 2026-07-28, "Extensions": `capabilities.extensions` maps names to settings on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TASKS = "io.modelcontextprotocol/tasks"
SKILLS = "io.modelcontextprotocol/skills"
UI = "io.modelcontextprotocol/ui"


def declares(capabilities: Mapping[str, Any], name: str) -> bool:
    """Return whether a client with these capabilities has the extension."""
    extensions = capabilities.get("extensions")
    return isinstance(extensions, Mapping) and isinstance(extensions.get(name), Mapping)


def requirement(name: str) -> dict[str, Any]:
    """Return the extension in the shape in which a client would declare it."""
    return {"extensions": {name: {}}}
