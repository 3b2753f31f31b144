"""A server of the test's own, and overrides of it, made here or as another process makes them."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import Component, Server
from mcp_django.overrides.state import override_version, publish_change
from mcp_django.storage.versions import OVERRIDES, increment_versions


def server_of(name: str, *tools: str) -> MCPServer:
    """Return a server with these tools that everybody may use."""
    server = MCPServer(name, permission=AllowAny)
    for tool in tools:
        server.tool(tool)(_work)
    return server


def _work() -> str:
    """Work."""
    return "done"


def decide(server: str, key: str, *, kind: str = "tool", **changes: Any) -> None:
    """Save an override in this process, as the admin does."""
    with transaction.atomic():
        _save(server, key, kind, changes)
        publish_change([(server, "tools")])


def decide_elsewhere(server: str, key: str, *, kind: str = "tool", **changes: Any) -> None:
    """Save an override as another process does, of which this one is not notified."""
    with transaction.atomic():
        _save(server, key, kind, changes)
        increment_versions([OVERRIDES])


def decide_of_server_elsewhere(name: str, **changes: Any) -> None:
    """Save an override of a whole server as another process does, a second ago."""
    with transaction.atomic():
        Server.objects.update_or_create(name=name, defaults=changes)
        increment_versions([OVERRIDES])
    a_second_later()


def _save(server: str, key: str, kind: str, changes: dict[str, Any]) -> None:
    Component.objects.update_or_create(
        server=server, kind=kind, key=key, defaults={"name": key, **changes}
    )


def switch_off(server: str) -> None:
    """Disable a whole server."""
    with transaction.atomic():
        Server.objects.update_or_create(name=server, defaults={"is_enabled": False})
        publish_change([])


def a_second_later() -> None:
    """Let the overrides that this process has read become stale."""
    override_version.expire()
