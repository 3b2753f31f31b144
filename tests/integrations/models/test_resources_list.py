"""The objects of a model in `resources/list`."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db.models import QuerySet
from django.utils import timezone

from mcp_django import Context
from mcp_django.execution.handlers.listing import CURSOR_SIGNER
from mcp_django.integrations.models.resources import MAX_LISTED_TEXT
from mcp_django.protocol.cursors import MAX_CURSOR_LENGTH, Pager
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.test import MCPClient
from tests.integrations.models.building import customer, order, product
from tests.integrations.models.offering import listed, offer, reader
from tests.kit.drivers import message, send
from tests.kit.servers import person
from tests.sites.shop.models import Customer, Order, Passport, Product
from tests.spec import spec

pytestmark = pytest.mark.django_db


def paged(size: int, model: type[Any] = Order, *, user: Any = None, **options: Any) -> MCPClient:
    """Return a client of a server with pages of this size."""
    server = offer(model, **options)
    server._page_size = size
    return MCPClient(server=server, user=user)


# What an entry says ---------------------------------------------------------------------------


@spec("RSC-1")
def test_each_object_is_a_resource():
    moment = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
    order("A 1", status="paid", placed_at=moment)
    client = reader(
        fields=["number", "status", "placed_at"], title="status", last_modified="placed_at"
    )
    assert client.list_resources() == [
        {
            "uri": "shop://orders/A%201",
            "name": "A 1",
            "title": "paid",
            "mimeType": "application/json",
            "annotations": {"lastModified": "2026-05-01T12:00:00Z"},
        }
    ]


def test_without_a_title_the_noun_and_the_values_are_one():
    order("A-1", customer=customer(email="ada@shop.test"))
    client = reader(uri="shop://o/{customer__email}/{number}", fields=["number", "customer__email"])
    (resource,) = client.list_resources()
    assert resource["uri"] == "shop://o/ada%40shop.test/A-1"
    assert (resource["name"], resource["title"]) == ("ada@shop.test A-1", "Order ada@shop.test A-1")


def test_a_title_and_a_date_that_an_object_lacks_are_left_out():
    order("A-1", note="")
    options = {"fields": ["number", "note", "paid_at"], "title": "note", "last_modified": "paid_at"}
    (resource,) = reader(**options).list_resources()
    assert (resource["title"], "annotations" in resource) == ("Order A-1", False)


def test_a_long_title_is_cut():
    product(description="x" * 1000, slug="ball")
    options = {"uri": "shop://p/{slug}", "fields": ["slug", "description"], "title": "description"}
    (resource,) = reader(Product, **options).list_resources()
    assert resource["title"] == "x" * 200


@pytest.mark.parametrize("zone", ["UTC", "Europe/Amsterdam"])
def test_a_moment_is_said_in_one_zone(zone):
    order("A-1", placed_at=dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC))
    with timezone.override(zone):
        (resource,) = reader(
            fields=["number", "placed_at"], last_modified="placed_at"
        ).list_resources()
    assert resource["annotations"] == {"lastModified": "2026-05-01T12:00:00Z"}


def test_a_site_without_time_zones_means_its_own(settings):
    settings.USE_TZ = False
    settings.TIME_ZONE = "Europe/Amsterdam"
    order("A-1", placed_at=dt.datetime(2026, 5, 1, 12))  # noqa: DTZ001 - as such a site has them
    (resource,) = reader(fields=["number", "placed_at"], last_modified="placed_at").list_resources()
    assert resource["annotations"] == {"lastModified": "2026-05-01T12:00:00+02:00"}


def test_a_class_that_is_not_listed_has_its_template_alone():
    order("A-1")
    client = reader(list=False)
    assert client.list_resources() == []
    assert len(client.list_resource_templates()) == 1
    assert client.read_resource("shop://orders/A-1")


def test_objects_without_a_uri_are_left_out_and_the_rest_is_whole():
    for number in ("A", "..", "B", "x/../y"):
        order(number)
    Order.objects.filter(pk=order("empty").pk).update(number="")
    assert listed(paged(1)) == [[], [], ["A"], ["B"], []]
    Passport.objects.create(customer=customer(email="a@b.c"), country="NL", number="1")
    customer()
    client = reader(Customer, uri="shop://c/{passport__id}", fields=["passport__id"])
    assert len(client.list_resources()) == 1


def test_objects_whose_uri_no_cursor_could_hold_are_read_and_not_listed(monkeypatch):
    monkeypatch.setattr("mcp_django.integrations.models.resources.MAX_LISTED_TEXT", 10)
    for number in ("a" * 10, "b" * 11, "c"):
        order(number)
    client = paged(1)
    assert listed(client) == [["a" * 10], ["c"]]
    assert client.read_resource(f"shop://orders/{'b' * 11}")


def test_the_longest_text_that_is_listed_fits_into_a_cursor():
    for letter in ("\x01", "\U0001f600"):
        key = ["shop://" + "x" * 300, [letter * MAX_LISTED_TEXT]]
        assert len(Pager("x", 1, CURSOR_SIGNER).next(key)) < MAX_CURSOR_LENGTH


# What it costs --------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 20])
def test_a_page_is_one_statement(rows, django_assert_num_queries):
    for _ in range(rows):
        order()
    client = reader(
        uri="shop://o/{customer__email}/{number}",
        fields=["customer__email", "number", "customer__name", "placed_at"],
        title="customer__name",
        last_modified="placed_at",
    )
    with django_assert_num_queries(1):
        assert len(client.request("resources/list")["resources"]) == rows


def test_a_page_of_fixed_resources_alone_is_no_statement(django_assert_num_queries):
    order("A-1")
    server = offer()
    server._page_size = 1
    server.resource("shop://fixed")(lambda: "")
    with django_assert_num_queries(0):
        MCPClient(server=server).request("resources/list")


def test_only_what_is_shown_is_loaded(django_assert_num_queries):
    order("A-1")
    with django_assert_num_queries(1) as captured:
        reader().list_resources()
    assert "internal_note" not in captured.captured_queries[0]["sql"]


# The row gate ---------------------------------------------------------------------------------


def test_only_rows_within_the_gate_are_listed_and_fill_the_pages():
    def get_queryset(self: Any, ctx: Context) -> QuerySet[Order]:
        return Order.objects.filter(customer__user=ctx.user).select_related("customer")

    ada, bob = person("ada"), person("bob")
    for number in range(6):
        order(f"{number}", customer=customer(user=(ada, bob)[number % 2]))
    assert listed(paged(2, user=ada, get_queryset=get_queryset)) == [["0", "2"], ["4"]]
    assert listed(paged(2, user=bob, get_queryset=get_queryset)) == [["1", "3"], ["5"]]


def test_the_order_of_the_model_does_not_show():
    for number, margin in (("a", 1), ("b", 3), ("c", 2)):
        order(number, margin=margin)
    assert listed(paged(50)) == [["a", "b", "c"]]


# Every way in ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", REVISIONS)
def test_every_revision_lists_objects_in_pages(version):
    for number in "abc":
        order(number)
    server = offer()
    server._page_size = 2
    client = MCPClient(server=server, protocol_version=version)
    assert [len(page) for page in listed(client)] == [2, 1]


@pytest.mark.usefixtures("_closed")
@pytest.mark.django_db(transaction=True)
async def test_the_raw_mount_lists_objects_in_a_thread():
    await sync_to_async(order)("a")
    answer = await send(offer().asgi, "/", message("resources/list"))
    (resource,) = answer.json()["result"]["resources"]
    assert resource["uri"] == "shop://orders/a"


def test_a_value_with_a_slash_is_one_segment_of_a_uri():
    order("2026/17")
    client = reader()
    assert [resource["uri"] for resource in client.list_resources()] == ["shop://orders/2026%2F17"]
    assert client.read_resource("shop://orders/2026%2F17")
