"""The admin's history of what callers write."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.integrations.models import write_effects
from mcp_django.integrations.models.declaration import ModelTools
from mcp_django.test import MCPClient
from tests.integrations.models.building import customer, order, product
from tests.integrations.models.writers import KEPT, ORDER, PLACED, history, may_all, writer
from tests.sites.shop.models import Order, Product, Tag

pytestmark = pytest.mark.django_db


def test_each_write_leaves_an_entry_that_names_the_tool():
    user = may_all(Order)
    client = writer(Order, user=user, fields=ORDER)
    sent = {"number": "N1", "customer": customer().pk, "placed_at": PLACED}
    client.call_tool("create_order", sent)
    made = Order.objects.get()
    client.call_tool("update_order", {"number": "N1", "status": "paid", "total": 3, "note": ""})
    client.call_tool("delete_order", {"number": "N1"})
    assert history() == [
        (ADDITION, "N1", "Added through the MCP tool create_order."),
        (CHANGE, "N1", "Changed status, total through the MCP tool update_order."),
        (DELETION, "N1", "Deleted through the MCP tool delete_order."),
    ]
    kind = ContentType.objects.get_for_model(Order)
    rows = LogEntry.objects.values_list("user", "content_type", "object_id")
    assert set(rows) == {(user.pk, kind.pk, str(made.pk))}


def test_what_was_sent_and_is_the_same_is_no_change():
    order("N1")
    writer(Order, fields=ORDER).call_tool("update_order", {"number": "N1", "status": "open"})
    assert history() == [(CHANGE, "N1", "Changed no field through the MCP tool update_order.")]


def test_values_are_not_in_it():
    order("N1")
    client = writer(Order, fields=ORDER, write_fields=["internal_note"], tools=KEPT)
    client.call_tool("update_order", {"number": "N1", "internal_note": "between us"})
    ((_, _, message),) = history()
    assert message == "Changed internal_note through the MCP tool update_order."


def test_links_and_emptied_fields_are_changes():
    product("Ball", slug="ball", weight=1)
    client = writer(Product, fields=["slug", "tags", "weight"], tools=KEPT)
    tag = Tag.objects.create(word="red")
    client.call_tool("update_product", {"slug": "ball", "tags": [tag.pk], "clear": ["weight"]})
    assert history() == [
        (CHANGE, "Ball", "Changed tags, weight through the MCP tool update_product.")
    ]


def test_what_was_refused_or_failed_is_not_in_it():
    order("N1")

    def perform_update(self: Any, ctx: Any, form: Any) -> Order:
        form.save()
        raise RuntimeError("midway")

    client = writer(Order, fields=ORDER, perform_update=perform_update)
    client.call_tool("update_order", {"number": "N1", "status": "lost"}, check=False)
    with pytest.raises(RuntimeError, match="midway"):
        client.call_tool("update_order", {"number": "N1", "status": "paid"})
    assert history() == []


def test_nobody_is_in_nobodys_history():
    order("N1")
    server = MCPServer("shop", permission=AllowAny)
    options = {
        "fields": ORDER,
        "tools": ["update"],
        "permission": AllowAny,
        "has_permission": lambda self, ctx, action, obj=None: True,
    }
    server.register(Order, type("OpenMCP", (ModelTools,), options))
    sent = {"number": "N1", "status": "paid"}
    assert not MCPClient(server=server).call_tool("update_order", sent).is_error
    assert history() == []


def test_a_site_without_the_admin_has_no_history(monkeypatch):
    order("N1")
    app_names: list[str] = []
    monkeypatch.setattr(
        write_effects.apps, "is_installed", lambda name: app_names.append(name) or False
    )
    sent = {"number": "N1", "status": "paid"}
    assert not writer(Order, fields=ORDER).call_tool("update_order", sent).is_error
    assert "django.contrib.admin" in app_names
    monkeypatch.undo()
    assert history() == []
