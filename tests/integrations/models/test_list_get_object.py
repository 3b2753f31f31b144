"""`get_…`: one object by its key."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from tests.integrations.models.building import (
    client,
    customer,
    order,
    product,
    reader,
    serve,
    tools,
)
from tests.sites.shop.models import Category, Order, Product

pytestmark = pytest.mark.django_db


def test_an_object_is_shown_as_in_a_list():
    made = order("A1", customer=customer("Ada"))
    mcp_client = client(Order, fields=["id", "number", "customer__name"], tools=["list", "get"])
    (listed,) = mcp_client.call_tool("list_orders").structured["items"]
    got = mcp_client.call_tool("get_order", {"id": made.pk}).structured
    assert got == listed == {"id": made.pk, "number": "A1", "customer": {"name": "Ada"}}


@pytest.mark.parametrize(
    ("fields", "options", "key", "value"),
    [
        (["name", "slug"], {}, "slug", "ball"),
        (["name", "slug", "id"], {}, "id", None),
        (["name", "slug", "id"], {"key": "slug"}, "slug", "ball"),
        (["uuid", "name"], {}, "uuid", str(uuid.UUID(int=5))),
    ],
)
def test_the_key_is_an_exposed_unique_field(fields, options, key, value):
    made = product("Ball", slug="ball", uuid=uuid.UUID(int=5))
    mcp_client = client(Product, fields=fields, tools=["get"], **options)
    (tool,) = mcp_client.list_tools()
    assert tool["inputSchema"]["required"] == list(tool["inputSchema"]["properties"]) == [key]
    got = mcp_client.call_tool("get_product", {key: made.pk if value is None else value})
    assert got.structured["name"] == "Ball"


def test_a_text_as_primary_key_is_a_key():
    Category.objects.create(code="toys", title="Toys")
    mcp_client = client(Category, fields=["code", "title"], tools=["get"])
    assert mcp_client.call_tool("get_category", {"code": "toys"}).structured["title"] == "Toys"


def test_hidden_and_unknown_answer_alike():
    class Mine(tools(fields=["number"], tools=["list", "get"])):
        def get_queryset(self, ctx: Any) -> Any:
            return super().get_queryset(ctx).filter(status="open")

    order("HIDDEN", status="paid")
    mcp_client = reader(serve(Order, Mine))
    hidden = mcp_client.call_tool("get_order", {"number": "HIDDEN"}, check=False)
    unknown = mcp_client.call_tool("get_order", {"number": "UNSEEN"}, check=False)
    assert hidden.is_error
    assert hidden.text == 'There is no order with number "HIDDEN"; see list_orders.'
    assert hidden.text.replace("HIDDEN", "UNSEEN") == unknown.text


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"number": None},
        {"number": "a\0"},
        {"number": ["A1"]},
        {"number": "A1", "status": "open"},
        {"number__startswith": "A"},
        {"pk": 1},
    ],
)
def test_a_bad_key_is_refused(arguments):
    order("A1")
    result = client(Order, fields=["number"], tools=["get"]).call_tool(
        "get_order", arguments, check=False
    )
    assert result.is_error
    assert "number" in result.text


@pytest.mark.parametrize("key", [2**63, -(2**63) - 1, 10**400, "x", 1.5])
def test_a_number_that_no_database_holds_is_no_key(key):
    result = client(Order, fields=["id"], tools=["get"]).call_tool(
        "get_order", {"id": key}, check=False
    )
    assert result.is_error
    assert len(result.text) < 300


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fields": ["status"]}, "no field in fields identifies one order: add 'id'"),
        ({"fields": ["number"], "key": "status"}, "not a unique column in fields"),
        ({"fields": ["number"], "key": "id"}, "unique columns: number"),
    ],
)
def test_without_a_key_nothing_can_be_got(options, words):
    with pytest.raises(ImproperlyConfigured) as caught:
        client(Order, tools=["get"], **options)
    assert words in str(caught.value)
