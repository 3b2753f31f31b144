"""A write can neither refer to, unlink nor count the objects that a class denies."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django import Context
from mcp_django.auth.permissions import AllowAny
from mcp_django.integrations.models.declaration import ModelTools
from tests.integrations.models.building import product, reader
from tests.integrations.models.test_row_access import Customers, Own, OwnOrders, ada, serve
from tests.sites.shop.models import Customer, Order, Product, Tag

pytestmark = pytest.mark.django_db

__all__ = ["ada"]


def test_what_is_denied_cannot_be_referred_to(ada):
    class Writing(ModelTools[Order]):
        permission = AllowAny
        fields = ["number", "customer", "placed_at"]
        tools = ["create"]

        def has_permission(self, ctx: Context, action: Any, obj: Any = None) -> bool:
            return True

    client = reader(serve((Order, Writing), (Customer, Customers)), ada)
    mine = Customer.objects.get(user=ada)
    other = Customer.objects.exclude(user=ada).get()
    values = {"number": "N", "placed_at": "2026-01-01T00:00:00Z"}
    assert not client.call_tool("create_order", {**values, "customer": mine.pk}).is_error
    values["number"] = "M"
    hidden = client.call_tool("create_order", {**values, "customer": other.pk}, check=False)
    unknown = client.call_tool("create_order", {**values, "customer": 10**6}, check=False)
    assert hidden.is_error
    assert hidden.text.replace(f"{other.pk}", "1000000") == unknown.text


def test_links_to_what_is_denied_are_kept(ada):
    class Tags(Own):
        fields = ["word"]

        def has_permission(self, ctx: Context, action: Any, obj: Any = None) -> bool:
            return obj is None or obj.secret == ""

    class Products(ModelTools[Product]):
        permission = AllowAny
        fields = ["slug", "tags"]
        tools = ["list", "update"]
        write_fields = ["tags"]

        def has_permission(self, ctx: Context, action: Any, obj: Any = None) -> bool:
            return True

    red, blue = (Tag.objects.create(word=word, secret=word[3:]) for word in ("red", "blue"))
    made = product(slug="ball")
    made.tags.add(red, blue)
    client = reader(serve((Product, Products), (Tag, Tags)), ada)
    shown = client.call_tool("update_product", {"slug": "ball", "tags": []}).structured
    assert shown["tags"] == []
    assert [tag.word for tag in made.tags.all()] == ["blue"]
    refused = client.call_tool("update_product", {"slug": "ball", "tags": [blue.pk]}, check=False)
    assert f"there is no tag {blue.pk}" in refused.text


def test_what_is_denied_is_not_counted_among_what_a_deletion_takes_along(ada):
    class Deleting(ModelTools[Customer]):
        permission = AllowAny
        fields = ["id"]
        tools = ["delete"]

        def has_permission(self, ctx: Context, action: Any, obj: Any = None) -> bool:
            return True

    class Even(OwnOrders):
        def has_permission(self, ctx: Context, action: Any, obj: Any = None) -> bool:
            return obj is None or obj.total == 0

    client = reader(serve((Customer, Deleting), (Order, Even)), ada)
    key = Customer.objects.get(user=ada).pk
    done = client.call_tool("delete_customer", {"id": key, "preview": True}).structured
    assert done == {"preview": True, "cascade": {"shop.Customer": 1, "shop.Order": 1}}
