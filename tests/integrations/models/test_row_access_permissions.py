"""Who may see a model's tools, its rows and its single objects."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.backends import BaseBackend
from django.test import override_settings

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny, IsAuthenticated
from mcp_django.exceptions import MCPError
from mcp_django.integrations.models.declaration import ModelTools
from mcp_django.test import MCPClient
from tests.integrations.models.building import holder, order, reader, serve, tools
from tests.kit.drivers import message
from tests.kit.servers import person, post, token_for
from tests.sites.shop.models import Order

pytestmark = pytest.mark.django_db

BACKENDS = ["django.contrib.auth.backends.ModelBackend", f"{__name__}.OwnOrders"]


class OwnOrders(BaseBackend):
    """Lets people view the orders whose note is their name."""

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        return perm == "shop.view_order" and obj is not None and obj.note == user_obj.username


class Orders(ModelTools[Order]):
    """Orders of the shop."""

    fields = ["number", "status"]
    tools = ["list", "get", "count"]


def names(client: MCPClient) -> list[str]:
    return sorted(tool["name"] for tool in client.list_tools())


def listed(client: MCPClient, **arguments: Any) -> list[str]:
    answer = client.call_tool("list_orders", arguments).structured
    return [row["number"] for row in answer["items"]]


def test_the_permission_to_view_the_model_is_needed():
    server = MCPServer("shop", permission=IsAuthenticated)
    server.register(Order, Orders)
    order("A1")
    client = reader(server, holder("view_order"))
    assert names(client) == ["count_orders", "get_order", "list_orders"]
    assert listed(client) == ["A1"]
    stranger = reader(server, holder("change_order", username="bob"))
    assert names(stranger) == []
    for tool in ("list_orders", "get_order", "count_orders"):
        with pytest.raises(MCPError, match=f"No tool named '{tool}'"):
            stranger.call_tool(tool)
    inactive = holder("view_order", username="eve")
    inactive.is_active = False
    assert names(reader(server, inactive)) == []


def test_an_anonymous_caller_of_an_open_server_is_asked_for_credentials():
    from mcp_django.exceptions import AuthenticationRequired

    server = MCPServer("shop", permission=AllowAny)
    server.register(Order, Orders)
    assert names(reader(server)) == []
    with pytest.raises(AuthenticationRequired):
        reader(server).call_tool("list_orders")


def test_a_permission_of_the_class_replaces_that_of_the_model():
    order("A1")
    server = serve(Order, tools(fields=["number"], permission=IsAuthenticated))
    assert listed(reader(server, person())) == ["A1"]
    assert names(reader(server)) == []
    assert listed(reader(serve(Order, fields=["number"]))) == ["A1"]


def test_scopes_of_the_class_are_those_of_its_tools():
    server = serve(Order, fields=["number"], scopes=["orders:read"])
    assert server.tools["list_orders"].scopes == ("orders:read",)


def test_has_permission_is_the_last_word():
    class OnlyAda(Orders):
        permission = AllowAny

        def has_permission(self, ctx: Any, action: Any, obj: Any = None) -> bool:
            return action == "view" and ctx.user.get_username() == "ada"

    server = serve(Order, OnlyAda)
    assert len(names(reader(server, person("ada")))) == 3
    assert names(reader(server, person("bob"))) == []
    assert names(reader(server)) == []


@override_settings(AUTHENTICATION_BACKENDS=BACKENDS)
def test_a_backend_for_objects_decides_about_each_of_them():
    server = MCPServer("shop", permission=IsAuthenticated)
    server.register(Order, Orders)
    for number in range(9):
        order(f"A{number}", note="ada" if number % 3 == 0 else "bob")
    client = reader(server, person("ada"))
    assert names(client) == ["count_orders", "get_order", "list_orders"]
    assert client.call_tool("count_orders").structured == {"count": 3}
    answer = client.call_tool("list_orders").structured
    assert answer == {"items": [{"number": f"A{number}", "status": "open"} for number in (0, 3, 6)]}
    first = client.call_tool("list_orders", {"limit": 2}).structured
    assert [row["number"] for row in first["items"]] == ["A0", "A3"]
    assert listed(client, limit=2, cursor=first["next_cursor"]) == ["A6"]
    assert client.call_tool("get_order", {"number": "A3"}).structured["number"] == "A3"
    hidden = client.call_tool("get_order", {"number": "A1"}, check=False)
    unknown = client.call_tool("get_order", {"number": "Z1"}, check=False)
    assert hidden.text.replace("A1", "Z1") == unknown.text
    assert listed(reader(server, person("eve"))) == []
    everything = reader(server, holder("view_order", username="boss"))
    assert len(listed(everything)) == 9
    assert everything.call_tool("count_orders").structured == {"count": 9}


def test_without_such_a_backend_no_object_is_asked_about():
    server = MCPServer("shop", permission=IsAuthenticated)
    server.register(Order, Orders)
    order("A1", note="ada")
    assert names(reader(server, person("ada"))) == []


# The row gate ---------------------------------------------------------------------------------


class Gated(Orders):
    permission = AllowAny
    filter_fields = ["status"]

    def get_queryset(self, ctx: Any) -> Any:
        return super().get_queryset(ctx).filter(customer__user=ctx.user)


def test_the_row_gate_knows_the_caller():
    ada, bob = person("ada"), person("bob")
    mine, other = order("A1"), order("B1")
    for made, user in ((mine, ada), (other, bob)):
        made.customer.user = user
        made.customer.save()
    server = serve(Order, Gated)
    for user, expected in ((ada, ["A1"]), (bob, ["B1"])):
        client = reader(server, user)
        assert listed(client) == expected
        assert client.call_tool("list_orders").structured["total"] == 1
        assert client.call_tool("count_orders").structured == {"count": 1}


@pytest.mark.parametrize(
    "gate",
    [
        lambda rows: rows.filter(lines__quantity__gte=1),
        lambda rows: rows.filter(lines__quantity__gte=1).distinct(),
        lambda rows: rows.filter(number="A1") | rows.filter(lines__quantity=2),
        lambda rows: rows.order_by("-margin")[:1],
        lambda rows: rows.order_by().filter(number="A1").union(rows.order_by().filter(note="x")),
        lambda rows: rows.filter(number="A1").select_related("customer").only("status"),
        lambda rows: rows.filter(number="A1").prefetch_related("lines__product"),
        lambda rows: rows.filter(number="A1").defer("number").order_by("?"),
        lambda rows: rows.exclude(number="B1"),
        lambda rows: rows.extra(where=["number = 'A1'"]),
    ],
)
def test_any_query_can_be_a_row_gate(gate):
    from tests.integrations.models.building import line

    class Odd(Orders):
        permission = AllowAny
        fields = ["number", "lines", "customer__name"]
        filter_fields = ["number"]

        def get_queryset(self, ctx: Any) -> Any:
            return gate(super().get_queryset(ctx))

    made = order("A1", margin=9)
    line(made, quantity=2), line(made, quantity=2)
    order("B1")
    client = reader(serve(Order, Odd))
    answer = client.call_tool("list_orders", {"limit": 1}).structured
    assert ([row["number"] for row in answer["items"]], answer["total"]) == (["A1"], 1)
    assert "next_cursor" not in answer
    assert listed(client, number="A1") == ["A1"]
    assert listed(client, number="B1") == []
    assert client.call_tool("count_orders").structured == {"count": 1}
    assert client.call_tool("get_order", {"number": "A1"}).structured["number"] == "A1"


# Over HTTP ------------------------------------------------------------------------------------


def test_a_model_is_listed_over_http():
    from mcp_django import mcp

    mcp.register(Order, Orders)
    try:
        order("A1")
        user = holder("view_order")
        _, plaintext = token_for(user)
        body = message("tools/call", {"name": "list_orders", "arguments": {}})
        response = post("/mcp", body, token=plaintext)
        assert response.status_code == 200
        assert response.json()["result"]["structuredContent"] == {
            "items": [{"number": "A1", "status": "open"}],
            "total": 1,
        }
    finally:
        mcp.unregister(Order)
    assert "list_orders" not in mcp.tools
