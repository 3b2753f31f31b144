"""`filter_fields`: which filters there are, which values are refused, and which rows match."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pytest
from django.test import override_settings

from mcp_django.schema.lint import lint
from mcp_django.test import MCPClient
from tests.integrations.models.building import client, order, product
from tests.sites.shop.models import Order, Product, Tag

pytestmark = pytest.mark.django_db

FIELDS = [
    *("slug", "name", "price", "weight", "stock", "rating", "size", "is_active", "released"),
    *("sold_from", "lead_time", "uuid", "address", "description", "category", "category__title"),
    *("tags", "tags__word", "id"),
]


def shop(filters: Any, **options: Any) -> MCPClient:
    return client(Product, fields=FIELDS, filter_fields=filters, ordering=["slug"], **options)


def slugs(mcp_client: MCPClient, **arguments: Any) -> list[str]:
    result = mcp_client.call_tool("list_products", arguments)
    assert not result.is_error, result.text
    return [row["slug"] for row in result.structured["items"]]


def properties(mcp_client: MCPClient) -> dict[str, Any]:
    (tool,) = mcp_client.list_tools()
    members: dict[str, Any] = tool["inputSchema"]["properties"]
    return members


# What is found --------------------------------------------------------------------------------


def test_filters_compare_each_kind_of_column():
    product(
        "Ball",
        slug="a",
        price=Decimal("1.50"),
        weight=0.25,
        stock=3,
        rating=1,
        size="s",
        is_active=True,
        released=dt.date(2026, 1, 1),
        sold_from=dt.time(8),
        lead_time=dt.timedelta(hours=1),
        uuid=uuid.UUID(int=1),
        address="10.0.0.1",
    )
    product("Doll", slug="b", price=Decimal("9.50"), stock=9, rating=3, size="l", is_active=False)
    mcp_client = shop([name for name in FIELDS if name not in {"tags", "tags__word"}])
    for arguments, expected in [
        ({"price": "1.50"}, "a"),
        ({"price": 9.5}, "b"),
        ({"price__gt": "1.5"}, "b"),
        ({"price__lte": 1.5}, "a"),
        ({"weight": 0.25}, "a"),
        ({"weight__isnull": True}, "b"),
        ({"stock__gte": 3}, "ab"),
        ({"stock__lt": 9}, "a"),
        ({"rating": 1}, "a"),
        ({"rating__in": [2, 3]}, "b"),
        ({"size": "l"}, "b"),
        ({"is_active": False}, "b"),
        ({"released": "2026-01-01"}, "a"),
        ({"released__lt": "2026-01-01"}, ""),
        ({"released__isnull": False}, "a"),
        ({"sold_from__gte": "07:00"}, "a"),
        ({"lead_time": "PT1H"}, "a"),
        ({"uuid": str(uuid.UUID(int=1))}, "a"),
        ({"uuid__in": [str(uuid.UUID(int=1))]}, "a"),
        ({"address": "10.0.0.1"}, "a"),
        ({"name__icontains": "OL"}, "b"),
        ({"name__startswith": "Ba"}, "a"),
        ({"name__in": ["Ball", "Other"]}, "a"),
        ({"description": ""}, "ab"),
        ({"category": "toys"}, "ab"),
        ({"category__in": ["none"]}, ""),
        ({"category__title": "Toys"}, "ab"),
        ({"category__title__icontains": "x"}, ""),
        ({"price__gt": 1, "stock__lt": 9}, "a"),
        ({"price": None}, "ab"),
        ({}, "ab"),
    ]:
        assert "".join(slugs(mcp_client, **arguments)) == expected, arguments


def test_a_filter_through_many_gives_each_row_once():
    red, blue = Tag.objects.create(word="red"), Tag.objects.create(word="reddish")
    product(slug="a").tags.add(red, blue)
    product(slug="b").tags.add(blue)
    product(slug="c")
    mcp_client = shop(["tags", "tags__word"])
    result = mcp_client.call_tool("list_products", {"tags__word__icontains": "red"}).structured
    assert ([row["slug"] for row in result["items"]], result["total"]) == (["a", "b"], 2)
    assert slugs(mcp_client, tags=red.pk) == ["a"]
    assert slugs(mcp_client, tags__in=[red.pk, blue.pk]) == ["a", "b"]
    assert slugs(mcp_client, tags=red.pk, tags__word="reddish") == ["a"]


def test_only_the_lookups_that_are_named_are_offered():
    mcp_client = shop({"price": ["gte", "lt"], "released": ["year"], "name": ["iexact"]})
    names = [name for name in properties(mcp_client) if name not in {"limit", "cursor"}]
    assert names == ["price__gte", "price__lt", "released__year", "name__iexact"]
    product("Ball", slug="a", released=dt.date(2026, 5, 1))
    assert slugs(mcp_client, released__year=2026, name__iexact="BALL") == ["a"]


def test_a_moment_without_an_offset_is_meant_in_the_time_zone_of_the_site():
    order("A", placed_at=dt.datetime(2026, 1, 1, 23, tzinfo=dt.UTC))
    mcp_client = client(
        Order, fields=["number", "placed_at"], filter_fields={"placed_at": ["exact", "date"]}
    )

    def total(**arguments: Any) -> int:
        return int(mcp_client.call_tool("list_orders", arguments).structured["total"])

    with override_settings(TIME_ZONE="Asia/Tokyo"):
        assert total(placed_at="2026-01-02T08:00:00") == 1
        assert total(placed_at="2026-01-01T23:00:00Z") == 1
        assert total(placed_at__date="2026-01-02") == 1


@override_settings(USE_TZ=False)
def test_a_moment_with_an_offset_is_taken_by_a_site_without_zones():
    order("A", placed_at=dt.datetime(2026, 1, 1, 23))  # noqa: DTZ001 - the site keeps no zones
    mcp_client = client(Order, fields=["number", "placed_at"], filter_fields=["placed_at"])
    for text in ("2026-01-01T23:00:00", "2026-01-02T01:00:00+02:00"):
        answer = mcp_client.call_tool("list_orders", {"placed_at": text}).structured
        assert answer["total"] == 1, text


def test_a_field_that_is_called_like_an_argument_of_ours_keeps_its_filter(monkeypatch):
    monkeypatch.setattr("mcp_django.integrations.models.filtering.RESERVED", frozenset({"stock"}))
    product(slug="a", stock=4)
    mcp_client = shop({"stock": ["exact"]})
    assert slugs(mcp_client, stock__exact=4) == ["a"]


# What is published ----------------------------------------------------------------------------


def test_the_schema_names_choices_and_bounds_and_is_portable():
    mcp_client = shop(["size", "rating", "price", "name", "category", "is_active", "tags"])
    (tool,) = mcp_client.list_tools()
    assert lint(tool["inputSchema"]) == []
    assert tool["inputSchema"]["additionalProperties"] is False
    members = tool["inputSchema"]["properties"]
    assert members["size"] == {
        "type": "string",
        "enum": ["s", "l"],
        "description": "s: Small, l: Large",
    }
    assert members["rating"]["enum"] == [1, 2, 3]
    assert members["price"]["description"].startswith("Must be a decimal number")
    assert members["name__in"]["maxItems"] == 100
    assert tool["annotations"] == {"readOnlyHint": True}
    assert "required" not in tool["inputSchema"]
