"""Writing by the form, the saving and the history of a `ModelAdmin`."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest

from mcp_django import MCPServer
from mcp_django.test import MCPClient
from tests.integrations.model_admin.desk import OrderAdmin, clerk, client, server, site
from tests.integrations.models.building import customer, line, order, product
from tests.kit.servers import person
from tests.sites.shop.models import Order, OrderLine, Product, Tag

pytestmark = pytest.mark.django_db

EVERY = ["list", "get", "create", "update", "delete"]
ALL = ("view_order", "add_order", "change_order", "delete_order")


def properties(mcp: MCPClient, tool: str) -> list[str]:
    (definition,) = [candidate for candidate in mcp.list_tools() if candidate["name"] == tool]
    return list(definition["inputSchema"]["properties"])


def entries() -> list[tuple[str, str, int]]:
    return [
        (log_entry.object_repr, log_entry.get_change_message(), log_entry.action_flag)
        for log_entry in LogEntry.objects.order_by("pk")
    ]


def test_a_new_object_is_saved_and_logged_as_the_admin_does():
    mcp = client(*ALL, "view_customer", tools=EVERY)
    made = mcp.call_tool(
        "create_order",
        {"number": "B1", "customer": customer().pk, "placed_at": "2026-01-01T10:00:00Z"},
    )
    assert not made.is_error, made.text
    assert made.structured["number"] == "B1"
    assert Order.objects.get().internal_note == "saved by ada"
    assert entries() == [("B1", "Added.", 1)]


def test_a_change_is_saved_and_logged_as_the_admin_does():
    order("B1")
    mcp = client(*ALL, tools=EVERY)
    changed = mcp.call_tool("update_order", {"number": "B1", "status": "paid", "note": "soon"})
    assert changed.structured["status"] == "paid"
    row = Order.objects.get()
    assert (row.internal_note, row.note) == ("saved by ada", "soon")
    assert entries() == [("B1", "Changed Status and Note.", 2)]


def test_a_preview_saves_and_logs_nothing():
    order("B1")
    mcp = client(*ALL, tools=EVERY)
    tried = mcp.call_tool("update_order", {"number": "B1", "status": "paid", "preview": True})
    assert tried.structured["changes"] == {"status": {"from": "open", "to": "paid"}}
    assert Order.objects.get().status == "open"
    assert entries() == []


def test_what_is_read_only_cannot_be_written():
    mcp = client(*ALL, tools=EVERY)
    assert "total" not in properties(mcp, "update_order")
    assert "internal_note" not in properties(mcp, "update_order")
    order("B1")
    refused = mcp.call_tool("update_order", {"number": "B1", "total": "5"}, check=False)
    assert refused.is_error
    assert 'unknown argument "total"' in refused.text


def test_what_is_read_only_for_this_caller_cannot_be_written_either():
    order("B1")
    mcp = client("view_order", "change_order", tools=["get", "update"])
    refused = mcp.call_tool("update_order", {"number": "B1", "note": "mine"}, check=False)
    assert refused.is_error
    assert 'unknown argument "note"; known: ' in refused.text
    assert not mcp.call_tool("update_order", {"number": "B1", "status": "paid"}).is_error
    assert Order.objects.get().note == ""


def test_an_object_that_the_admin_keeps_cannot_be_changed():
    order("B1", status="shipped")
    refused = client(*ALL, tools=EVERY).call_tool(
        "update_order",
        {"number": "B1", "status": "open"},
        check=False,
    )
    assert refused.is_error
    assert Order.objects.get().status == "shipped"


def test_deletion_goes_the_way_of_the_admin():
    buyer = customer()
    order("B1", customer=buyer)
    gone = client(*ALL, tools=EVERY).call_tool("delete_order", {"number": "B1"})
    assert not gone.is_error, gone.text
    buyer.refresh_from_db()
    assert buyer.name == "lost by ada"
    assert [flag for _, _, flag in entries()] == [3]


def test_nobody_deletes_along_what_the_admin_would_not_let_go():
    class LineAdmin(admin.ModelAdmin):
        """Guards the lines."""

    line(order("B1"))
    made = MCPServer("desk")
    made.register_admin(Order, site=site((OrderLine, LineAdmin)), tools=["delete"])
    refused = MCPClient(server=made, user=clerk(*ALL)).call_tool(
        "delete_order", {"number": "B1"}, check=False
    )
    assert refused.is_error
    assert "would be deleted that you may not delete (order line)" in refused.text
    assert Order.objects.exists()
    assert entries() == []


def test_a_moment_that_was_not_sent_keeps_its_microseconds():
    moment = dt.datetime(2026, 1, 1, 10, 30, 15, 123456, tzinfo=dt.UTC)
    order("B1", placed_at=moment)
    mcp = client(*ALL, tools=EVERY)
    assert not mcp.call_tool("update_order", {"number": "B1", "status": "paid"}).is_error
    assert Order.objects.get().placed_at == moment
    sent = {"number": "B1", "placed_at": "2026-01-01T10:30:15Z"}
    assert not mcp.call_tool("update_order", sent).is_error
    assert Order.objects.get().placed_at == moment.replace(microsecond=0)


def test_the_form_of_users_makes_users_who_can_sign_in():
    made = MCPServer("desk")
    made.register_admin(User, site=site((User, UserAdmin)), tools=["create", "update"])
    root = person("root", is_staff=True, is_superuser=True)
    mcp = MCPClient(server=made, user=root)
    secret = "Xy7!kkdoqpw"
    created = mcp.call_tool(
        "create_user", {"username": "bob", "password1": secret, "password2": secret}
    )
    assert not created.is_error, created.text
    assert secret not in str(created.raw)
    assert not mcp.call_tool("update_user", {"username": "bob", "first_name": "Bob"}).is_error
    bob = User.objects.get(username="bob")
    assert bob.first_name == "Bob"
    assert bob.check_password(secret)
    refused = mcp.call_tool("update_user", {"username": "bob", "password": "x"}, check=False)
    assert 'unknown argument "password"' in refused.text


def test_words_for_a_mouse_are_left_out():
    made = MCPServer("desk")
    made.register_admin(Group, site=site((Group, GroupAdmin)), tools=["create"])
    mcp = MCPClient(server=made, user=person("root", is_staff=True, is_superuser=True))
    assert "Control" not in str(mcp.list_tools())


def test_the_form_can_be_narrowed():
    mcp = client(*ALL, tools=["update"], form_fields=["status"])
    assert properties(mcp, "update_order") == ["number", "status", "preview"]


def test_tools_are_for_those_whom_the_admin_lets():
    made = server(tools=EVERY)
    names = [tool["name"] for tool in MCPClient(server=made, user=clerk("view_order")).list_tools()]
    assert names == ["get_order", "list_orders"]


def test_a_form_that_cannot_be_made_is_told_at_registration():
    class Broken(OrderAdmin):
        """Needs what there is not."""

        def get_form(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
            """Fail."""
            raise LookupError(request.session)

    with pytest.raises(ImproperlyConfigured, match=r"Broken.get_form\(\) failed"):
        server(orders=Broken, tools=["update"])


def test_many_keys_are_written_whatever_input_the_admin_has_for_them():
    class ProductAdmin(admin.ModelAdmin):
        """Keys as one text."""

        list_display = ["slug", "name", "tags"]
        raw_id_fields = ["tags", "category"]
        fields = ["name", "tags", "category", "manual"]

    made = MCPServer("desk")
    made.register_admin(Product, site=site((Product, ProductAdmin)), tools=["get", "update"])
    clerks = clerk("view_product", "change_product", "view_tag", "view_category")
    mcp = MCPClient(server=made, user=clerks)
    assert "manual" not in properties(mcp, "update_product")
    ball = product("Ball", slug="ball")
    tags = [Tag.objects.create(word=word) for word in ("red", "round")]
    changed = mcp.call_tool("update_product", {"slug": "ball", "tags": [tag.pk for tag in tags]})
    assert not changed.is_error, changed.text
    assert sorted(ball.tags.values_list("word", flat=True)) == ["red", "round"]
    assert not mcp.call_tool("update_product", {"slug": "ball", "name": "Sphere"}).is_error
    assert ball.tags.count() == 2


@pytest.mark.parametrize("tool", ["update_order", "delete_order"])
def test_an_object_that_the_admin_does_not_open_cannot_be_written(tool):
    order("B1", note="secret")
    mcp = client(*ALL, tools=EVERY)
    refused = mcp.call_tool(tool, {"number": "B1"}, check=False)
    assert refused.is_error
    assert refused.text == mcp.call_tool(tool, {"number": "B9"}, check=False).text.replace(
        "B9", "B1"
    )
    assert Order.objects.exists()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("list_users", {"password__startswith": "pbkdf2"}),
        ("list_users", {"order_by": "password"}),
        ("count_users", {"group_by": "password"}),
        ("count_users", {"max_of": "password"}),
        ("list_users", {"groups__permissions__codename": "x"}),
    ],
)
def test_what_the_admin_does_not_show_is_asked_about_in_no_way(tool, arguments):
    class Careless(UserAdmin):
        """Filters and searches by what nobody should know."""

        list_display = ["username", "password"]
        list_filter = ["password", "is_staff"]
        search_fields = ["username", "password", "email"]
        ordering = ["password"]

    made = MCPServer("desk")
    made.register_admin(User, site=site((User, Careless)), tools=["list", "get", "count"])
    root = person("root", password="pw", is_staff=True, is_superuser=True)
    mcp = MCPClient(server=made, user=root)
    assert "password" not in str([definition["inputSchema"] for definition in mcp.list_tools()])
    assert mcp.call_tool(tool, arguments, check=False).is_error
    rows = mcp.call_tool("list_users", {"search": root.password[:20]}).structured["items"]
    assert rows == []
    assert "pbkdf2" not in str(mcp.call_tool("get_user", {"username": "root"}).raw)
