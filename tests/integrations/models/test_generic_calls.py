"""One set of tools for many models: what they return, and which errors they report."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.forms import CharField, ModelForm

from mcp_django import Context, MCPServer, ModelTools
from mcp_django.auth.permissions import AllowAny
from mcp_django.test import MCPClient
from tests.integrations.models.building import customer, holder, order
from tests.integrations.models.generic_shop import ORDERS, shop, tools
from tests.sites.shop.models import Category, Order, Product, Tag

pytestmark = pytest.mark.django_db


# What it does --------------------------------------------------------------------------------


def test_it_answers_what_the_models_own_tools_answer():
    for number in range(5):
        order(f"A{number}", total=Decimal(number), status="paid" if number % 2 else "open")
    own = MCPClient(server=shop(generic=False, tools=["list", "get", "count"]))
    generic = MCPClient(server=shop(tools=["list", "get", "count"]))
    listed = own.call_tool("list_orders", {"total__gte": "1", "order_by": "-total", "search": "A"})
    result = generic.call_tool(
        "search_records",
        {"model": "order", "filters": {"total__gte": "1"}, "order_by": "-total", "search": "A"},
    )
    assert result.structured == listed.structured
    assert [row["number"] for row in result.structured["items"]] == ["A4", "A3", "A2", "A1"]
    assert (
        generic.call_tool("get_record", {"model": "order", "key": "A3"}).structured
        == own.call_tool("get_order", {"number": "A3"}).structured
    )
    assert (
        generic.call_tool(
            "count_records", {"model": "order", "group_by": "status", "max_of": "total"}
        ).structured
        == own.call_tool("count_orders", {"group_by": "status", "max_of": "total"}).structured
    )


def test_pages_follow_each_other_and_belong_to_their_filters():
    for number in range(3):
        order(f"A{number}")
    client = MCPClient(server=shop())
    arguments = {"model": "order", "limit": 2, "filters": {"status": "open"}}
    first = client.call_tool("search_records", arguments).structured
    cursor = first["next_cursor"]
    second = client.call_tool("search_records", {**arguments, "cursor": cursor}).structured
    assert len(first["items"]) == 2
    assert len(second["items"]) == 1
    other = client.call_tool("search_records", {"model": "order", "cursor": cursor}, check=False)
    assert other.is_error
    assert other.text.startswith("cursor: ")


def test_a_number_keeps_its_digits():
    order("A1", total=Decimal("12345678.91"))
    client = MCPClient(server=shop())
    raw = client.call_tool("search_records", {"model": "order", "filters": {"total": 12345678.91}})
    assert len(raw.structured["items"]) == 1


@pytest.mark.parametrize("key", ["7", 7])
def test_a_key_is_text_or_a_number_as_it_comes(key):
    order("7")
    client = MCPClient(server=shop())
    assert (
        client.call_tool("get_record", {"model": "order", "key": key}).structured["number"] == "7"
    )


def test_a_record_is_written_as_by_the_models_own_tool():
    every = ["list", "get", "create", "update", "delete"]
    server = shop(tools=every, write_fields=["number", "status", "placed_at", "customer", "total"])
    user = holder("add_order", "change_order", "delete_order", "view_customer")
    client = MCPClient(server=server, user=user)
    buyer = customer()
    values = {"number": "B1", "placed_at": "2026-01-01T00:00:00Z", "customer": buyer.pk}
    tried = client.call_tool("create_record", {"model": "order", "values": values, "preview": True})
    assert tried.structured["preview"] is True
    assert not Order.objects.exists()
    made = client.call_tool("create_record", {"model": "order", "values": values})
    assert not made.is_error, made.text
    assert made.structured["number"] == "B1"
    changed = client.call_tool(
        "update_record", {"model": "order", "key": "B1", "values": {"status": "paid"}}
    )
    assert changed.structured["status"] == "paid"
    gone = client.call_tool("delete_record", {"model": "order", "key": "B1"})
    assert gone.structured == {"deleted": {"shop.Order": 1}}
    assert not Order.objects.exists()


def test_the_row_gate_holds():
    class Mine(ModelTools[Order]):
        permission = AllowAny
        fields = ("number",)

        def get_queryset(self, ctx: Context) -> Any:
            return super().get_queryset(ctx).filter(number__startswith="A")

    server = MCPServer("shop", permission=AllowAny, generic=True)
    server.register(Order, Mine)
    order("A1")
    order("B1")
    client = MCPClient(server=server)
    page = client.call_tool("search_records", {"model": "order"}).structured
    assert [row["number"] for row in page["items"]] == ["A1"]
    assert client.call_tool("get_record", {"model": "order", "key": "B1"}, check=False).is_error


# What is told of mistakes --------------------------------------------------------------------


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("search_records", {}, "model: is required"),
    ("search_records", {"model": None}, "model: is required"),
    ("search_records", {"model": 5}, "model: must be one of order, tag (got 5)"),
    (
        "search_records",
        {"model": "ordr"},
        'model: must be one of order, tag; did you mean "order"? (got "ordr")',
    ),
    (
        "search_records",
        {"model": "order", "page": 1},
        'unknown argument "page"; known: model, ',
    ),
    (
        "search_records",
        {"model": "order", "filters": {"statuss": "open"}},
        'filters: unknown member "statuss"; known: status, ',
    ),
    (
        "search_records",
        {"model": "order", "filters": {"limit": 5}},
        'filters: unknown member "limit"; known: status, ',
    ),
    (
        "search_records",
        {"model": "order", "filters": {"status": "lost"}},
        "filters.status: must be one of ",
    ),
    (
        "search_records",
        {"model": "order", "filters": {"status__in": ["open", "lost"]}},
        "filters.status__in[1]: must be one of ",
    ),
    (
        "search_records",
        {"model": "order", "filters": [1]},
        "filters: must be an object (got [1])",
    ),
    ("search_records", {"model": "order", "limit": 0}, "limit: must be "),
    ("search_records", {"model": "order", "order_by": "margin"}, "order_by: must be one of "),
    ("get_record", {"model": "order"}, "key: is required"),
    ("get_record", {"model": "order", "key": ["a"]}, "key: must be "),
    ("get_record", {"model": "order", "key": "nope"}, "There is no order with number"),
    (
        "search_records",
        {"model": "tag", "search": "x"},
        "search: tag does not have this argument; leave it out",
    ),
    ("count_records", {"model": "tag", "group_by": "secret"}, "group_by: "),
    ("create_record", {"model": "tag", "values": {"secret": "x"}}, "values: unknown member"),
    ("create_record", {"model": "tag"}, "values: is required"),
    ("create_record", {"model": "tag", "values": {}}, "word: "),
    (
        "update_record",
        {"model": "tag", "key": 1, "values": {"word": ["x"]}},
        "values.word: must be ",
    ),
]


def test_a_mistake_is_told_where_it_was_made():
    server = shop()
    operations = ["list", "get", "count", "create", "update"]
    server.register(Tag, tools(fields=["id", "word"], tools=operations, write_fields=["word"]))
    client = MCPClient(server=server, user=holder("add_tag", "change_tag"))
    for tool, arguments, beginning in MISTAKES:
        answer = client.call_tool(tool, arguments, check=False)
        assert answer.is_error, beginning
        assert answer.text.startswith(beginning), (beginning, answer.text)


def test_text_that_is_none_is_refused_in_band():
    client = MCPClient(server=shop())
    answer = client.call_tool("search_records", {"model": "order", "search": "a\0b"}, check=False)
    assert answer.is_error
    assert answer.text.startswith("search: ")


# describe_model ------------------------------------------------------------------------------


def test_a_model_is_described_as_its_caller_may_use_it():
    written = ["number", "status", "placed_at", "customer"]
    server = shop(tools=["list", "get", "create", "delete"], write_fields=written)
    reader = MCPClient(server=server).call_tool("describe_model", {"model": "order"}).structured
    assert reader["model"] == "order"
    assert list(reader["fields"]) == ORDERS["fields"]
    assert list(reader["tools"]) == ["search_records", "get_record"]
    filters = reader["tools"]["search_records"]["filters"]
    assert filters["additionalProperties"] is False
    assert filters["properties"]["status"]["enum"] == ["open", "paid", "shipped"]
    assert reader["tools"]["search_records"]["order_by"]["enum"] == ["total", "-total"]
    assert reader["tools"]["get_record"]["key"]["description"] == "The number of the record."
    clerk = MCPClient(server=server, user=holder("add_order"))
    described = clerk.call_tool("describe_model", {"model": "order"}).structured
    assert list(described["tools"]) == ["search_records", "get_record", "create_record"]
    assert list(described["tools"]["create_record"]["values"]["properties"]) == written


def test_values_are_told_from_the_arguments_around_them():
    """A field may be called like an argument of another tool."""

    class Written(ModelTools[Tag]):
        """With a form of its own."""

        fields = ("id", "word")
        tools = ("list", "create", "update")
        permission = AllowAny

        class form(ModelForm):
            """Two fields more."""

            search = CharField(required=False)
            limit = CharField(required=False)

            class Meta:
                """Its model."""

                model = Tag
                fields = ("word",)

    server = MCPServer("shop", permission=AllowAny, generic=True)
    server.register(Tag, Written)
    mcp = MCPClient(server=server, user=holder("add_tag", "change_tag"))
    described = mcp.call_tool("describe_model", {"model": "tag"}).structured["tools"]
    for tool in ("create_record", "update_record"):
        assert set(described[tool]["values"]["properties"]) == {"word", "search", "limit"}
    assert set(described["search_records"]) == {"filters", "limit"}
    values = {"word": "red", "search": "x", "limit": "y"}
    made = mcp.call_tool("create_record", {"model": "tag", "values": values})
    assert not made.is_error, made.text


def test_twelve_models_cost_less_than_their_own_tools():
    def size(server: MCPServer) -> int:
        return len(str(MCPClient(server=server).list_tools()))

    def many(*, generic: bool) -> MCPServer:
        server = MCPServer("shop", permission=AllowAny, generic=generic)
        for number, model in enumerate([Product, Category, Tag, Order] * 3):
            server.register(
                model,
                tools(
                    fields=[_key(model)],
                    filter_fields=[_key(model)],
                    name=f"thing_{number}",
                    plural=f"things_{number}",
                ),
            )
        return server

    assert size(many(generic=True)) * 3 < size(many(generic=False))


def _key(model: Any) -> str:
    return {Product: "slug", Category: "code", Tag: "word", Order: "number"}[model]
