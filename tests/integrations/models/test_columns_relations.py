"""Related objects: nested, named, limited by row rules, cut, and loaded in few statements."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django.test import MCPClient
from tests.integrations.models.building import (
    category,
    client,
    customer,
    line,
    order,
    product,
    reader,
    serve,
    tools,
)
from tests.integrations.models.test_list_get import items
from tests.kit.servers import person
from tests.sites.shop.models import Customer, Order, OrderLine, Passport, Product, Tag

pytestmark = pytest.mark.django_db


# Relations ------------------------------------------------------------------------------------


def test_a_path_nests_what_is_related():
    made = order("A1", customer=customer("Ada"))
    line(made, product=product("Ball"), quantity=2)
    line(made, product=product("Doll"), quantity=1)
    mcp_client = client(
        Order, fields=["number", "customer__name", "lines__quantity", "lines__product__name"]
    )
    assert items(mcp_client, "list_orders") == [
        {
            "number": "A1",
            "customer": {"name": "Ada"},
            "lines": [
                {"quantity": 2, "product": {"name": "Ball"}},
                {"quantity": 1, "product": {"name": "Doll"}},
            ],
        }
    ]


def test_a_relation_to_nothing_is_null():
    made = customer("Ada")
    mcp_client = client(Customer, fields=["id", "referrer__name", "passport__country", "user"])
    assert items(mcp_client, "list_customers") == [
        {"id": made.pk, "referrer": None, "passport": None, "user": None}
    ]


def test_a_relation_alone_is_its_key_and_for_those_who_may_view_it_a_label():
    made = order("A1", customer=customer("Ada"))
    server = serve(Order, fields=["number", "customer"])
    key = {"id": made.customer_id}
    assert items(reader(server), "list_orders") == [{"number": "A1", "customer": key}]
    user = person()
    user.user_permissions.add(Permission.objects.get(codename="view_customer"))
    user = type(user).objects.get(pk=user.pk)
    assert items(reader(server, user), "list_orders") == [
        {"number": "A1", "customer": {**key, "label": "Ada"}}
    ]


def test_the_row_gate_of_a_related_model_decides_about_its_labels():
    class Open(tools(fields=["email"])):
        def get_queryset(self, ctx: Any) -> Any:
            return super().get_queryset(ctx).filter(name="Ada")

    ada = order("A1", customer=customer("Ada"))
    bob = order("A2", customer=customer("Bob"))
    server = serve(Order, fields=["number", "customer"])
    server.register(Customer, Open)
    user = person(is_superuser=True)
    assert items(reader(server, user), "list_orders") == [
        {"number": "A1", "customer": {"id": ada.customer_id, "label": "Ada"}},
        {"number": "A2", "customer": {"id": bob.customer_id}},
    ]


def test_a_list_of_related_rows_has_only_those_within_their_own_gate():
    class Red(tools(fields=["word"], filter_fields=["word"])):
        def get_queryset(self, ctx: Any) -> Any:
            return super().get_queryset(ctx).filter(word="red")

    red, blue = Tag.objects.create(word="red"), Tag.objects.create(word="blue")
    product("Ball", slug="ball").tags.add(red, blue)
    server = serve(Product, fields=["slug", "tags"], filter_fields=["tags"])
    shown = items(reader(server), "list_products")[0]["tags"]
    assert shown == [{"id": red.pk}, {"id": blue.pk}]
    server.register(Tag, Red)
    mcp_client = reader(server)
    assert items(mcp_client, "list_products")[0]["tags"] == [{"id": red.pk, "label": "red"}]
    assert len(items(mcp_client, "list_products", tags=red.pk)) == 1
    assert items(mcp_client, "list_products", tags=blue.pk) == []


def test_a_row_that_points_here_is_shown_only_within_its_own_gate():
    class Nobody(tools(fields=["id"])):
        def get_queryset(self, ctx: Any) -> Any:
            return super().get_queryset(ctx).none()

    ada = customer("Ada")
    passport = Passport.objects.create(customer=ada, country="DE", number="1")
    server = serve(Customer, fields=["id", "passport"], filter_fields=["passport"])
    shown = [{"id": ada.pk, "passport": {"id": passport.pk}}]
    assert items(reader(server), "list_customers", passport=passport.pk) == shown
    assert items(reader(server), "list_customers", passport__isnull=False) == shown
    server.register(Passport, Nobody)
    hidden = [{"id": ada.pk, "passport": None}]
    assert items(reader(server), "list_customers") == hidden
    # A caller from whom it is hidden cannot find the customer by it either.
    assert items(reader(server), "list_customers", passport=passport.pk) == []
    assert items(reader(server), "list_customers", passport__in=[passport.pk]) == []
    assert items(reader(server), "list_customers", passport__isnull=False) == []
    assert items(reader(server), "list_customers", passport__isnull=True) == hidden


def test_what_is_behind_a_row_that_is_not_shown_is_not_found_either():
    class Small(tools(fields=["id"])):
        def get_queryset(self, ctx: Any) -> Any:
            return super().get_queryset(ctx).filter(quantity__lt=5)

    made = order("A1")
    line(made, quantity=1, product=product("Ball"))
    line(made, quantity=7, product=product("Doll"))
    server = serve(
        Order,
        fields=["number", "lines", "lines__quantity", "lines__product__name"],
        filter_fields=["lines__quantity"],
        search_fields=["lines__product__name", "number"],
        tools=["list", "count"],
    )
    queries: list[dict[str, Any]] = [{"lines__quantity": 7}, {"search": "doll"}]
    for arguments in queries:
        assert len(items(reader(server), "list_orders", **arguments)) == 1
    server.register(OrderLine, Small)
    mcp_client = reader(server)
    assert [row["quantity"] for row in items(mcp_client, "list_orders")[0]["lines"]] == [1]
    for arguments in [*queries, {"lines__quantity__gte": 2}]:
        assert items(mcp_client, "list_orders", **arguments) == []
        assert mcp_client.call_tool("count_orders", arguments).structured == {"count": 0}
    for arguments in ({"lines__quantity": 1}, {"search": "ball"}, {"search": "a1 ball"}):
        assert len(items(mcp_client, "list_orders", **arguments)) == 1


def test_nothing_is_ordered_or_counted_by_what_is_behind_a_row_that_may_be_hidden():
    fields = ["id", "wallet", "wallet__coins"]
    with pytest.raises(ImproperlyConfigured, match="remove 'wallet' from fields, or 'wallet__c"):
        client(Customer, fields=fields, ordering_fields=["wallet__coins"])
    counting = client(Customer, fields=fields, tools=["count"])
    assert set(counting.list_tools()[0]["inputSchema"]["properties"]) <= {"sum_of"}
    assert counting.call_tool("count_customers", {"sum_of": "wallet__coins"}, check=False).is_error
    plain = client(Customer, fields=["id", "wallet__coins"], tools=["count"])
    assert not plain.call_tool("count_customers", {"sum_of": "wallet__coins"}).is_error


def test_many_related_rows_are_cut_and_said_to_be():
    made, bought = order(), product()
    for _ in range(101):
        line(made, product=bought)
    (row,) = items(client(Order, fields=["number", "lines"]), "list_orders")
    assert (len(row["lines"]), row["lines_cut"]) == (100, True)


def test_a_slug_as_key_is_a_label_too():
    product(slug="ball", category=category("toys", title="Toys"))
    user = person(is_superuser=True)
    server = serve(Product, fields=["slug", "category", "category__parent"])
    assert items(reader(server, user), "list_products") == [
        {"slug": "ball", "category": {"id": "toys", "label": "Toys", "parent": None}}
    ]


# Statements -----------------------------------------------------------------------------------


def statements(mcp_client: MCPClient, tool: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert not mcp_client.call_tool(tool).is_error
    return len(captured)


SHAPES = {
    "columns": (["total"], 2),
    "a key": (["customer_id"], 2),
    "to one": (["customer__name", "customer__referrer__name"], 2),
    "a label": (["customer"], 3),
    "back to one": (["customer__passport__country"], 2),
    "to many": (["lines__quantity"], 3),
    "labels of many": (["lines"], 3),
    "through many": (["lines__product__name", "lines__product__category__title"], 3),
    "many of many": (["lines__product__tags__word"], 4),
    "everything": (
        ["customer", "customer__name", "customer__orders", "lines", "lines__product"],
        6,
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_more_rows_cost_no_more_statements(shape):
    fields, expected = SHAPES[shape]
    server = serve(Order, fields=["number", *fields])
    user = person(is_superuser=True)
    tag = Tag.objects.create(word="red")

    def add() -> None:
        buyer = customer(referrer=customer())
        Passport.objects.create(customer=buyer, country="DE", number="1")
        made = order(customer=buyer)
        for _ in range(2):
            line(made).product.tags.add(tag)

    counted = []
    for _ in range(2):
        for _ in range(3):
            add()
        counted.append(statements(reader(server, user), "list_orders"))
    assert counted == [expected, expected]


def test_a_list_without_a_total_costs_one_statement():
    order()
    assert statements(client(Order, fields=["number"], count=False), "list_orders") == 1


def test_only_exposed_columns_are_read():
    order()
    with CaptureQueriesContext(connection) as captured:
        client(Order, fields=["number"], count=False).call_tool("list_orders")
    (query,) = [statement["sql"] for statement in captured]
    assert "internal_note" not in query
    assert "margin" not in query
