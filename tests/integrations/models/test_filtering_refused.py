"""`filter_fields`: what callers cannot send, and what cannot be declared."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from tests.integrations.models.building import category, client, customer, line, order, serve
from tests.integrations.models.test_filtering import FIELDS, shop
from tests.sites.shop.models import Order, Product

pytestmark = pytest.mark.django_db

# What is refused ------------------------------------------------------------------------------

HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"password": "x"}, "unknown argument"),
    ({"category__parent__code": "x"}, "unknown argument"),
    ({"name__regex": "(a+)+$"}, "unknown argument"),
    ({"pk__in": [1]}, "unknown argument"),
    ({"ctx_": 1}, "unknown argument"),
    ({"stock": "three"}, "stock: "),
    ({"stock": 2**70}, "stock: "),
    ({"stock": -(2**70)}, "stock: "),
    ({"stock": 1e300}, "stock: "),
    ({"stock": [1]}, "stock: "),
    ({"stock": {"$gt": 1}}, "stock: "),
    ({"price": "NaN"}, "price: "),
    ({"price": "sNaN"}, "price: "),
    ({"price": "Infinity"}, "price: "),
    ({"price": "1e999999"}, "price: "),
    ({"price": "1.005"}, "price: "),
    ({"price": "9999999.00"}, "price: "),
    ({"price": ""}, "price: "),
    ({"name": "a\0b"}, "name: "),
    ({"name__icontains": "\0"}, "name__icontains: "),
    ({"name__in": ["a", "\0"]}, "name__in[1]: "),
    ({"name": "x" * 1001}, "name: "),
    ({"name__in": []}, "name__in: "),
    ({"name__in": ["x"] * 101}, "name__in: "),
    ({"name__in": ["x"] * 10_000}, "name__in: "),
    ({"name__in": "abc"}, "name__in: "),
    ({"size": "xl"}, "size: "),
    ({"size": "S"}, "size: "),
    ({"rating": 4}, "rating: "),
    ({"released": "2026-02-30"}, "released: "),
    ({"released": "10000-01-01"}, "released: "),
    ({"sold_from": "08:00:00+01:00"}, "sold_from: "),
    ({"lead_time": "P999999999D"}, "lead_time: "),
    ({"uuid": "none"}, "uuid: "),
    ({"address": "10.0.0.256"}, "address: "),
    ({"is_active": "maybe"}, "is_active: "),
    ({"category": "a\0"}, "category: "),
    ({"tags": 2**64}, "tags: "),
    ({"limit": 0}, "limit: "),
    ({"limit": 51}, "limit: "),
    ({"limit": "many"}, "limit: "),
]


def test_a_bad_argument_is_named_before_the_database_sees_it(django_assert_num_queries):
    mcp_client = shop([name for name in FIELDS if name != "tags__word"], search_fields=["name"])
    for arguments, beginning in HOSTILE:
        case = json.dumps(arguments)[:40]
        with django_assert_num_queries(0, info=case):
            result = mcp_client.call_tool("list_products", arguments, check=False)
        assert result.is_error, case
        assert result.text.startswith(beginning), (case, result.text)
        assert len(result.text) < 4000, case


@pytest.mark.parametrize("raw", ["\\ud800", "\\udc00\\ud800"])
def test_half_a_character_is_refused(raw):
    from mcp_django.schema.arguments import InvalidArguments

    server = serve(Product, fields=FIELDS, filter_fields=["name"])
    with pytest.raises(InvalidArguments):
        server.tools["list_products"].arguments.parse(f'{{"name": "{raw}"}}'.encode())


@pytest.mark.parametrize("year", [0, 1, 9999, 10_000])
def test_a_year_at_the_end_of_the_calendar_is_refused(year):
    mcp_client = client(
        Order, fields=["number", "placed_at"], filter_fields={"placed_at": ["year"]}
    )
    with override_settings(TIME_ZONE="America/New_York"):
        assert mcp_client.call_tool("list_orders", {"placed_at__year": year}, check=False).is_error
        for near in (2, 9998):
            assert not mcp_client.call_tool("list_orders", {"placed_at__year": near}).is_error


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("text", ["0001-01-03T00:00:00", "9999-12-29T23:59:59"])
def test_a_moment_near_the_end_of_the_calendar_is_taken(text, zone):
    mcp_client = client(Order, fields=["number", "placed_at"], filter_fields=["placed_at"])
    with override_settings(TIME_ZONE=zone):
        for moment in (text, f"{text}Z", f"{text}+14:00", f"{text}-12:00"):
            result = mcp_client.call_tool("list_orders", {"placed_at__gte": moment})
            assert not result.is_error, result.text


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
@pytest.mark.parametrize("zones", [True, False])
def test_a_moment_beyond_the_calendar_is_refused(text, zones):
    with override_settings(USE_TZ=zones):
        mcp_client = client(Order, fields=["number", "placed_at"], filter_fields=["placed_at"])
        result = mcp_client.call_tool("list_orders", {"placed_at": text}, check=False)
    assert result.is_error
    assert "between the years 1 and 9999" in result.text


# What cannot be declared ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        (["cost"], "filter_fields has 'cost', which is not in fields"),
        (["category__code"], "which is not in fields and would be revealed; add it to fields"),
        (["category__parent"], "which is not in fields"),
        (["nmae"], "did you mean 'name'?"),
        (["tags__secret"], "which is not in fields"),
        (["details"], "which is not in fields"),
        ("name", "filter_fields must be a list: write filter_fields = ['name']"),
        ({"name": ["regex"]}, "has no lookup 'regex'; valid names:"),
        ({"price": ["gteq"]}, "did you mean 'gte'?"),
        ({"name": "exact"}, "write {'name': ['exact']}"),
        ([1], "filter_fields has 1; each item must be a name"),
    ],
)
def test_a_filter_that_would_tell_or_cannot_work_is_refused(filters, words):
    with pytest.raises(ImproperlyConfigured) as caught:
        shop(filters)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["details", "digest", "manual", "photo"])
def test_what_cannot_be_compared_is_no_filter(name):
    with pytest.raises(ImproperlyConfigured, match="which does not support filtering"):
        client(Product, fields=[name], filter_fields=[name])


def test_a_key_and_its_column_are_one():
    buyer = customer()
    line(order("A1", customer=buyer))
    mcp_client = client(
        Order, fields=["number", "customer_id"], filter_fields=["customer", "customer_id"]
    )
    for name in ("customer", "customer_id"):
        answer = mcp_client.call_tool("list_orders", {name: buyer.pk}).structured
        assert answer["total"] == 1
    assert category().pk == "toys"
