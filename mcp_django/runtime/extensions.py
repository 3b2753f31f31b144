"""The extensions that a server advertises: those that something of it needs."""

from __future__ import annotations

from typing import Any

from mcp_django.auth import authentication as authorization
from mcp_django.core.catalog import Server
from mcp_django.protocol.errors import SKILLS, TASKS, UI
from mcp_django.runtime.tasks.choosing import offers_tasks


def advertised(server: Server) -> dict[str, dict[str, Any]]:
    """The extensions of a server by name, with their settings; often none (EXT-3)."""
    found = {**authorization.advertised(server.auth)}
    if any(tool.ui is not None for tool in server.offered.tools.values()):
        found[UI] = {}
    if server.offered.skills:
        found[SKILLS] = {"directoryRead": True}
    if offers_tasks(server.offered):
        found[TASKS] = {}
    return found
