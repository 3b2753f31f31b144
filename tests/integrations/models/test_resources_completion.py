"""Suggestions for the variables of a model's URI."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.db.models import QuerySet

from mcp_django import Context
from mcp_django.protocol.errors import INVALID_PARAMS
from mcp_django.test import ErrorResponse, MCPClient
from tests.integrations.models.building import category, customer, order, product
from tests.integrations.models.offering import URI, offer, reader
from tests.kit.servers import person
from tests.sites.shop.models import Category, Order, Product
from tests.spec import spec

pytestmark = pytest.mark.django_db

BOTH = {"uri": "shop://o/{customer__email}/{number}", "fields": ["customer__email", "number"]}


@spec("CMP-1")
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", ["A-1", "A-2", "B-1", "a_1"]),
        ("A", ["A-1", "A-2", "a_1"]),
        ("a-", ["A-1", "A-2"]),
        ("B-1", ["B-1"]),
        ("%", []),
        ("_", []),
        ("A_", ["a_1"]),
        ("\\", []),
        ("1", []),
        ("\0", []),
        ("\ud800", []),
        ("x" * 100_000, []),
        ("ü", []),
    ],
)
def test_values_begin_as_typed(typed, expected):
    for number in ("B-1", "A-2", "A-1", "a_1"):
        order(number)
    if typed == "\ud800":
        # A lone surrogate cannot be encoded, so it never arrives.
        typed = "\ufffe"
    assert reader().complete(URI, "number", typed) == expected


def test_at_most_a_hundred_are_suggested_and_more_is_said():
    buyer = customer()
    for number in range(101):
        order(f"{number:03}", customer=buyer)
    client = reader()
    params = {
        "ref": {"type": "ref/resource", "uri": URI},
        "argument": {"name": "number", "value": ""},
    }
    completion = client.request("completion/complete", params)["completion"]
    assert (len(completion["values"]), completion["hasMore"]) == (100, True)
    Order.objects.get(number="050").delete()
    completion = client.request("completion/complete", params)["completion"]
    assert (len(completion["values"]), "hasMore" in completion) == (100, False)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("", ["7", "70", "71", "8"]), ("7", ["7", "70", "71"]), ("71", ["71"]), ("x", []), ("07", [])],
)
def test_numbers_begin_as_typed(typed, expected):
    for key in (7, 8, 70, 71):
        order(pk=key)
    client = reader(uri="shop://o/{id}", fields=["id"])
    assert sorted(client.complete("shop://o/{id}", "id", typed)) == expected


@pytest.mark.parametrize(
    ("typed", "count"),
    [
        ("", 2),
        ("0123", 1),
        ("01234567-", 1),
        ("01234567-89ab-4", 1),
        ("01234567-89AB", 1),
        ("0123456789", 0),
        ("01234567-89ab-4cde-8f01-23456789abcd", 1),
        ("01234567-89ab-4cde-8f01-23456789abcde", 0),
        ("g", 0),
        ("-", 0),
    ],
)
def test_a_uuid_begins_as_typed_with_its_hyphens(typed, count):
    product(uuid=UUID("01234567-89ab-4cde-8f01-23456789abcd"))
    product(uuid=UUID("fedcba98-89ab-4cde-8f01-23456789abcd"))
    client = reader(Product, uri="shop://p/{uuid}", fields=["uuid"])
    assert len(client.complete("shop://p/{uuid}", "uuid", typed)) == count


@spec("CMP-3")
def test_what_was_chosen_narrows_and_each_value_comes_once():
    ada, bob = customer(email="ada@x"), customer(email="bob@x")
    order("1", customer=ada)
    order("2", customer=ada)
    order("3", customer=bob)
    client = reader(**BOTH)
    uri = BOTH["uri"]
    assert client.complete(uri, "customer__email", "") == ["ada@x", "bob@x"]
    assert client.complete(uri, "number", "", context={"customer__email": "ada@x"}) == ["1", "2"]
    assert client.complete(uri, "number", "", context={"customer__email": "eve@x"}) == []
    assert client.complete(uri, "number", "", context={"customer__email": "\0"}) == []
    assert client.complete(uri, "number", "", context={"customer__email": ""}) == ["1", "2", "3"]
    assert client.complete(uri, "number", "", context={"internal_note": "x"}) == ["1", "2", "3"]
    assert client.complete(uri, "customer__email", "", context={"number": "3"}) == ["bob@x"]


def test_a_hidden_column_cannot_be_completed():
    order("A-1", internal_note="hush")
    with pytest.raises(ErrorResponse) as caught:
        reader().complete(URI, "internal_note", "h")
    assert caught.value.code == INVALID_PARAMS


def test_only_rows_within_the_gate_are_suggested():
    def get_queryset(self: Any, ctx: Context) -> QuerySet[Order]:
        return Order.objects.filter(customer__user=ctx.user)

    ada, bob = person("ada"), person("bob")
    order("A-1", customer=customer(user=ada))
    order("A-2", customer=customer(user=bob))
    server = offer(get_queryset=get_queryset, prompts={"check": "Check {object}."})
    for user, expected in ((ada, ["A-1"]), (bob, ["A-2"])):
        client = MCPClient(server=server, user=user)
        assert client.complete(URI, "number", "A") == expected
        assert client.complete("check_order", "number", "A") == expected


def test_a_uri_of_the_template_is_as_good_as_the_template():
    order("A-1")
    assert reader().complete("shop://orders/A", "number", "A") == ["A-1"]


def test_files_and_prompts_complete_the_same_variables():
    product(slug="ball")
    client = reader(
        Product,
        uri="shop://p/{slug}",
        fields=["slug", "photo"],
        blobs=["photo"],
        prompts={"sell": "Sell {object}."},
    )
    for ref in ("shop://p/{slug}", "shop://p/{slug}/photo", "sell_product"):
        assert client.complete(ref, "slug", "b") == ["ball"]


def test_empty_values_and_missing_ones_are_not_suggested():
    category("toys")
    Category.objects.create(code="", title="Nothing")
    client = reader(Category, uri="shop://c/{code}", fields=["code"])
    assert client.complete("shop://c/{code}", "code", "") == ["toys"]


def test_a_completion_is_one_statement(django_assert_num_queries):
    for _ in range(5):
        order()
    with django_assert_num_queries(1):
        assert len(reader().complete(URI, "number", "")) == 5
