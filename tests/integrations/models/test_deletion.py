"""`delete_…`: what is deleted with an object, and what prevents the deletion."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.signals import pre_delete

from mcp_django.integrations.models import deletion
from mcp_django.test import MCPClient
from tests.integrations.models.building import category, customer, line, order, product
from tests.integrations.models.writers import KEPT, ORDER, may_all, server_of, tool, writer
from tests.sites.shop.models import (
    Category,
    Customer,
    Order,
    OrderLine,
    Passport,
    Product,
    Remark,
    SpecialOrder,
    Tag,
    Voucher,
)

pytestmark = pytest.mark.django_db


def test_an_object_is_deleted_and_the_answer_counts_what_went_along():
    bought = order("N1")
    line(bought)
    line(bought)
    client = writer(Order, user=may_all(Order, OrderLine), fields=ORDER)
    result = client.call_tool("delete_order", {"number": "N1"})
    assert result.structured == {"deleted": {"shop.Order": 1, "shop.OrderLine": 2}}
    assert not Order.objects.exists()
    assert not OrderLine.objects.exists()


def test_what_hangs_on_it_deeper_down_is_counted_too():
    buyer = customer("Ada")
    Passport.objects.create(customer=buyer, country="GB", number="1")
    line(order(customer=buyer))
    friend = customer("Bob", referrer=buyer)
    user = may_all(Customer, Order, OrderLine, Passport)
    client = writer(Customer, user=user, fields=["email", "name"])
    result = client.call_tool("delete_customer", {"email": buyer.email})
    assert result.structured == {
        "deleted": {
            "shop.Customer": 1,
            "shop.Order": 1,
            "shop.OrderLine": 1,
            "shop.Passport": 1,
        },
        "detached": {"shop.Customer": 1},
    }
    friend.refresh_from_db()
    assert friend.referrer is None


def test_links_are_no_objects():
    ball = product(slug="ball")
    ball.tags.add(Tag.objects.create(word="red"))
    client = writer(Product, fields=["slug"], tools=["delete"])
    result = client.call_tool("delete_product", {"slug": "ball"})
    assert result.structured == {"deleted": {"shop.Product": 1}}
    assert Tag.objects.exists()


def test_what_protects_it_is_named_by_number_and_model():
    category("toys")
    product("Secret ball")
    product("Ball")
    client = writer(Category, user=may_all(Category, Product), fields=["code", "title"])
    result = client.call_tool("delete_category", {"code": "toys"}, check=False)
    assert result.text == (
        "This category cannot be deleted while it is referred to (2 shop.Product). Delete those "
        "first, or have them refer to something else."
    )
    assert Category.objects.exists()


def test_what_the_caller_may_not_see_is_neither_named_nor_counted():
    category("toys")
    bought = order("N1", customer=customer("Ada"))
    line(bought)
    client = writer(Category, fields=["code", "title"])
    result = client.call_tool("delete_category", {"code": "toys"}, check=False)
    assert result.text == (
        "This category cannot be deleted while it is referred to (by objects that you may not see)."
    )
    orders = writer(Order, user=may_all(Order, username="bob"), fields=ORDER)
    result = orders.call_tool("delete_order", {"number": "N1"})
    assert result.structured == {"deleted": {"shop.Order": 1}}


def test_of_a_model_with_a_row_gate_the_visible_rows_are_counted():
    bought = order("N1")
    line(bought, secret="")
    line(bought, secret="x")
    gate = {
        "fields": ["id"],
        "get_queryset": lambda self, ctx: OrderLine.objects.filter(secret=""),
    }
    server = server_of(Order, (OrderLine, gate), fields=ORDER)
    client = MCPClient(server=server, user=may_all(Order, OrderLine))
    result = client.call_tool("delete_order", {"number": "N1"})
    assert result.structured["deleted"] == {"shop.Order": 1, "shop.OrderLine": 1}
    assert not OrderLine.objects.exists()


def test_a_missing_object_is_said_to_be_missing():
    client = writer(Order, fields=ORDER)
    result = client.call_tool("delete_order", {"number": "N9"}, check=False)
    assert result.text == client.call_tool("get_order", {"number": "N9"}, check=False).text


def test_a_site_may_hide_instead_of_delete():
    def perform_delete(self: Any, ctx: Any, obj: Order) -> None:
        obj.internal_note = "deleted"
        obj.save()

    line(order("N1"))
    client = writer(
        Order,
        user=may_all(Order, OrderLine),
        fields=ORDER,
        perform_delete=perform_delete,
        get_queryset=lambda self, ctx: Order.objects.exclude(internal_note="deleted"),
    )
    call = {"number": "N1"}
    assert client.call_tool("delete_order", call).structured == {"deleted": {"shop.Order": 1}}
    assert client.call_tool("delete_order", call, check=False).is_error
    assert OrderLine.objects.count() == 1


def test_where_nothing_was_deleted_nothing_is_said_to_be():
    order("N1")
    client = writer(Order, fields=ORDER, perform_delete=lambda self, ctx, obj: None)
    assert client.call_tool("delete_order", {"number": "N1"}).structured == {"deleted": {}}


def test_it_says_that_it_destroys():
    definition = tool(writer(Order, fields=ORDER), "delete_order")
    assert definition["annotations"] == {"readOnlyHint": False, "destructiveHint": True}
    assert definition["inputSchema"]["required"] == ["number"]
    assert list(definition["inputSchema"]["properties"]) == ["number", "preview"]


# --- deletions of more than Django's collector finds


def delete_subtree(self: Any, ctx: Any, obj: Category) -> None:
    """Delete as trees with paths do: also rows that do not refer to the object by a foreign key."""
    Category.objects.filter(code__startswith=obj.code).delete()


def subtree(*codes: str) -> None:
    for code in codes:
        category(code)


def test_a_deletion_that_takes_more_along_is_counted_as_it_was():
    subtree("toys", "toys-balls", "toys-bears", "shoes")
    client = writer(Category, fields=["code", "title"], tools=KEPT, perform_delete=delete_subtree)
    preview = client.call_tool("delete_category", {"code": "toys", "preview": True})
    assert preview.structured == {"preview": True, "cascade": {"shop.Category": 3}}
    assert Category.objects.count() == 4
    done = client.call_tool("delete_category", {"code": "toys"})
    assert done.structured == {"deleted": {"shop.Category": 3}}
    assert [row.code for row in Category.objects.all()] == ["shoes"]


def test_raw_statements_and_signals_are_counted_too():
    def perform_delete(self: Any, ctx: Any, obj: Order) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"delete from {OrderLine._meta.db_table} where order_id = %s", [obj.pk])
            cursor.execute(f"UPDATE {quoted(Customer)} SET {quote('referrer_id')} = NULL WHERE 1=1")
        obj.delete()

    quote = connection.ops.quote_name

    def quoted(model: Any) -> str:
        return str(quote(model._meta.db_table))

    buyer = customer("Ada")
    customer("Bob", referrer=buyer)
    line(order("N1", customer=buyer))
    client = writer(
        Order,
        user=may_all(Order, OrderLine, Customer),
        fields=ORDER,
        perform_delete=perform_delete,
    )
    counts = client.call_tool("delete_order", {"number": "N1", "preview": True}).structured
    assert counts["cascade"] == {"shop.Order": 1}
    assert counts["detached"] == {"shop.Customer": 2}


def test_only_visible_rows_of_a_larger_deletion_are_counted():
    subtree("toys", "toys-balls", "toys-secret", "shoes")
    client = writer(
        Category,
        fields=["code", "title"],
        tools=KEPT,
        perform_delete=delete_subtree,
        get_queryset=lambda self, ctx: Category.objects.exclude(code__endswith="secret"),
    )
    done = client.call_tool("delete_category", {"code": "toys"})
    assert done.structured == {"deleted": {"shop.Category": 2}}
    assert not Category.objects.filter(code="toys-secret").exists()


def test_beyond_the_bound_counts_are_minimums(monkeypatch):
    monkeypatch.setattr(deletion, "MAX_COUNTED", 3)
    subtree("toys", *(f"toys-{number}" for number in range(5)), "secret")
    client = writer(
        Category,
        fields=["code", "title"],
        tools=KEPT,
        perform_delete=delete_subtree,
        get_queryset=lambda self, ctx: Category.objects.exclude(code="secret"),
    )
    counts = client.call_tool("delete_category", {"code": "toys", "preview": True}).structured
    assert counts == {"preview": True, "cascade": {"shop.Category": 1}, "at_least": True}


def gate(model: Any, **condition: Any) -> tuple[Any, dict[str, Any]]:
    """Return a registration whose row rule hides the rows of this condition."""
    rows = model.objects.exclude(**condition)
    return model, {"fields": [model._meta.pk.name], "get_queryset": lambda self, ctx: rows}


def test_a_cascade_of_django_is_counted_beyond_the_bound(monkeypatch):
    monkeypatch.setattr(deletion, "MAX_COUNTED", 3)
    buyer = customer("Ada")
    for number in range(5):
        order(f"N{number}", customer=buyer)
    server = server_of(Customer, gate(Order, number="x"), fields=["email", "name"])
    client = MCPClient(server=server, user=may_all(Order, Customer))
    counts = client.call_tool("delete_customer", {"email": buyer.email}).structured
    assert counts == {"deleted": {"shop.Customer": 1, "shop.Order": 5}}
    assert not Order.objects.exists()


@pytest.mark.parametrize("number", [0, 5])
def test_nothing_tells_how_many_hidden_rows_go_along(monkeypatch, number):
    monkeypatch.setattr(deletion, "MAX_COUNTED", 3)
    buyer = customer("Ada")
    for index in range(number):
        order(f"N{index}", customer=buyer, note="hidden")
    server = server_of(Customer, gate(Order, note="hidden"), fields=["email", "name"])
    client = MCPClient(server=server, user=may_all(Order, Customer))
    counts = client.call_tool("delete_customer", {"email": buyer.email}).structured
    assert counts == {"deleted": {"shop.Customer": 1}}


@pytest.mark.parametrize("has_hidden", [False, True])
def test_nothing_tells_of_hidden_rows_that_a_signal_deletes(*, has_hidden):
    def delete_lines(sender: Any, instance: Any, **kwargs: Any) -> None:
        OrderLine.objects.filter(secret="hidden").delete()

    bought, other = order("N1"), order("N2")
    if has_hidden:
        line(other, secret="hidden")
    server = server_of(Order, gate(OrderLine, secret="hidden"), fields=ORDER)
    client = MCPClient(server=server, user=may_all(Order, OrderLine))
    pre_delete.connect(delete_lines, sender=Order)
    try:
        counts = client.call_tool("delete_order", {"number": bought.number}).structured
    finally:
        pre_delete.disconnect(delete_lines, sender=Order)
    assert counts == {"deleted": {"shop.Order": 1}}


def test_visible_rows_that_a_signal_deletes_are_counted():
    def delete_lines(sender: Any, instance: Any, **kwargs: Any) -> None:
        OrderLine.objects.all().delete()

    bought, other = order("N1"), order("N2")
    line(other)
    line(other, secret="hidden")
    server = server_of(Order, gate(OrderLine, secret="hidden"), fields=ORDER)
    client = MCPClient(server=server, user=may_all(Order, OrderLine))
    pre_delete.connect(delete_lines, sender=Order)
    try:
        counts = client.call_tool("delete_order", {"number": bought.number}).structured
    finally:
        pre_delete.disconnect(delete_lines, sender=Order)
    assert counts == {"deleted": {"shop.Order": 1, "shop.OrderLine": 1}}


def test_what_was_rolled_back_to_a_savepoint_was_not_deleted():
    def perform_delete(self: Any, ctx: Any, obj: Order) -> None:
        with suppress(LookupError), transaction.atomic():
            OrderLine.objects.all().delete()
            raise LookupError
        obj.delete()

    bought, other = order("N1"), order("N2")
    line(other)
    client = writer(
        Order, user=may_all(Order, OrderLine), fields=ORDER, perform_delete=perform_delete
    )
    counts = client.call_tool("delete_order", {"number": bought.number}).structured
    assert counts == {"deleted": {"shop.Order": 1}}
    assert OrderLine.objects.exists()


def test_what_goes_along_with_a_row_that_is_only_hidden_is_counted():
    def perform_delete(self: Any, ctx: Any, obj: Order) -> None:
        obj.lines.all().delete()
        obj.internal_note = "deleted"
        obj.save()

    line(order("N1"))
    client = writer(
        Order,
        user=may_all(Order, OrderLine),
        fields=ORDER,
        perform_delete=perform_delete,
        get_queryset=lambda self, ctx: Order.objects.exclude(internal_note="deleted"),
    )
    counts = client.call_tool("delete_order", {"number": "N1"}).structured
    assert counts == {"deleted": {"shop.OrderLine": 1, "shop.Order": 1}}


def test_hidden_rows_are_not_hinted_at():
    subtree("toys", "toys-balls")
    bought = order("N1")
    line(bought)

    def perform_delete(self: Any, ctx: Any, obj: Order) -> None:
        Category.objects.filter(code__startswith="toys-").delete()
        obj.delete()

    client = writer(Order, fields=ORDER, perform_delete=perform_delete)
    done = client.call_tool("delete_order", {"number": "N1"})
    assert done.structured == {"deleted": {"shop.Order": 1}}


def test_a_statement_that_names_no_number_makes_the_counts_minimums():
    def perform_delete(self: Any, ctx: Any, obj: Order) -> None:
        with connection.cursor() as cursor:
            table = OrderLine._meta.db_table
            cursor.execute(f"WITH one AS (SELECT 1) DELETE FROM {table}")
        obj.delete()

    line(order("N1"))
    client = writer(Order, fields=ORDER, perform_delete=perform_delete)
    done = client.call_tool("delete_order", {"number": "N1"})
    assert done.structured == {"deleted": {"shop.Order": 1}, "at_least": True}


def test_rows_that_are_found_twice_are_counted_once():
    special = SpecialOrder.objects.create(
        number="S1", customer=customer("Ada"), placed_at="2026-03-01T12:00:00Z"
    )
    line(special)
    line(special)
    server = server_of(SpecialOrder, gate(Order, note="x"), fields=["number", "note"], tools=KEPT)
    user = may_all(SpecialOrder, Order, OrderLine)
    counts = MCPClient(server=server, user=user).call_tool("delete_special_order", {"number": "S1"})
    assert counts.structured == {
        "deleted": {"shop.SpecialOrder": 1, "shop.Order": 1, "shop.OrderLine": 2}
    }


def test_generic_and_hidden_relations_are_looked_at_too():
    red = Tag.objects.create(word="red")
    voucher = Voucher.objects.create(tag=red)
    Remark.objects.create(text="seen", about=voucher)
    Remark.objects.create(text="hidden", about=voucher)
    server = server_of(Voucher, gate(Remark, text="hidden"), fields=["id", "worth"], tools=KEPT)
    client = MCPClient(server=server, user=may_all(Voucher, Remark))
    counts = client.call_tool("delete_voucher", {"id": str(voucher.pk)}).structured
    assert counts == {"deleted": {"shop.Voucher": 1, "shop.Remark": 1}}
