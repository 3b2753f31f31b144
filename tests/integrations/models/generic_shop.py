"""A shop whose server has one set of tools for its models."""

from __future__ import annotations

from typing import Any

from mcp_django import MCPServer, ModelTools
from mcp_django.auth.permissions import AllowAny
from mcp_django.test import MCPClient
from tests.sites.shop.models import Customer, Order

READING = ["describe_model", "get_record", "search_records"]
ORDERS: dict[str, Any] = {
    "fields": ["number", "status", "total", "placed_at", "customer"],
    "search_fields": ["number"],
    "filter_fields": ["status", "total"],
    "ordering_fields": ["total"],
}


def tools(**options: Any) -> type[ModelTools[Any]]:
    """Return a class with these options that everybody may read."""
    return type("ShopMCP", (ModelTools,), {"permission": AllowAny, **options})


def shop(generic: Any = True, **options: Any) -> MCPServer:
    """Return a server with orders for everybody, and customers that need a permission."""
    server = MCPServer("shop", permission=AllowAny, generic=generic)
    server.register(Order, tools(**{**ORDERS, **options}))
    server.register(Customer, type("CustomerMCP", (ModelTools,), {"fields": ["id", "name"]}))
    return server


def names(server: MCPServer, user: Any = None) -> list[str]:
    return [tool["name"] for tool in MCPClient(server=server, user=user).list_tools()]


def models(client: MCPClient, tool: str = "search_records") -> list[str]:
    (definition,) = [candidate for candidate in client.list_tools() if candidate["name"] == tool]
    enum: list[str] = definition["inputSchema"]["properties"]["model"]["enum"]
    return enum
