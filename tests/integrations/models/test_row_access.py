"""A class whose `has_permission` decides about each object: denied objects are in no answer."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django import Context, MCPServer, mcp
from mcp_django.auth.permissions import AllowAny
from mcp_django.integrations.models.declaration import ModelTools
from mcp_django.test import MCPClient
from tests.integrations.models.building import customer, line, order, product, reader
from tests.kit.drivers import message
from tests.kit.servers import person, post, token_for
from tests.sites.shop.models import Customer, Order, OrderLine, Passport

pytestmark = pytest.mark.django_db


class Own(ModelTools[Any]):
    """Everybody may view the model, and of its rows those that are theirs."""

    permission = AllowAny

    def has_permission(self, ctx: Context, action: Any, obj: Any = None) -> bool:
        return obj is None or self.owner(obj) == ctx.user.pk

    def owner(self, obj: Any) -> Any:
        return obj.user_id


class OwnOrders(Own):
    fields = ["number", "status", "total", "placed_at", "customer", "lines", "note"]
    tools = ["list", "get", "count"]
    filter_fields = ["status", "total", "lines"]
    search_fields = ["number", "note"]
    ordering_fields = ["total"]

    def owner(self, obj: Any) -> Any:
        return obj.customer.user_id


@pytest.fixture
def ada():
    """Return a user with orders 0, 2 and 4; the other orders belong to another user."""
    user, other = person("ada"), person("bob")
    buyers = [customer(user=owner) for owner in (user, other)]
    for number in range(6):
        made = order(f"A{number}", customer=buyers[number % 2], total=number, note=f"n{number}")
        line(made, quantity=number)
    return user


def serve(*registered: tuple[Any, Any]) -> MCPServer:
    server = MCPServer("shop", permission=AllowAny)
    for model, cls in registered:
        server.register(model, cls)
    return server


def listed(client: MCPClient, tool: str = "list_orders", **arguments: Any) -> list[dict[str, Any]]:
    result = client.call_tool(tool, arguments)
    assert not result.is_error, result.text
    rows: list[dict[str, Any]] = result.structured["items"]
    return rows


def numbers(client: MCPClient, **arguments: Any) -> list[str]:
    return [row["number"] for row in listed(client, **arguments)]


# Lists ----------------------------------------------------------------------------------------


def test_a_row_that_is_denied_is_not_listed(ada):
    client = reader(serve((Order, OwnOrders)), ada)
    answer = client.call_tool("list_orders").structured
    assert [row["number"] for row in answer["items"]] == ["A0", "A2", "A4"]
    # The number of rows would reveal that there are others.
    assert set(answer) == {"items"}
    assert numbers(client, search="A1") == []
    assert numbers(client, search="n") == ["A0", "A2", "A4"]
    assert numbers(client, total__gte=3) == ["A4"]
    assert numbers(client, order_by="-total") == ["A4", "A2", "A0"]
    assert numbers(reader(serve((Order, OwnOrders)), person("eve"))) == []


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_skip_what_is_denied_and_promise_no_more_than_there_is(ada, limit):
    client = reader(serve((Order, OwnOrders)), ada)
    seen, page = [], client.call_tool("list_orders", {"limit": limit}).structured
    while True:
        assert 0 < len(page["items"]) <= limit
        seen += [row["number"] for row in page["items"]]
        if "next_cursor" not in page:
            break
        arguments = {"limit": limit, "cursor": page["next_cursor"]}
        page = client.call_tool("list_orders", arguments).structured
    assert seen == ["A0", "A2", "A4"]


# Counts ---------------------------------------------------------------------------------------


def test_what_is_denied_is_not_counted_or_added_up(ada):
    client = reader(serve((Order, OwnOrders)), ada)
    arguments = {
        "group_by": "status",
        **{f"{kind}_of": "total" for kind in ("sum", "avg", "min", "max")},
    }
    measures = {"sum": "6.00", "avg": "2.0000", "min": "0.00", "max": "4.00"}
    assert client.call_tool("count_orders", arguments).structured == {
        "count": 3,
        **measures,
        "groups": [{"group": "open", "count": 3, **measures}],
    }
    assert client.call_tool("count_orders", {"search": "A1"}).structured == {"count": 0}
    grouped = client.call_tool("count_orders", {"group_by": "customer"}).structured["groups"]
    assert [group["count"] for group in grouped] == [3]
    nobody = reader(serve((Order, OwnOrders)), person("eve"))
    assert nobody.call_tool("count_orders", {"max_of": "total"}).structured == {
        "count": 0,
        "max": None,
    }


def test_a_count_that_would_ask_about_too_many_says_how_to_narrow(ada, monkeypatch):
    monkeypatch.setattr("mcp_django.integrations.models.row_access.MAX_CHECKED_OBJECTS", 5)
    client = reader(serve((Order, OwnOrders)), ada)
    refused = client.call_tool("count_orders", check=False)
    assert refused.is_error
    assert refused.text.endswith("and more than 5 match; add filters so that fewer match.")
    assert client.call_tool("count_orders", {"total__gte": 1}).structured == {"count": 2}


# Related --------------------------------------------------------------------------------------


class Customers(Own):
    fields = ["id"]


class Orders(ModelTools[Order]):
    permission = AllowAny
    fields = ["number", "customer", "lines"]
    tools = ["list", "count"]
    filter_fields = ["lines", "customer"]


def test_the_label_of_what_is_denied_is_not_told(ada):
    client = reader(serve((Order, Orders), (Customer, Customers)), ada)
    shown = ["label" in row["customer"] for row in listed(client)]
    assert shown == [True, False] * 3
    groups = client.call_tool("count_orders", {"group_by": "customer"}).structured["groups"]
    assert sorted("label" in group["group"] for group in groups) == [False, True]


class Lines(Own):
    fields = ["id"]

    def owner(self, obj: OrderLine) -> Any:
        return obj.order.customer.user_id


def test_what_is_denied_is_no_entry_of_a_relation(ada):
    client = reader(serve((Order, Orders), (OrderLine, Lines)), ada)
    assert [len(row["lines"]) for row in listed(client)] == [1, 0] * 3
    keys = list(OrderLine.objects.order_by("pk").values_list("pk", flat=True))
    assert numbers(client, lines=keys[0]) == ["A0"]
    assert numbers(client, lines=keys[1]) == []
    assert numbers(client, lines__in=keys) == ["A0", "A2", "A4"]


def test_more_entries_are_promised_only_if_the_caller_may_see_them():
    user = person("ada")
    bought = product()
    for number, hidden in (("A1", 150), ("A2", 0)):
        made = order(number, customer=customer(user=user))
        rows = [OrderLine(order=made, product=bought, quantity=0) for _ in range(hidden)]
        rows += [OrderLine(order=made, product=bought, quantity=1) for _ in range(3)]
        OrderLine.objects.bulk_create(rows)

    class Sold(Lines):
        def has_permission(self, ctx: Context, action: Any, obj: Any = None) -> bool:
            return obj is None or obj.quantity == 1

    first, second = listed(reader(serve((Order, Orders), (OrderLine, Sold)), user))
    assert (len(first["lines"]), len(second["lines"])) == (3, 3)
    assert first.keys() == second.keys() == {"number", "customer", "lines"}


def test_what_is_denied_does_not_point_here():
    class Passports(Own):
        fields = ["id"]

        def owner(self, obj: Passport) -> Any:
            return obj.customer.user_id

    class People(ModelTools[Customer]):
        permission = AllowAny
        fields = ["id", "passport"]
        filter_fields = ["passport"]

    user = person("ada")
    mine, other = customer(user=user), customer()
    passports = [Passport.objects.create(customer=holder, country="DE") for holder in (mine, other)]
    client = reader(serve((Customer, People), (Passport, Passports)), user)
    shown = listed(client, "list_customers")
    assert [row["passport"] is None for row in shown] == [False, True]
    for key, expected in zip(passports, ([mine.pk], []), strict=True):
        rows = listed(client, "list_customers", passport=key.pk)
        assert [row["id"] for row in rows] == expected
    assert len(listed(client, "list_customers", passport__isnull=False)) == 1
    assert len(listed(client, "list_customers", passport__isnull=True)) == 1


def test_several_registrations_of_a_model_show_what_one_of_them_allows(ada):
    class Second(Own):
        fields = ["id"]
        name, plural = "second", "seconds"

        def owner(self, obj: OrderLine) -> Any:
            return None

        def has_permission(self, ctx: Context, action: Any, obj: Any = None) -> bool:
            return obj is None or obj.quantity == 3

    client = reader(serve((Order, Orders), (OrderLine, Lines), (OrderLine, Second)), ada)
    assert [len(row["lines"]) for row in listed(client)] == [1, 0, 1, 1, 1, 0]


# Over HTTP ------------------------------------------------------------------------------------


def test_what_is_denied_is_not_listed_over_http(ada):
    mcp.register(Order, OwnOrders)
    try:
        body = message("tools/call", {"name": "list_orders", "arguments": {"search": "A1 A0"}})
        _, plaintext = token_for(ada)
        empty = post("/mcp", body, token=plaintext).json()["result"]["structuredContent"]
        body["params"]["arguments"] = {}
        shown = post("/mcp", body, token=plaintext).json()["result"]["structuredContent"]
    finally:
        mcp.unregister(Order)
    assert empty == {"items": []}
    assert [row["number"] for row in shown["items"]] == ["A0", "A2", "A4"]
