"""Reading an object by the URI of its template."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404

from mcp_django import Context, MCPServer, ModelResource, ModelTools
from mcp_django.auth.permissions import AllowAny
from mcp_django.protocol.errors import INTERNAL_ERROR, INVALID_PARAMS
from mcp_django.test import ErrorResponse, MCPClient
from tests.integrations.models.building import customer, line, order, product
from tests.integrations.models.offering import URI, offer, reader
from tests.kit.drivers import message
from tests.kit.servers import post
from tests.sites.shop.models import Category, Customer, Order, Passport, Product

pytestmark = pytest.mark.django_db

NOT_FOUND = "Resource not found; see resources/list and resources/templates/list."


def content(client: MCPClient, uri: str) -> Any:
    """Return the only content of a URI."""
    (contents,) = client.read_resource(uri)
    assert (contents["uri"], contents["mimeType"]) == (uri, "application/json")
    return json.loads(contents["text"])


def failure(client: MCPClient, uri: str) -> tuple[int, str, Any]:
    with pytest.raises(ErrorResponse) as caught:
        client.read_resource(uri)
    return caught.value.code, caught.value.message, caught.value.data


def is_missing(client: MCPClient, uri: str) -> bool:
    return failure(client, uri) == (INVALID_PARAMS, NOT_FOUND, {"uri": uri})


# What is read ---------------------------------------------------------------------------------


def test_an_object_is_its_exposed_fields_as_json():
    ada = customer("Ada")
    line(order("A-1", customer=ada, internal_note="hush"), product=product("Ball"), quantity=2)
    client = reader(fields=["number", "customer__name", "lines__product__name", "lines__quantity"])
    assert content(client, "shop://orders/A-1") == {
        "number": "A-1",
        "customer": {"name": "Ada"},
        "lines": [{"product": {"name": "Ball"}, "quantity": 2}],
    }


def test_the_template_says_what_it_holds():
    (template,) = reader().list_resource_templates()
    assert template == {
        "uriTemplate": URI,
        "name": "order",
        "title": "Order",
        "description": "One order as JSON: number, status.",
        "mimeType": "application/json",
    }


def test_the_docstring_of_the_class_describes_the_template():
    class OrderMCP(ModelResource[Order]):
        """What somebody bought."""

        uri = URI
        fields = ["number"]
        permission = AllowAny

    server = MCPServer("shop", permission=AllowAny)
    assert server.register(Order, OrderMCP) is OrderMCP
    (template,) = MCPClient(server=server).list_resource_templates()
    assert template["description"] == "What somebody bought."


@pytest.mark.parametrize(
    ("model", "uri", "fields"),
    [
        (Order, "shop://o/{id}", ["id", "status"]),
        (Product, "shop://p/{uuid}", ["uuid", "name"]),
        (Product, "shop://p/{slug}", ["slug"]),
        (Category, "shop://c/{code}", ["code", "title"]),
        (Passport, "shop://passports/{customer}", ["customer", "country"]),
        (Passport, "shop://passports/{customer_id}", ["customer_id", "country"]),
        (Passport, "shop://passports/{customer__email}", ["customer__email"]),
        (Customer, "shop://of/{passport__id}", ["passport__id", "name"]),
        (Order, "shop://o/{customer__email}/{number}", ["customer__email", "number"]),
    ],
)
def test_variables_are_unique_columns_here_or_behind_a_relation(model, uri, fields):
    ada = customer("Ada", email="ada@shop.test")
    Passport.objects.create(customer=ada, country="NL", number="1")
    order("A/1 ü", customer=ada)
    product("Ball", slug="ball")
    client = reader(model, uri=uri, fields=fields)
    (listed,) = client.list_resources()
    assert content(client, listed["uri"]).keys() == {name.split("__")[0] for name in fields}


@pytest.mark.parametrize(
    "uri", [URI, "shop://orders/{+number}", "shop://{number}.x", "shop:o{number}"]
)
def test_strange_text_is_read_by_the_uri_that_the_list_gives(uri):
    numbers = [
        "a b",
        "a/b",
        "ü?#",
        "%41",
        "100%",
        "a+b",
        "a..b",
        "'\"<>",
        "/a",
        "a//b",
        "{b}",
        "a.x",
        "\U0001f600",
        " ",
        ".",
    ]
    for number in numbers:
        order(number)
    client = reader(uri=uri)
    numbers_read = {
        content(client, resource["uri"])["number"] for resource in client.list_resources()
    }
    assert numbers_read == set(numbers)


def test_the_same_class_gives_tools_and_resources():
    order("A-1")

    class OrderMCP(ModelResource[Order], ModelTools[Order]):
        uri = URI
        fields = ["number", "status"]
        permission = AllowAny

    server = MCPServer("shop", permission=AllowAny)
    server.register(Order)(OrderMCP)
    client = MCPClient(server=server)
    got = client.call_tool("get_order", {"number": "A-1"}).structured
    assert got == content(client, "shop://orders/A-1") == {"number": "A-1", "status": "open"}


def test_a_tool_reads_an_object_on_behalf_of_its_caller():
    order("A-1")
    server = offer()

    @server.tool
    def peek(ctx: Context) -> str:
        return str(ctx.read_resource("shop://orders/A-1")[0].content)

    assert json.loads(MCPClient(server=server).call_tool("peek").text)["number"] == "A-1"


def test_an_object_is_read_over_http(settings):
    order("A-1")
    server = offer()
    settings.ROOT_URLCONF = type("urls", (), {"urlpatterns": [_mounted(server)]})
    response = post("/shop", message("resources/read", {"uri": "shop://orders/A-1"}))
    (contents,) = response.json()["result"]["contents"]
    assert json.loads(contents["text"]) == {"number": "A-1", "status": "open"}
    response = post("/shop", message("resources/list"))
    assert [resource["uri"] for resource in response.json()["result"]["resources"]] == [
        "shop://orders/A-1"
    ]


def _mounted(server: MCPServer) -> Any:
    from django.urls import path

    return path("shop", server.urls)


@pytest.mark.usefixtures("_closed")
@pytest.mark.django_db(transaction=True)
async def test_an_object_is_read_from_an_event_loop():
    from asgiref.sync import sync_to_async

    await sync_to_async(order)("A-1")
    (contents,) = await reader().aread_resource("shop://orders/A-1")
    assert json.loads(contents["text"])["number"] == "A-1"


@pytest.mark.parametrize("lines", [1, 5])
def test_the_number_of_statements_does_not_depend_on_what_is_related(
    lines, django_assert_num_queries
):
    made = order("A-1")
    for number in range(lines):
        line(made, product=product(f"Ball {number}"))
    client = reader(fields=["number", "customer__name", "lines__product__name"])
    with django_assert_num_queries(2):
        assert len(content(client, "shop://orders/A-1")["lines"]) == lines


# What is not there ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "B-1",
        "a-1",
        "A-1%00",
        "A-1%20",
        "x" * 2000,
        "%ED%A0%80",
        "%F0%9F%98%80",
        "..",
        "A-1/",
        "A-1?x",
    ],
)
def test_what_names_no_object_is_not_found(text):
    order("A-1")
    assert is_missing(reader(), f"shop://orders/{text}")


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "01",
        "+1",
        "1.0",
        "one",
        "-1",
        "9" * 19,
        "9" * 30,
        "9" * 5000,
        "1_0",
        "%D9%A1",
        "%201",
        "1e1",
        "null",
    ],
)
def test_a_number_is_written_in_one_way(text):
    made = order("A-1", pk=1)
    client = reader(uri="shop://orders/{id}", fields=["id"])
    assert content(client, f"shop://orders/{made.pk}") == {"id": 1}
    assert is_missing(client, f"shop://orders/{text}")


def test_a_uuid_is_written_in_one_way():
    made = product()
    client = reader(Product, uri="shop://products/{uuid}", fields=["uuid"])
    text = str(made.uuid)
    assert content(client, f"shop://products/{text}") == {"uuid": text}
    for other in (text.upper(), made.uuid.hex, f"%7B{text}%7D", f"urn:uuid:{text}", text[:-1]):
        if other != text:
            assert is_missing(client, f"shop://products/{other}")


@pytest.mark.parametrize("exc", [PermissionDenied("no"), Http404("no"), Order.DoesNotExist("no")])
def test_a_row_gate_that_refuses_looks_like_one_that_hides(exc):
    def get_queryset(self: Any, ctx: Context) -> QuerySet[Order]:
        raise exc

    order("A-1")
    client = reader(get_queryset=get_queryset)
    assert is_missing(client, "shop://orders/A-1")
    assert client.list_resources() == []


def test_a_row_gate_that_breaks_is_a_bug_and_says_nothing():
    def get_queryset(self: Any, ctx: Context) -> QuerySet[Order]:
        raise RuntimeError("secret")

    code, message, _ = failure(reader(get_queryset=get_queryset), "shop://orders/A-1")
    assert code == INTERNAL_ERROR
    assert "secret" not in message


def test_rows_that_a_join_gives_twice_are_one_object():
    def get_queryset(self: Any, ctx: Context) -> QuerySet[Order]:
        return Order.objects.filter(lines__quantity__gte=1)

    made = order("A-1")
    line(made)
    line(made)
    client = reader(get_queryset=get_queryset)
    assert content(client, "shop://orders/A-1")["number"] == "A-1"
    assert [resource["name"] for resource in client.list_resources()] == ["A-1"]
