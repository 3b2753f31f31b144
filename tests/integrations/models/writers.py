"""Clients that may write, and the admin's history of their changes."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import LogEntry
from django.db.models import Model

from mcp_django import MCPServer
from mcp_django.integrations.models.declaration import ModelTools
from mcp_django.test import MCPClient
from tests.integrations.models.building import holder

ORDER = ["number", "status", "total", "placed_at", "customer", "note"]
ALL = ("list", "get", "create", "update", "delete")
# For classes without a field that a new object needs.
KEPT = ("list", "get", "update", "delete")
PLACED = "2026-03-01T12:00:00Z"


def may_all(*models: type[Model], username: str = "ada") -> Any:
    """Return a user who holds every permission of these models."""
    names = [
        f"{deed}_{model._meta.model_name}"
        for model in models
        for deed in ("view", "add", "change", "delete")
    ]
    return holder(*names, username=username)


def server_of(
    model: type[Model], *others: tuple[type[Model], dict[str, Any]], **options: Any
) -> MCPServer:
    """Return a server with every tool of a model, and with other models beside it."""
    server = MCPServer("shop")
    for other, details in others:
        server.register(other, type("OtherMCP", (ModelTools,), details))
    server.register(model, type("ShopMCP", (ModelTools,), {"tools": ALL, **options}))
    return server


def writer(model: type[Model], *, user: Any = None, **options: Any) -> MCPClient:
    """Return a client with every tool of a model and every permission of it; bugs are raised."""
    return MCPClient(server=server_of(model, **options), user=user or may_all(model))


def history() -> list[tuple[int, str, str]]:
    """Return the entries of the admin's history, oldest first."""
    entries = LogEntry.objects.order_by("pk")
    return [
        (log_entry.action_flag, log_entry.object_repr, log_entry.change_message)
        for log_entry in entries
    ]


def tool(client: MCPClient, name: str) -> dict[str, Any]:
    """Return a tool as it is listed."""
    return next(definition for definition in client.list_tools() if definition["name"] == name)
