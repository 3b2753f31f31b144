"""A model that was exposed in the admin, as a client sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db.models import QuerySet

from mcp_django import Context, MCPServer, ModelTools
from mcp_django.auth.permissions import AllowAny, IsAuthenticated
from mcp_django.exceptions import AccessRefused, MCPError
from mcp_django.integrations.models.declaration import ModelResource
from mcp_django.models import Component
from mcp_django.test import MCPClient
from tests.integrations.models.building import customer, order
from tests.kit.drivers import message
from tests.kit.servers import post, real_client, token_for
from tests.overrides.exposures.rows import ORDERS, expose, viewer
from tests.sites.shop.models import Order

pytestmark = pytest.mark.django_db


def names(server: MCPServer, user: Any) -> list[str]:
    return [tool["name"] for tool in MCPClient(server=server, user=user).list_tools()]


def numbers(result: Any) -> list[str]:
    return [row["number"] for row in result.structured["items"]]


def test_it_is_listed_filtered_searched_ordered_and_paged(server):
    expose()
    for number, status, total in (("A1", "open", 3), ("A2", "paid", 1), ("B3", "open", 2)):
        order(number, status=status, total=total)
    client = MCPClient(server=server, user=viewer())
    assert [tool["name"] for tool in client.list_tools()] == [
        "count_orders",
        "get_order",
        "list_orders",
    ]
    page = client.call_tool("list_orders", {"order_by": "total"})
    assert (numbers(page), page.structured["total"]) == (["A2", "B3"], 3)
    cursor = page.structured["next_cursor"]
    following = client.call_tool("list_orders", {"order_by": "total", "cursor": cursor})
    assert numbers(following) == ["A1"]
    assert numbers(client.call_tool("list_orders", {"status": "paid"})) == ["A2"]
    assert numbers(client.call_tool("list_orders", {"search": "B"})) == ["B3"]
    assert client.call_tool("count_orders", {"status": "open"}).structured == {"count": 2}
    record = client.call_tool("get_order", {"number": "B3"}).structured
    assert set(record) == {"number", "status", "total", "customer"}


def test_what_is_not_among_the_fields_is_reached_by_nothing(server):
    expose(options={**ORDERS, "uri": "shop://orders/{number}"})
    secret = order("A1", internal_note="hush-hush", margin=77)
    client = real_client(server=server, user=viewer())
    answers = [
        client.call_tool("list_orders").raw,
        client.call_tool("get_order", {"number": "A1"}).raw,
        client.read_resource("shop://orders/A1"),
        client.list_tools(),
        client.list_resources(),
        client.list_resource_templates(),
    ]
    for name in ("internal_note", "margin", "margin__gt", "internal_note__icontains", "id", "pk"):
        answers.append(client.call_tool("list_orders", {name: "7"}, check=False).raw)
        answers.append(client.call_tool("list_orders", {"order_by": name}, check=False).raw)
        answers.append(client.call_tool("count_orders", {"group_by": name}, check=False).raw)
        answers.append(client.call_tool("get_order", {name: "7"}, check=False).raw)
    answers.append(client.call_tool("list_orders", {"search": "hush"}).raw["structuredContent"])
    completions = client.complete("shop://orders/{number}", "number", "A")
    assert completions == ["A1"]
    assert client.complete("shop://orders/{number}", "number", "hush") == []
    text = repr(answers)
    assert "hush-hush" not in text
    assert "77" not in text
    assert secret.customer.email not in text


def test_who_may_not_view_the_model_does_not_know_of_it(server):
    expose()
    stranger = viewer("view_product", username="bob")
    assert names(server, stranger) == []
    with pytest.raises(MCPError) as refused:
        MCPClient(server=server, user=stranger).call_tool("list_orders")
    with pytest.raises(MCPError) as unknown:
        MCPClient(server=server, user=stranger).call_tool("list_ghosts")
    assert str(refused.value).replace("orders", "") == str(unknown.value).replace("ghosts", "")
    assert refused.value.code == unknown.value.code
    with pytest.raises(AccessRefused):
        MCPClient(server=server).call_tool("list_orders")


def test_a_permission_that_is_taken_away_closes_it_at_once(server):
    expose()
    user = viewer()
    assert "list_orders" in names(server, user)
    user.user_permissions.clear()
    assert names(server, type(user).objects.get(pk=user.pk)) == []


@pytest.mark.parametrize(
    "row",
    [
        {"groups": ["buyers"]},
        {"permissions": ["shop.change_order"]},
        {"groups": ["gone"]},
        {"permissions": ["shop.no_such"]},
    ],
    ids=repr,
)
def test_what_the_row_asks_for_is_asked_beside_the_permission(server, row):
    expose(**row)
    user = viewer()
    assert names(server, user) == []
    user.groups.add(Group.objects.create(name="buyers"))
    fresh = type(user).objects.get(pk=user.pk)
    assert bool(names(server, fresh)) == (row == {"groups": ["buyers"]})


def test_a_scope_of_the_row_is_asked_for(server):
    expose(scopes=["orders:read"])
    user = viewer()
    order("A1")
    with pytest.raises(AccessRefused, match="orders:read"):
        MCPClient(server=server, user=user, scopes=["mcp"]).call_tool("list_orders")
    client = MCPClient(server=server, user=user, scopes=["mcp", "orders:read"])
    assert numbers(client.call_tool("list_orders")) == ["A1"]


def test_one_that_is_switched_off_is_unknown(server):
    row = expose()
    user = viewer()
    assert "list_orders" in names(server, user)
    row.is_enabled = False
    row.save()
    assert names(server, user) == []
    with pytest.raises(MCPError):
        MCPClient(server=server, user=user).call_tool("list_orders")


def test_each_server_has_its_own(server):
    other = MCPServer("shop", permission=AllowAny)
    expose()
    expose(server="shop", name="sale", options={"fields": ["number"], "operations": ["get"]})
    user = viewer()
    assert names(server, user) == ["count_orders", "get_order", "list_orders"]
    assert names(other, user) == ["get_sale"]


def test_what_code_declares_of_the_same_name_is_offered_instead(server):
    @server.tool(read_only=True)
    def list_orders() -> str:
        """Say where they are."""
        return "in code"

    expose()
    client = MCPClient(server=server, user=viewer())
    assert client.call_tool("list_orders").text == "in code"
    assert "get_order" in names(server, viewer(username="bob"))


def test_an_override_narrows_its_components_like_those_of_code(server):
    expose()
    Component.objects.create(server="desk", kind="tool", key="list_orders", is_enabled=False)
    Component.objects.create(server="desk", kind="tool", key="get_order", title="One order")
    tools = {tool["name"]: tool for tool in MCPClient(server=server, user=viewer()).list_tools()}
    assert set(tools) == {"count_orders", "get_order"}
    assert tools["get_order"]["title"] == "One order"


def test_over_http_it_is_the_same():
    expose(server="default")
    order("A1", internal_note="hush")
    user = viewer()
    _, token = token_for(user)

    def ask(method: str, **params: Any) -> dict[str, Any]:
        response: dict[str, Any] = json.loads(
            post("/mcp", message(method, params), token=token).content
        )
        return response

    names = [tool["name"] for tool in ask("tools/list")["result"]["tools"]]
    assert {"list_orders", "get_order", "count_orders"} <= set(names)
    answer = ask("tools/call", name="list_orders", arguments={"status": "open"})
    (row,) = answer["result"]["structuredContent"]["items"]
    assert row["number"] == "A1"
    refused = ask("tools/call", name="list_orders", arguments={"internal_note": "hush"})
    assert refused["result"]["isError"]
    assert "hush" not in json.dumps(answer)
    user.user_permissions.clear()
    hidden = ask("tools/call", name="list_orders", arguments={})
    unknown = ask("tools/call", name="list_ghosts", arguments={})
    assert hidden["error"]["code"] == unknown["error"]["code"] == -32602


# Never wider than code ----------------------------------------------------------------------------


def test_the_row_gate_of_code_holds_for_it_too(server):
    class Own(ModelTools[Order]):
        fields = ["number"]
        name = "own"
        plural = "owns"
        permission = IsAuthenticated

        def get_queryset(self, ctx: Context) -> QuerySet[Order]:
            return super().get_queryset(ctx).filter(status="open")

    server.register(Order, Own)
    expose(options={**ORDERS, "uri": "shop://orders/{number}"})
    order("A1", status="open")
    order("A2", status="paid")
    client = MCPClient(server=server, user=viewer())
    assert numbers(client.call_tool("list_orders")) == ["A1"]
    assert client.call_tool("count_orders").structured == {"count": 1}
    assert client.call_tool("get_order", {"number": "A2"}, check=False).is_error
    with pytest.raises(MCPError):
        client.read_resource("shop://orders/A2")
    assert client.complete("shop://orders/{number}", "number", "A") == ["A1"]


def test_what_code_decides_of_each_object_holds_for_it_too(server):
    class Own(ModelResource[Order]):
        fields = ["number"]
        uri = "own://{number}"

        def has_permission(self, ctx: Context, action: Any, obj: Order | None = None) -> bool:
            return obj is None or obj.number != "A2"

    server.register(Order, Own)
    expose()
    order("A1")
    order("A2")
    client = MCPClient(server=server, user=viewer())
    assert numbers(client.call_tool("list_orders")) == ["A1"]
    assert client.call_tool("get_order", {"number": "A2"}, check=False).is_error


def test_related_columns_need_the_permission_for_their_model(server):
    expose(options={"fields": ["number", "customer__name"]})
    order("A1", customer=customer("Ada"))
    assert names(server, viewer()) == []
    both = viewer("view_order", "view_customer", username="bob")
    result = MCPClient(server=server, user=both).call_tool("get_order", {"number": "A1"})
    assert result.structured == {"number": "A1", "customer": {"name": "Ada"}}


def test_a_write_needs_its_own_permission_and_can_be_previewed(server):
    options = {"fields": ["number", "status"], "operations": ["get", "update", "delete"]}
    expose(options=options)
    order("A1", status="open")
    assert names(server, viewer()) == ["get_order"]
    user = viewer("view_order", "change_order", username="bob")
    client = MCPClient(server=server, user=user)
    assert names(server, user) == ["get_order", "update_order"]
    change = {"number": "A1", "status": "paid"}
    client.call_tool("update_order", {**change, "preview": True})
    assert Order.objects.get().status == "open"
    client.call_tool("update_order", change)
    assert Order.objects.get().status == "paid"


def test_a_call_takes_a_bounded_number_of_queries(server, django_assert_max_num_queries):
    for number in range(5):
        expose(name=f"kind{number}", options={**ORDERS, "plural": f"kinds{number}"})
    order("A1")
    client = MCPClient(server=server, user=viewer())
    # In the transaction of a test, the rows are read for each request: 4 of these queries.
    with django_assert_max_num_queries(14):
        client.call_tool("list_kinds3")
