"""Cursors: each row once, even if rows change, and useless to other callers."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
import re
from decimal import Decimal
from typing import Any

import pytest
from django.test import override_settings

from mcp_django.test import MCPClient
from tests.integrations.models.building import client, customer, order, product, reader, serve
from tests.kit.servers import person
from tests.sites.shop.models import Order, Product

pytestmark = pytest.mark.django_db

ORDERS = [
    *("status", "total", "placed_at", "paid_at", "customer", "customer__name", "note"),
    "customer__referrer__name",
]


def pages(mcp_client: MCPClient, tool: str, **arguments: Any) -> list[list[dict[str, Any]]]:
    result: list[list[dict[str, Any]]] = []
    cursor: dict[str, Any] = {}
    while True:
        answer = mcp_client.call_tool(tool, {**arguments, **cursor})
        assert not answer.is_error, answer.text
        result.append(answer.structured["items"])
        if "next_cursor" not in answer.structured:
            return result
        cursor = {"cursor": answer.structured["next_cursor"]}


def stock(count: int) -> None:
    chance = random.Random(count)
    people = [customer(name, referrer=None) for name in ("Ada", "Bob", "Älfred", "🎈")]
    people += [customer("Eve", referrer=people[0])]
    for _ in range(count):
        order(
            status=chance.choice(["open", "paid"]),
            total=Decimal(chance.randrange(3)) / 4,
            placed_at=dt.datetime(2026, 1, chance.randrange(1, 4), tzinfo=dt.UTC),
            paid_at=chance.choice([None, dt.datetime(2026, 1, 1, 0, 0, 0, 7, tzinfo=dt.UTC)]),
            customer=chance.choice(people),
            note=chance.choice(["", "a", "B", "ä", "'", "\n"]),
        )


@pytest.mark.parametrize("name", ORDERS)
def test_pages_in_any_order_hold_each_row_once(name):
    stock(20)
    mcp_client = client(Order, fields=["number", *ORDERS], ordering_fields=ORDERS)
    for order_by in (name, f"-{name}"):
        whole = mcp_client.call_tool("list_orders", {"order_by": order_by}).structured["items"]
        assert len({row["number"] for row in whole}) == len(whole) == 20, order_by
        for limit in (1, 3):
            case = f"{order_by}, {limit} on a page"
            many = pages(mcp_client, "list_orders", order_by=order_by, limit=limit)
            assert [row for page in many for row in page] == whole, case
            assert [len(page) for page in many[:-1]] == [limit] * (len(many) - 1), case


def test_several_columns_together_decide_where_a_page_ends():
    stock(30)
    fields = ["number", "status", "paid_at", "total"]
    mcp_client = client(Order, fields=fields, ordering=["-status", "paid_at", "-total"])
    rows = mcp_client.call_tool("list_orders").structured["items"]
    assert [row for page in pages(mcp_client, "list_orders", limit=4) for row in page] == rows


@pytest.mark.parametrize(
    "name", ["weight", "price", "stock", "released", "sold_from", "lead_time", "uuid", "address"]
)
def test_each_kind_of_column_can_end_a_page(name):
    for number in range(4):
        product(
            slug=f"p{number}",
            weight=[0.1, None, 1e-300, 1 / 3][number],
            price=Decimal("0.10") * number,
            stock=number,
            released=[None, *(dt.date(2026, 1, day) for day in (1, 2, 3))][number],
            sold_from=dt.time(number, 0, 0, number),
            lead_time=dt.timedelta(microseconds=number),
            address=[None, "::1", "10.0.0.1", "10.0.0.2"][number],
        )
    mcp_client = client(Product, fields=["slug", name], ordering_fields=[name])
    for order_by in (name, f"-{name}"):
        rows = mcp_client.call_tool("list_products", {"order_by": order_by}).structured["items"]
        many = pages(mcp_client, "list_products", order_by=order_by, limit=1)
        assert [row for page in many for row in page] == rows


def test_rows_that_come_and_go_move_no_others():
    for number in ("B", "D", "F", "H"):
        order(number)
    mcp_client = client(Order, fields=["number"], ordering=["number"])
    first = mcp_client.call_tool("list_orders", {"limit": 2}).structured
    assert (first["total"], [row["number"] for row in first["items"]]) == (4, ["B", "D"])
    Order.objects.filter(number__in=["B", "D"]).delete()
    order("A")
    order("E")
    second = mcp_client.call_tool(
        "list_orders", {"limit": 2, "cursor": first["next_cursor"]}
    ).structured
    assert [row["number"] for row in second["items"]] == ["E", "F"]
    assert "total" not in second


# Of another -----------------------------------------------------------------------------------


def first_cursor(mcp_client: MCPClient, **arguments: Any) -> str:
    return str(
        mcp_client.call_tool("list_orders", {"limit": 1, **arguments}).structured["next_cursor"]
    )


def refused(mcp_client: MCPClient, cursor: Any, **arguments: Any) -> bool:
    result = mcp_client.call_tool("list_orders", {"cursor": cursor, **arguments}, check=False)
    assert not result.is_error or result.text.startswith("cursor: "), result.text
    return result.is_error


OPTIONS = {
    "fields": ["number", "status", "total"],
    "filter_fields": ["status"],
    "search_fields": ["number"],
    "ordering_fields": ["number", "total"],
}


def test_a_cursor_is_good_for_the_same_question_alone():
    order("A"), order("B")
    mcp_client = client(Order, **OPTIONS)
    cursor = first_cursor(mcp_client, status="open")
    assert not refused(mcp_client, cursor, status="open")
    assert not refused(mcp_client, cursor, status="open", limit=50)
    assert refused(mcp_client, cursor)
    assert refused(mcp_client, cursor, status="paid")
    assert refused(mcp_client, cursor, status="open", search="A")
    assert refused(mcp_client, cursor, status="open", order_by="number")


def test_a_cursor_is_good_for_its_caller_and_server_alone():
    order("A"), order("B")
    server = serve(Order, **OPTIONS)
    cursor = first_cursor(reader(server, person("ada")))
    assert refused(reader(server, person("bob")), cursor)
    assert refused(reader(server), cursor)
    other = serve(Order, plural="parcels", **OPTIONS)
    result = reader(other).call_tool(
        "list_parcels", {"cursor": first_cursor(reader(server))}, check=False
    )
    assert result.is_error


@pytest.mark.parametrize(
    "forge",
    [
        lambda cursor: "x",
        lambda cursor: cursor[:-1],
        lambda cursor: cursor[1:],
        lambda cursor: "A" + cursor[1:] if cursor[0] != "A" else "B" + cursor[1:],
        lambda cursor: cursor + "A",
        lambda cursor: cursor * 100,
        lambda cursor: "\0",
        lambda cursor: "🎈",
        lambda cursor: base64.b64encode(b'["x", ["A"]]').decode(),
        lambda cursor: 7,
        lambda cursor: [cursor],
    ],
)
def test_a_forged_cursor_is_refused_in_one_sentence(forge):
    order("A"), order("B")
    mcp_client = client(Order, **OPTIONS)
    assert refused(mcp_client, forge(first_cursor(mcp_client)))


def test_a_cursor_of_the_list_methods_is_none_of_a_tool():
    from mcp_django.execution.handlers.listing import CURSOR_SIGNER
    from mcp_django.protocol.cursors import Pager

    order("A"), order("B")
    mcp_client = client(Order, **OPTIONS)
    pager = Pager("shop:tools/list:anonymous", 1, CURSOR_SIGNER)
    assert refused(mcp_client, pager.next(["A"]))


def test_a_cursor_holds_what_the_page_shows_and_nothing_else():
    buyer = customer()
    for number in ("A", "B"):
        order(number, customer=buyer, id=987654320 + ord(number) - 65, margin=777)
    cursor = first_cursor(client(Order, **OPTIONS), order_by="-total")
    digest, position = json.loads(base64.urlsafe_b64decode(cursor.partition(":")[0]))
    assert position == ["0.00", "A"]
    assert re.fullmatch("[A-Za-z0-9_=-]+", digest)


def test_a_cursor_outlives_the_secret_key_that_signed_it():
    order("A"), order("B")
    mcp_client = client(Order, **OPTIONS)
    cursor = first_cursor(mcp_client)
    with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=["only-for-tests"]):
        assert not refused(mcp_client, cursor)
    with override_settings(SECRET_KEY="another"):
        assert refused(mcp_client, cursor)
