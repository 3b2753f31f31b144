"""`count_…`: how many, in groups, with sums and extremes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django.schema.compiled import JSONSchemaOutput
from mcp_django.test import MCPClient
from tests.integrations.models.building import (
    client,
    customer,
    line,
    order,
    product,
    reader,
    serve,
    tools,
)
from tests.kit.servers import person
from tests.sites.shop.models import Customer, Order, Product, Tag

pytestmark = pytest.mark.django_db

FIELDS = ["number", "status", "total", "placed_at", "customer", "customer__name", "lines__quantity"]
COUNT: dict[str, Any] = {"tools": ["count"]}


def count(mcp_client: MCPClient, **arguments: Any) -> dict[str, Any]:
    result = mcp_client.call_tool("count_orders", arguments)
    assert not result.is_error, result.text
    answer: dict[str, Any] = result.structured
    return answer


def desk(**options: Any) -> MCPClient:
    filters = ["status", "total", "customer__name", "lines__quantity"]
    return client(
        Order, fields=FIELDS, filter_fields=filters, search_fields=["number"], **COUNT, **options
    )


def test_rows_are_counted_as_they_are_narrowed():
    first = order("A1", total=Decimal("2.50"))
    line(first, quantity=2), line(first, quantity=3)
    order("A2", status="paid", total=4)
    order("B1", total=1)
    mcp_client = desk()
    assert count(mcp_client) == {"count": 3}
    assert count(mcp_client, status="paid") == {"count": 1}
    assert count(mcp_client, search="a") == {"count": 2}
    assert count(mcp_client, lines__quantity__gte=1, sum_of="total") == {"count": 1, "sum": "2.50"}


def test_an_exposed_number_is_added_up():
    for total in ("2.50", "4.00", "1.00"):
        order(total=Decimal(total))
    mcp_client = desk()
    answer = count(mcp_client, sum_of="total", avg_of="total", min_of="total", max_of="total")
    assert answer == {"count": 3, "sum": "7.50", "avg": "2.5000", "min": "1.00", "max": "4.00"}
    assert count(mcp_client, total__gt=100, sum_of="total") == {"count": 0, "sum": None}
    moments = count(mcp_client, min_of="placed_at")["min"]
    assert moments == min(
        row.placed_at.isoformat().replace("+00:00", "Z") for row in Order.objects.all()
    )


def test_groups_come_with_the_largest_first():
    for status, total in (("open", 1), ("open", 2), ("paid", 5)):
        order(status=status, total=total)
    assert count(desk(), group_by="status", sum_of="total") == {
        "count": 3,
        "sum": "8.00",
        "groups": [
            {"group": "open", "count": 2, "sum": "3.00"},
            {"group": "paid", "count": 1, "sum": "5.00"},
        ],
    }


def test_a_date_is_grouped_by_its_parts():
    for day, month in ((1, 1), (2, 1), (1, 2)):
        order(placed_at=dt.datetime(2026, month, day, 12, tzinfo=dt.UTC))
    mcp_client = desk()

    def groups(by: str) -> list[tuple[Any, int]]:
        return [
            (group["group"], group["count"]) for group in count(mcp_client, group_by=by)["groups"]
        ]

    assert groups("placed_at__year") == [(2026, 3)]
    assert groups("placed_at__month") == [("2026-01", 2), ("2026-02", 1)]
    assert groups("placed_at__date") == [("2026-01-01", 1), ("2026-01-02", 1), ("2026-02-01", 1)]


def test_a_group_by_a_relation_is_labelled_for_those_who_may_view_it():
    ada = customer("Ada")
    order(customer=ada)
    server = serve(Order, fields=FIELDS, **COUNT)
    assert count(reader(server), group_by="customer")["groups"] == [
        {"group": {"id": ada.pk}, "count": 1}
    ]
    user = person()
    user.user_permissions.add(Permission.objects.get(codename="view_customer"))
    assert count(reader(server, user), group_by="customer")["groups"] == [
        {"group": {"id": ada.pk, "label": "Ada"}, "count": 1}
    ]


def test_a_group_without_a_value_is_a_group():
    customer("Ada", referrer=customer("Bob"))
    mcp_client = client(Customer, fields=["id", "referrer"], **COUNT)
    answer = mcp_client.call_tool("count_customers", {"group_by": "referrer"}).structured
    assert sorted(group["group"] is None for group in answer["groups"]) == [False, True]


def test_many_groups_are_cut_and_said_to_be():
    for _ in range(101):
        order()
    answer = count(desk(), group_by="customer")
    assert (len(answer["groups"]), answer["groups_total"]) == (100, 101)


def test_statements_do_not_depend_on_rows():
    mcp_client = desk()
    for _ in range(2):
        for _ in range(3):
            order()
        with CaptureQueriesContext(connection) as captured:
            count(mcp_client, group_by="placed_at__date", sum_of="total")
        assert len(captured) == 2


def test_what_is_counted_fits_the_published_schema():
    order(total=3)
    mcp_client = desk()
    (tool,) = mcp_client.list_tools()
    for arguments in ({}, {"group_by": "customer"}, {"group_by": "status", "avg_of": "total"}):
        answer = count(mcp_client, **arguments)
        assert JSONSchemaOutput(tool["outputSchema"]).dump(answer) == answer


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"group_by": "margin"}, "group_by: must be"),
        ({"group_by": "number"}, "group_by: must be"),
        ({"group_by": "customer__password"}, "group_by: must be"),
        ({"group_by": "lines__quantity"}, "group_by: must be"),
        ({"group_by": ["status"]}, "group_by: must be"),
        ({"sum_of": "margin"}, 'sum_of: must be "total"'),
        ({"sum_of": "status"}, 'sum_of: must be "total"'),
        ({"max_of": "customer__password"}, "max_of: must be"),
        ({"sum_of": "lines__quantity"}, 'sum_of: must be "total"'),
        ({"limit": 5}, 'unknown argument "limit"'),
        ({"order_by": "total"}, 'unknown argument "order_by"'),
    ],
)
def test_what_is_hidden_is_neither_grouped_nor_added_up(arguments, words):
    result = desk().call_tool("count_orders", arguments, check=False)
    assert result.is_error
    assert words in result.text


def test_without_numbers_and_groups_it_only_counts():
    Tag.objects.create(word="red")
    mcp_client = client(Tag, fields=["word"], **COUNT)
    (tool,) = mcp_client.list_tools()
    assert tool["inputSchema"]["properties"] == {}
    assert mcp_client.call_tool("count_tags").structured == {"count": 1}


def test_rows_outside_the_gate_are_not_counted():
    class Open(tools(fields=FIELDS, **COUNT)):
        def get_queryset(self, ctx: Any) -> Any:
            return super().get_queryset(ctx).filter(status="open")

    order(total=1), order(total=99, status="paid")
    mcp_client = reader(serve(Order, Open))
    answer = count(mcp_client, group_by="status", max_of="total")
    assert answer == {
        "count": 1,
        "max": "1.00",
        "groups": [{"group": "open", "count": 1, "max": "1.00"}],
    }


def test_a_yes_or_no_and_a_number_with_names_are_groups():
    product(rating=1, is_active=False)
    product(rating=3, is_active=True)
    product(rating=3, is_active=True)
    mcp_client = client(Product, fields=["slug", "rating", "is_active"], **COUNT)
    for by, first in (("rating", 3), ("is_active", True)):
        answer = mcp_client.call_tool("count_products", {"group_by": by}).structured
        assert answer["groups"][0] == {"group": first, "count": 2}
