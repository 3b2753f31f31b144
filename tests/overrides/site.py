"""A server of the test's own, and decisions about it as another process makes them."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import Component, Server
from mcp_django.overrides.state import override_version, publish_change
from mcp_django.storage.versions import OVERRIDES, increment_versions


def server_of(name: str, *tools: str) -> MCPServer:
    """A server that lets everybody in, with these tools."""
    server = MCPServer(name, permission=AllowAny)
    for tool in tools:
        server.tool(tool)(_work)
    return server


def _work() -> str:
    """Work."""
    return "done"


def decide(server: str, key: str, *, kind: str = "tool", **changes: Any) -> None:
    """Decide something here, as the admin does."""
    with transaction.atomic():
        _save(server, key, kind, changes)
        publish_change([(server, "tools")])


def decide_elsewhere(server: str, key: str, *, kind: str = "tool", **changes: Any) -> None:
    """Decide something as another process does, of which this one hears nothing."""
    with transaction.atomic():
        _save(server, key, kind, changes)
        increment_versions([OVERRIDES])


def decide_of_server_elsewhere(name: str, **changes: Any) -> None:
    """Decide something of a whole server as another process does, a second ago."""
    with transaction.atomic():
        Server.objects.update_or_create(name=name, defaults=changes)
        increment_versions([OVERRIDES])
    a_second_later()


def _save(server: str, key: str, kind: str, changes: dict[str, Any]) -> None:
    Component.objects.update_or_create(
        server=server, kind=kind, key=key, defaults={"name": key, **changes}
    )


def switch_off(server: str) -> None:
    """Switch a whole server off."""
    with transaction.atomic():
        Server.objects.update_or_create(name=server, defaults={"is_enabled": False})
        publish_change([])


def a_second_later() -> None:
    """What this process knows is no longer fresh."""
    override_version.expire()
