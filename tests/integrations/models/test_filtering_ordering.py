"""`ordering` and `ordering_fields`: a deterministic order that reveals nothing hidden."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django.test import MCPClient
from tests.integrations.models.building import client, customer, order, product
from tests.sites.shop.models import Category, Ledger, Order, Product, Tag, Voucher

pytestmark = pytest.mark.django_db


def numbers(mcp_client: MCPClient, **arguments: Any) -> list[str]:
    result = mcp_client.call_tool("list_orders", arguments)
    assert not result.is_error, result.text
    return [row["number"] for row in result.structured["items"]]


def test_the_declared_order_holds_and_a_caller_chooses_among_the_named_ones():
    order("A", total=3)
    order("B", total=1)
    order("C", total=2)
    mcp_client = client(
        Order, fields=["number", "total"], ordering=["-total"], ordering_fields=["total", "number"]
    )
    assert numbers(mcp_client) == ["A", "C", "B"]
    assert numbers(mcp_client, order_by="total") == ["B", "C", "A"]
    assert numbers(mcp_client, order_by="-number") == ["C", "B", "A"]
    (tool,) = mcp_client.list_tools()
    assert tool["inputSchema"]["properties"]["order_by"]["enum"] == [
        *("total", "-total"),
        *("number", "-number"),
    ]


def test_the_order_of_the_model_is_followed_only_where_it_is_exposed():
    order("B", margin=1)
    order("A", margin=9)
    assert numbers(client(Order, fields=["id", "number"])) == ["B", "A"]
    assert numbers(client(Order, fields=["id", "number", "margin"])) == ["A", "B"]


def test_rows_without_a_value_come_last_both_ways():
    order("A", paid_at=None)
    order("B", paid_at=dt.datetime(2026, 1, 2, tzinfo=dt.UTC))
    order("C", paid_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    mcp_client = client(Order, fields=["number", "paid_at"], ordering_fields=["paid_at"])
    assert numbers(mcp_client, order_by="paid_at") == ["C", "B", "A"]
    assert numbers(mcp_client, order_by="-paid_at") == ["B", "C", "A"]


def test_a_relation_orders_by_its_key_and_not_by_an_order_of_the_related_model():
    first, second = customer("Zoe"), customer("Ada")
    order("A", customer=second)
    order("B", customer=first)
    mcp_client = client(
        Order,
        fields=["number", "customer", "customer__name"],
        ordering_fields=["customer", "customer__name"],
    )
    with CaptureQueriesContext(connection) as captured:
        assert numbers(mcp_client, order_by="customer") == ["B", "A"]
    assert 'ORDER BY "shop_order"."customer_id" ASC, "shop_order"."number"' in captured[1]["sql"]
    assert numbers(mcp_client, order_by="customer__name") == ["A", "B"]


@pytest.mark.parametrize(
    "order_by", ["margin", "-margin", "--number", "?", "pk", "customer__password", "", "number,id"]
)
def test_another_order_is_refused(order_by):
    mcp_client = client(Order, fields=["number"], ordering_fields=["number"])
    result = mcp_client.call_tool("list_orders", {"order_by": order_by}, check=False)
    assert result.is_error
    assert 'order_by: must be one of "number", "-number"' in result.text


def test_without_ordering_fields_there_is_no_choice():
    result = client(Order, fields=["number"]).call_tool(
        "list_orders", {"order_by": "number"}, check=False
    )
    assert 'unknown argument "order_by"' in result.text


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (Order, {"ordering_fields": ["margin"]}, "ordering_fields has 'margin', which is not in"),
        (Order, {"ordering": ["-margin"]}, "ordering has 'margin', which is not in fields"),
        (Order, {"ordering": "number"}, "write ordering = ['number']"),
        (Product, {"ordering": ["tags__word"]}, "which can have several values"),
        (Product, {"ordering": ["tags"]}, "which can have several values"),
        (Product, {"ordering": ["details"]}, "which does not support ordering"),
        (Product, {"ordering": ["description"]}, "too long for a page cursor"),
        (Product, {"ordering": ["slug", "name", "price", "stock"]}, "more than 3 fields"),
    ],
)
def test_an_order_that_would_tell_or_cannot_be_is_refused(model, options, words):
    fields = ["slug", "name", "price", "stock", "details", "description", "tags", "tags__word"]
    with pytest.raises(ImproperlyConfigured) as caught:
        client(model, fields=fields if model is Product else ["number"], **options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("model", "fields", "key"),
    [(Ledger, ["owner"], "iban"), (Order, ["status"], "id"), (Voucher, ["worth"], "id")],
)
def test_a_list_without_a_key_among_its_fields_is_refused(model, fields, key):
    # A cursor contains the key of a row, which the caller can decode.
    with pytest.raises(ImproperlyConfigured) as caught:
        client(model, fields=fields)
    assert f"add {key!r} or another unique field to fields, or remove 'list' from" in str(
        caught.value
    )
    assert client(model, fields=fields, tools=["count"]).list_tools()


def test_a_key_whose_order_says_something_breaks_ties_where_it_is_exposed():
    Ledger.objects.create(iban="DE2", owner="Ada")
    Ledger.objects.create(iban="DE1", owner="Bob")
    mcp_client = client(Ledger, fields=["iban", "owner"])
    listed = mcp_client.call_tool("list_ledgers").structured["items"]
    assert [row["iban"] for row in listed] == ["DE1", "DE2"]


def test_an_exposed_unique_field_breaks_ties_where_the_key_is_hidden():
    for word in ("b", "a"):
        Tag.objects.create(word=word)
    Category.objects.create(code="x", title="X")
    mcp_client = client(Tag, fields=["word"])
    listed = mcp_client.call_tool("list_tags").structured["items"]
    assert listed == [{"word": "a"}, {"word": "b"}]
    assert product(price=Decimal(1)).pk
