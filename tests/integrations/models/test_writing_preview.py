"""`preview=true`: the write runs as usual, and is then rolled back."""

from __future__ import annotations

from typing import Any

import pytest
from django import forms
from django.contrib import admin
from django.contrib.admin import AdminSite
from django.contrib.admin.models import LogEntry
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.db.models.signals import post_delete, post_save

from mcp_django import MCPServer
from mcp_django.test import MCPClient
from tests.integrations.models.building import customer, line, order, product
from tests.integrations.models.writers import KEPT, ORDER, PLACED, may_all, server_of, tool, writer
from tests.sites.shop.models import Order, OrderLine, Product, Tag

pytestmark = pytest.mark.django_db


def test_a_change_is_shown_field_by_field_and_not_made():
    order("N1", note="old", margin=1)
    client = writer(Order, fields=ORDER, write_fields=[*ORDER, "margin"])
    sent = {"number": "N1", "status": "paid", "note": "new", "margin": 9, "preview": True}
    assert client.call_tool("update_order", sent).structured == {
        "preview": True,
        "changes": {
            "status": {"from": "open", "to": "paid"},
            "note": {"from": "old", "to": "new"},
        },
        "not_shown": ["margin"],
    }
    kept = Order.objects.get()
    assert (kept.status, kept.note, kept.margin) == ("open", "old", 1)


@pytest.mark.parametrize("margin", [1, 9])
def test_what_is_not_shown_is_named_whether_or_not_it_would_change(margin):
    order("N1", margin=1)
    client = writer(Order, fields=ORDER, write_fields=["margin"], tools=KEPT)
    listed = tool(client, "update_order")["outputSchema"]["properties"]
    assert listed["not_shown"]["items"] == {"type": "string"}
    result = client.call_tool("update_order", {"number": "N1", "margin": margin, "preview": True})
    assert result.structured == {"preview": True, "changes": {}, "not_shown": ["margin"]}


def test_what_saving_does_beyond_the_call_is_part_of_it(monkeypatch):
    save = Order.save

    def save_with_total(self: Order, *args: Any, **kwargs: Any) -> None:
        self.total = 42
        save(self, *args, **kwargs)

    monkeypatch.setattr(Order, "save", save_with_total)
    Order.objects.bulk_create([Order(number="N1", customer=customer(), placed_at=PLACED)])
    sent = {"number": "N1", "note": "new", "preview": True}
    changes = writer(Order, fields=ORDER).call_tool("update_order", sent).structured["changes"]
    assert changes["total"] == {"from": "0.00", "to": "42.00"}


def test_nothing_changes_nothing():
    order("N1", status="paid")
    sent = {"number": "N1", "status": "paid", "preview": True}
    result = writer(Order, fields=ORDER).call_tool("update_order", sent)
    assert result.structured == {"preview": True, "changes": {}}


def test_links_are_part_of_it():
    red, blue = Tag.objects.create(word="red"), Tag.objects.create(word="blue")
    ball = product(slug="ball")
    ball.tags.add(red)
    sent = {"slug": "ball", "tags": [blue.pk], "preview": True}
    client = writer(Product, fields=["slug", "tags"], tools=KEPT)
    result = client.call_tool("update_product", sent)
    assert result.structured["changes"] == {
        "tags": {"from": [{"id": red.pk}], "to": [{"id": blue.pk}]}
    }
    assert list(ball.tags.all()) == [red]


def test_a_new_object_is_shown_and_not_made():
    buyer = customer()
    client = writer(Order, fields=["id", "number", "status", "placed_at", "customer"], key="number")
    sent = {"number": "N1", "customer": buyer.pk, "placed_at": PLACED, "preview": True}
    assert client.call_tool("create_order", sent).structured == {
        "preview": True,
        "changes": {
            "number": {"from": None, "to": "N1"},
            "status": {"from": None, "to": "open"},
            "placed_at": {"from": None, "to": PLACED},
            "customer": {"from": None, "to": {"id": buyer.pk}},
        },
    }
    assert not Order.objects.exists()


def test_a_deletion_says_what_would_go():
    line(order("N1"))
    client = writer(Order, user=may_all(Order, OrderLine), fields=ORDER)
    result = client.call_tool("delete_order", {"number": "N1", "preview": True})
    assert result.structured == {
        "preview": True,
        "cascade": {"shop.Order": 1, "shop.OrderLine": 1},
    }
    assert OrderLine.objects.count() == 1
    done = client.call_tool("delete_order", {"number": "N1"}).structured
    assert done == {"deleted": result.structured["cascade"]}


def test_what_would_be_refused_is_refused():
    order("N1")
    client = writer(Order, fields=ORDER)
    wrong = {"number": "N1", "status": "lost"}
    preview = client.call_tool("update_order", {**wrong, "preview": True}, check=False)
    assert preview.is_error
    assert preview.text == client.call_tool("update_order", wrong, check=False).text


