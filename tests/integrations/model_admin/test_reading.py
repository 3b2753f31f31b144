"""Which rows and fields a `ModelAdmin` shows to whom, and columns that are code."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.test.utils import override_script_prefix
from django.urls import reverse
from django.utils.html import format_html

from mcp_django import MCPServer
from mcp_django.checks import components
from mcp_django.integrations.admin_actions import admin_request
from mcp_django.integrations.site_requests import superuser_context
from mcp_django.test import MCPClient
from tests.integrations.model_admin.desk import OrderAdmin, clerk, client, server, site
from tests.integrations.models.building import order
from tests.sites.shop.models import Order, Tag

pytestmark = pytest.mark.django_db


def declaration(made: MCPServer, model: Any = Order) -> Any:
    (source,) = made.declarations_of(model)
    return source


def schema(mcp: MCPClient, tool: str) -> dict[str, Any]:
    (definition,) = [candidate for candidate in mcp.list_tools() if candidate["name"] == tool]
    properties: dict[str, Any] = definition["inputSchema"]["properties"]
    return properties


# Who may -------------------------------------------------------------------------------------


def test_rows_that_the_admin_does_not_list_do_not_exist():
    order("A1")
    order("A2", note="hidden")
    mcp = client()
    rows = mcp.call_tool("list_orders").structured["items"]
    assert [row["number"] for row in rows] == ["A1"]
    assert mcp.call_tool("get_order", {"number": "A2"}, check=False).is_error


def test_an_object_that_the_admin_does_not_open_answers_like_none():
    order("A1", note="secret")
    mcp = client()
    hidden = mcp.call_tool("get_order", {"number": "A1"}, check=False)
    assert hidden.is_error
    assert hidden.text == mcp.call_tool("get_order", {"number": "A9"}, check=False).text.replace(
        "A9", "A1"
    )


def test_where_the_admin_decides_about_objects_lists_leave_out_what_it_does_not_open():
    for number in range(3):
        order(f"A{number}")
        order(f"S{number}", note="secret")
    mcp = client(uri="desk://orders/{number}", tools=["list", "count"])
    first = mcp.call_tool("list_orders", {"limit": 2, "order_by": "number"}).structured
    assert [row["number"] for row in first["items"]] == ["A0", "A1"]
    # The number of rows would reveal that some are hidden.
    assert "total" not in first
    more = {"limit": 2, "order_by": "number", "cursor": first["next_cursor"]}
    second = mcp.call_tool("list_orders", more).structured
    assert [row["number"] for row in second["items"]] == ["A2"]
    assert sorted(resource["name"] for resource in mcp.list_resources()) == ["A0", "A1", "A2"]
    assert mcp.call_tool("count_orders").structured == {"count": 3}


def test_where_the_admin_decides_about_the_model_lists_are_counted():
    class TagAdmin(admin.ModelAdmin):
        """With nothing of its own."""

        list_display = ["word"]

    Tag.objects.create(word="red")
    made = MCPServer("desk")
    made.register_admin(Tag, site=site((Tag, TagAdmin)), tools=["list", "count"])
    mcp = MCPClient(server=made, user=clerk("view_tag"))
    assert mcp.call_tool("list_tags").structured == {"items": [{"word": "red"}], "total": 1}
    assert mcp.call_tool("count_tags").structured == {"count": 1}


def test_the_generic_set_goes_by_the_admin_too():
    order("A1")
    order("A2", note="hidden")
    made = MCPServer("desk", generic=True)
    made.register_admin(Order, site=site(), actions=["quiet"])
    mcp = MCPClient(server=made, user=clerk("view_order"))
    page = mcp.call_tool("search_records", {"model": "order", "search": "A"}).structured
    assert [row["number"] for row in page["items"]] == ["A1"]
    assert "quiet_orders" in [tool["name"] for tool in mcp.list_tools()]


def test_only_staff_with_the_permission_sees_the_tools():
    made = server()
    assert MCPClient(server=made, user=clerk(username="nobody")).list_tools() == []
    outsider = clerk("view_order", username="customer", is_staff=False)
    assert MCPClient(server=made, user=outsider).list_tools() == []
    insider = MCPClient(server=made, user=clerk("view_order", username="clerk"))
    assert [tool["name"] for tool in insider.list_tools()] == ["get_order", "list_orders"]


def test_an_admin_without_addresses_and_without_a_session_can_be_asked():
    seen: list[tuple[str, Any, bool]] = []

    class Asked(OrderAdmin):
        """Remembers who asked."""

        def get_queryset(self, request: HttpRequest) -> Any:
            """Record the request."""
            seen.append((request.path, request.user, hasattr(request, "session")))
            return super().get_queryset(request)

    mcp = client(orders=Asked)
    mcp.call_tool("list_orders")
    assert {(path, str(user), session) for path, user, session in seen} == {("/", "ada", False)}


@pytest.mark.parametrize("tools", [["list"], ["list", "get", "create", "update", "delete"]])
def test_the_urlconf_is_not_loaded_while_tools_are_declared(settings, tools):
    # It may be the URLconf that imports the module with the declaration.
    urlconf = settings.ROOT_URLCONF
    settings.ROOT_URLCONF = "tests.integrations.model_admin.urls_that_are_still_loading"
    matches: list[Any] = []

    class Asked(OrderAdmin):
        """Reads the URL of its request."""

        def get_queryset(self, request: HttpRequest) -> Any:
            """Record its URL."""
            matches.append((request.path, request.get_full_path(), request.resolver_match))
            return super().get_queryset(request)

    mcp = client(orders=Asked, tools=tools, actions=["mark_paid"])
    settings.ROOT_URLCONF = urlconf
    mcp.call_tool("list_orders")
    assert {(path, full) for path, full, _ in matches} == {("/", "/")}


def test_the_request_of_an_admin_with_addresses_is_that_of_its_list():
    class GroupAdmin(admin.ModelAdmin):
        """Of the site's own admin, which has URLs."""

    mcp_admin = GroupAdmin(Group, admin.site)
    request = admin_request(superuser_context(MCPServer("desk")), mcp_admin)
    path = reverse("admin:auth_group_changelist")
    assert (request.path, request.path_info, request.META["PATH_INFO"]) == (path, path, path)
    assert request.resolver_match.url_name == "auth_group_changelist"
    assert request.build_absolute_uri().endswith(path)
    with override_script_prefix("/app/"):
        request = admin_request(superuser_context(MCPServer("desk")), mcp_admin)
        assert (request.path, request.path_info) == (f"/app{path}", path)


