"""Servers that expose a model as resources."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

from mcp_django import MCPServer, ModelResource
from mcp_django.auth.permissions import AllowAny
from mcp_django.test import MCPClient
from tests.integrations.models.building import serve
from tests.kit.servers import real_client
from tests.sites.shop.models import Order

URI = "shop://orders/{number}"


def resource(**options: Any) -> type[ModelResource[Any]]:
    """Return a class with these options that everybody may read."""
    return type("ShopMCP", (ModelResource,), {"permission": AllowAny, **options})


def offer(model: type[Model] = Order, **options: Any) -> MCPServer:
    """Return a server that exposes a model as resources; by default orders by their number."""
    if model is Order:
        options = {"uri": URI, "fields": ["number", "status"], **options}
    return serve(model, resource(**options))


def reader(model: type[Model] = Order, *, user: Any = None, **options: Any) -> MCPClient:
    """Return a client of such a server that sees an exception as a real client does."""
    return real_client(server=offer(model, **options), user=user)


def listed(client: MCPClient) -> list[list[str]]:
    """Return the names on each page of ``resources/list``."""
    page = client.request("resources/list")
    pages = [page]
    while "nextCursor" in page:
        page = client.request("resources/list", {"cursor": page["nextCursor"]})
        pages.append(page)
    return [[link["name"] for link in page["resources"]] for page in pages]
