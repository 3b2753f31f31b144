"""Rows of the shop, and servers that expose them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import count
from typing import Any

from django.contrib.auth.models import Permission
from django.db.models import Model

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.integrations.models.declaration import ModelComponents, ModelTools
from mcp_django.test import MCPClient
from tests.kit.servers import person, real_client
from tests.sites.shop.models import Category, Customer, Order, OrderLine, Product

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_numbers = count(1)


def customer(name: str = "Ada", **details: Any) -> Customer:
    """Create a customer with a unique email address."""
    details.setdefault("email", f"{next(_numbers)}@shop.test")
    return Customer.objects.create(name=name, **details)


def category(code: str = "toys", **details: Any) -> Category:
    """Return a category, which is created if it does not exist."""
    details.setdefault("title", code.title())
    row, _ = Category.objects.get_or_create(code=code, defaults=details)
    return row


def product(name: str = "Ball", **details: Any) -> Product:
    """Create a product."""
    number = next(_numbers)
    details.setdefault("slug", f"product-{number}")
    details.setdefault("price", Decimal("9.50"))
    if "category" not in details:
        details["category"] = category()
    return Product.objects.create(name=name, **details)


def order(number: str | None = None, **details: Any) -> Order:
    """Create an order, each a day later than the one before."""
    serial = next(_numbers)
    if "customer" not in details:
        details["customer"] = customer()
    details.setdefault("placed_at", START + dt.timedelta(days=serial))
    return Order.objects.create(number=number or f"N{serial}", **details)


def line(of: Order, **details: Any) -> OrderLine:
    """Create a line of an order."""
    if "product" not in details:
        details["product"] = product()
    return OrderLine.objects.create(order=of, **details)


def tools(**options: Any) -> type[ModelTools[Any]]:
    """Return a class with these options that everybody may read; by default it only lists."""
    return type("ShopMCP", (ModelTools,), {"permission": AllowAny, "tools": ["list"], **options})


def serve(
    model: type[Model], cls: type[ModelComponents[Any]] | None = None, **options: Any
) -> MCPServer:
    """Return a server of its own that exposes a model."""
    server = MCPServer("shop", permission=AllowAny)
    server.register(model, cls or tools(**options))
    return server


def reader(server: MCPServer, user: Any = None) -> MCPClient:
    """Return a client that sees an exception as a client over the network does."""
    return real_client(server=server, user=user)


def client(model: type[Model], *, user: Any = None, **options: Any) -> MCPClient:
    """Return a client of a server that exposes a model; exceptions are raised unchanged."""
    return MCPClient(server=serve(model, **options), user=user)


def holder(*codenames: str, username: str = "ada") -> Any:
    """Return a user who holds these permissions of the shop."""
    user = person(username)
    permissions = Permission.objects.filter(codename__in=codenames, content_type__app_label="shop")
    assert {permission.codename for permission in permissions} == {*codenames}
    user.user_permissions.add(*permissions)
    return type(user).objects.get(pk=user.pk)