@pytest.fixture
def heard():
    """Yield the events of signals, and of callbacks that ran after a commit."""
    events: list[str] = []

    def listen(sender: Any, signal: Any, **kwargs: Any) -> None:
        events.append("saved" if signal is post_save else "deleted")
        transaction.on_commit(lambda: events.append("committed"))

    for signal in (post_save, post_delete):
        signal.connect(listen, sender=Order, weak=False, dispatch_uid="heard")
    yield events
    for signal in (post_save, post_delete):
        signal.disconnect(sender=Order, dispatch_uid="heard")


@pytest.mark.django_db(transaction=True)
def test_signals_run_and_nothing_that_waits_for_the_commit(heard):
    order("N1")
    heard.clear()
    client = writer(Order, fields=ORDER)
    sent = {"number": "N1", "status": "paid"}
    client.call_tool("update_order", {**sent, "preview": True})
    client.call_tool("delete_order", {"number": "N1", "preview": True})
    assert heard == ["saved", "deleted"]
    client.call_tool("update_order", sent)
    assert heard == ["saved", "deleted", "saved", "committed"]
    assert Order.objects.get().status == "paid"


@pytest.mark.django_db(transaction=True)
def test_subscribers_hear_nothing_of_it(monkeypatch):
    topics: list[Any] = []
    monkeypatch.setattr("mcp_django.server.publish", topics.append)
    order("N1")
    server = server_of(Order, fields=ORDER)

    def tell(sender: Any, instance: Order, **kwargs: Any) -> None:
        server.notify_resource_updated(f"shop://orders/{instance.number}")

    client = MCPClient(server=server, user=may_all(Order))
    post_save.connect(tell, sender=Order)
    try:
        client.call_tool("update_order", {"number": "N1", "note": "x", "preview": True})
        assert topics == []
        client.call_tool("update_order", {"number": "N1", "note": "x"})
        assert len(topics) == 1
    finally:
        post_save.disconnect(tell, sender=Order)


def test_the_history_has_no_entry_of_it():
    order("N1")
    client = writer(Order, fields=ORDER)
    client.call_tool("update_order", {"number": "N1", "note": "x", "preview": True})
    client.call_tool("delete_order", {"number": "N1", "preview": True})
    assert not LogEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_failure_takes_nothing_else_back():
    """The connection works as before: what is written after a preview stays."""
    order("N1")

    def perform_update(self: Any, ctx: Any, form: Any) -> Order:
        form.save()
        raise RuntimeError("midway")

    client = writer(Order, fields=ORDER, perform_update=perform_update)
    with pytest.raises(RuntimeError, match="midway"):
        client.call_tool("update_order", {"number": "N1", "note": "x", "preview": True})
    client.call_tool("delete_order", {"number": "N1"})
    assert not Order.objects.exists()


def test_a_preview_needs_the_permission_to_write():
    order("N1")
    client = MCPClient(server=server_of(Order, fields=ORDER), user=may_all(OrderLine))
    assert client.list_tools() == []


# --- without previews


def test_a_class_may_have_no_previews():
    order("N1")
    client = writer(Order, user=may_all(Order), fields=ORDER, preview=False)
    for name in ("create_order", "update_order", "delete_order"):
        definition = tool(client, name)
        assert "preview" not in str(definition)
        refused = client.call_tool(name, {"number": "N1", "preview": True}, check=False)
        assert 'unknown argument "preview"' in refused.text
    changed = client.call_tool("update_order", {"number": "N1", "note": "x"})
    assert changed.structured["note"] == "x"
    assert client.call_tool("delete_order", {"number": "N1"}).structured == {
        "deleted": {"shop.Order": 1}
    }


@pytest.mark.parametrize("preview", [True, False])
def test_a_form_may_have_a_field_named_preview_where_there_are_none(*, preview):
    class NoteForm(forms.ModelForm):
        """With a field of this name."""

        preview = forms.CharField(required=False)

        class Meta:
            """Its model."""

            model = Order
            fields = ("note",)

    options = {"fields": ORDER, "form": NoteForm, "tools": KEPT, "preview": preview}
    if preview:
        with pytest.raises(ImproperlyConfigured, match="'preview' is a field to write and also"):
            writer(Order, **options)
    else:
        order("N1")
        call = {"number": "N1", "note": "x", "preview": "y"}
        assert not writer(Order, **options).call_tool("update_order", call).is_error


def test_the_tools_of_an_admin_may_have_no_previews():
    class OrderAdmin(admin.ModelAdmin):
        """An admin."""

        list_display = ["number", "note"]
        fields = ["note"]

    own = AdminSite(name="desk")
    own.register(Order, OrderAdmin)
    server = MCPServer("desk")
    server.register_admin(Order, site=own, tools=["update"], preview=False)
    assert "preview" not in str(server.tools["update_order"].arguments.json_schema)
