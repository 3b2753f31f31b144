"""`list_…`: pages of rows, what they hold and how many statements they cost."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pytest
from django.test import override_settings

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
from tests.sites.shop.models import Customer, Order, Passport, Product, Tag

pytestmark = pytest.mark.django_db


def items(mcp_client: MCPClient, tool: str, **arguments: Any) -> list[dict[str, Any]]:
    result = mcp_client.call_tool(tool, arguments)
    assert not result.is_error, result.text
    rows: list[dict[str, Any]] = result.structured["items"]
    return rows


# What a row is --------------------------------------------------------------------------------


def test_a_page_holds_the_exposed_fields_of_each_row():
    buyer = customer("Ada")
    moment = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    order("A1", customer=buyer, total=Decimal("12.50"), placed_at=moment)
    mcp_client = client(Order, fields=["number", "status", "total", "placed_at", "customer_id"])
    assert mcp_client.call_tool("list_orders").structured == {
        "items": [
            {
                "number": "A1",
                "status": "open",
                "total": "12.50",
                "placed_at": "2026-01-02T00:00:00Z",
                "customer_id": buyer.pk,
            }
        ],
        "total": 1,
    }


def test_a_column_of_every_kind_is_plain_json():
    key = uuid.UUID(int=7)
    product(
        "Ball",
        uuid=key,
        slug="ball",
        weight=0.5,
        rating=3,
        released=dt.date(2026, 3, 1),
        sold_from=dt.time(8, 30),
        lead_time=dt.timedelta(days=2),
        details={"a": [1, None]},
        digest=b"\x00\xff",
        address="10.0.0.1",
        manual="manuals/ball.pdf",
    )
    fields = [
        *("uuid", "slug", "weight", "rating", "released", "sold_from", "lead_time", "details"),
        *("digest", "address", "manual", "photo", "is_active", "price"),
    ]
    assert items(client(Product, fields=fields), "list_products") == [
        {
            "uuid": str(key),
            "slug": "ball",
            "weight": 0.5,
            "rating": 3,
            "released": "2026-03-01",
            "sold_from": "08:30:00",
            "lead_time": "P2D",
            "details": {"a": [1, None]},
            "digest": "AP8=",
            "address": "10.0.0.1",
            "manual": {"name": "manuals/ball.pdf", "url": "/manuals/ball.pdf"},
            "photo": None,
            "is_active": True,
            "price": "9.50",
        }
    ]


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_a_number_that_json_cannot_say_is_null(value):
    product(slug="ball", weight=value)
    mcp_client = client(Product, fields=["slug", "weight"])
    assert items(mcp_client, "list_products") == [{"slug": "ball", "weight": None}]


@override_settings(USE_TZ=False)
def test_a_moment_without_time_zones_has_no_offset():
    order("A1", placed_at=dt.datetime(2026, 1, 2, 3))  # noqa: DTZ001 - the site keeps no zones
    mcp_client = client(Order, fields=["number", "placed_at"])
    shown = [{"number": "A1", "placed_at": "2026-01-02T03:00:00"}]
    assert items(mcp_client, "list_orders") == shown
    (tool,) = [
        definition for definition in mcp_client.list_tools() if definition["name"] == "list_orders"
    ]
    row = tool["outputSchema"]["properties"]["items"]["items"]
    assert row["properties"]["placed_at"] == {"type": "string"}


def test_what_is_listed_fits_the_published_schema():
    from mcp_django.schema.compiled import JSONSchemaOutput

    Passport.objects.create(customer=customer("Ada"), country="DE", number="1")
    made = order(customer=Customer.objects.get(name="Ada"))
    line(made).product.tags.add(Tag.objects.create(word="red"))
    fields = ["number", "customer", "customer__passport__country", "lines", "lines__product__tags"]
    mcp_client = client(Order, fields=fields)
    (tool,) = [
        definition for definition in mcp_client.list_tools() if definition["name"] == "list_orders"
    ]
    answer = mcp_client.call_tool("list_orders").structured
    assert JSONSchemaOutput(tool["outputSchema"]).dump(answer) == answer


# The size of an answer ------------------------------------------------------------------------


@override_settings(MCP_DJANGO={"MAX_RESULT_BYTES": 2000})
def test_a_page_that_is_too_long_ends_earlier_and_loses_no_row():
    numbers = [order(note="x" * 150).number for _ in range(30)]
    mcp_client = client(Order, fields=["number", "note"], ordering=["number"])
    seen, cursor = [], None
    while True:
        page = mcp_client.call_tool("list_orders", {"cursor": cursor} if cursor else {}).structured
        seen.extend(row["number"] for row in page["items"])
        cursor = page.get("next_cursor")
        if cursor is None:
            break
    assert seen == sorted(numbers)


@override_settings(MCP_DJANGO={"MAX_RESULT_BYTES": 2000})
def test_a_row_that_is_too_long_by_itself_has_its_texts_cut():
    product(slug="ball", description="x" * 5000)
    mcp_client = client(Product, fields=["slug", "description"], tools=["list", "get"])
    text = f"{'x' * 1000}… [Cut: the first 1000 of 5000 characters.]"
    assert items(mcp_client, "list_products") == [{"slug": "ball", "description": text}]
    got = mcp_client.call_tool("get_product", {"slug": "ball"}).structured
    assert got == {"slug": "ball", "description": text}


# Over HTTP ------------------------------------------------------------------------------------


def test_a_bug_in_the_row_gate_is_told_neutrally(caplog):
    class Wrong(tools(fields=["number"])):
        def get_queryset(self, ctx: Any) -> Any:
            return super().get_queryset(ctx).values("internal_note")

    order(internal_note="hush")
    result = reader(serve(Order, Wrong)).call_tool("list_orders", check=False)
    assert result.is_error
    assert "because of a server error" in result.text
    assert "values" in caplog.text