# As resources --------------------------------------------------------------------------------


def test_with_a_uri_the_objects_are_resources_too():
    order("A1")
    order("A2", note="hidden")
    mcp = client(uri="desk://orders/{number}")
    assert [resource["uri"] for resource in mcp.list_resources()] == ["desk://orders/A1"]
    (contents,) = mcp.read_resource("desk://orders/A1")
    assert '"number":"A1"' in contents["text"]


# What is code --------------------------------------------------------------------------------


class Loud(OrderAdmin):
    """Columns that are code, of the admin and of the model."""

    @admin.display(description="Who & where")
    def who(self, obj: Order) -> Any:
        """Follow a relation, and give HTML."""
        return format_html("<b>{}</b>", obj.customer.name)

    @admin.display(boolean=True)
    def is_large(self, obj: Order) -> bool:
        """Look at a column that is not shown."""
        return obj.margin > 10

    def passport(self, obj: Order) -> Any:
        """Have nothing to show."""
        return obj.customer.passport.number

    def when(self, obj: Order) -> dt.datetime:
        """Give a moment."""
        return obj.placed_at


def test_a_column_that_is_code_is_shown_when_it_is_named():
    order("A1", margin=11, placed_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    mcp = client(orders=Loud, fields=["number", "who", "is_large", "passport", "when", "shout"])
    assert mcp.call_tool("get_order", {"number": "A1"}).structured == {
        "number": "A1",
        "who": "Ada",
        "is_large": True,
        "passport": None,
        "when": "2026-01-01T00:00:00Z",
        "shout": "A1",
    }
    rows = mcp.call_tool("list_orders").structured["items"]
    assert rows[0]["who"] == "Ada"
    (tool,) = [candidate for candidate in mcp.list_tools() if candidate["name"] == "get_order"]
    assert tool["outputSchema"]["properties"]["who"] == {"description": "Who & where"}


def test_code_looks_at_any_column_without_another_statement(django_assert_max_num_queries):
    mcp = client(orders=Loud, fields=["number", "is_large"])

    def statements() -> int:
        with django_assert_max_num_queries(100) as captured:
            assert not mcp.call_tool("list_orders").is_error
        return len(captured)

    for number in range(3):
        order(f"A{number}")
    # The first call loads the permissions of the caller.
    statements()
    few = statements()
    for number in range(20):
        order(f"B{number}")
    assert statements() == few


@pytest.mark.parametrize("name", ["delete", "save", "get_queryset", "_meta", "nothing"])
def test_code_of_every_model_and_of_every_admin_is_no_field(name):
    with pytest.raises(ImproperlyConfigured, match=f"no field '{name}'"):
        server(fields=["number", name])


def test_code_is_neither_filtered_nor_ordered_by():
    for option in ("filter_fields", "ordering_fields", "search_fields"):
        with pytest.raises(ImproperlyConfigured, match="no field 'shout'"):
            server(fields=["number", "shout"], **{option: ["shout"]})


# What the checks say -------------------------------------------------------------------------


def test_the_system_check_tells_what_was_left_out():
    made = server()
    messages = [message for message in components.check_admin_sources(None) if message.obj is made]
    assert {message.id for message in messages} == {"mcp_django.I001"}
    assert len(messages) == 5
    assert all(message.hint for message in messages)
    texts = [message.msg for message in messages]
    words = "OrderAdmin of shop.Order: list_filter contains 'Large', which has no counterpart."
    assert words in texts
