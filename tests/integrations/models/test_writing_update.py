"""`update_…`: the named fields change, by the site's rules, and nothing else does."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django.integrations.models import writing
from mcp_django.test import MCPClient
from tests.integrations.models.building import category, customer, order, product
from tests.integrations.models.writers import KEPT, ORDER, may_all, server_of, tool, writer
from tests.sites.shop.models import Category, Customer, Order, Product, Tag

pytestmark = pytest.mark.django_db


def test_only_what_is_sent_changes():
    before = order("N1", note="old", internal_note="hidden", total=5)
    client = writer(Order, fields=ORDER)
    shown = client.call_tool("update_order", {"number": "N1", "status": "paid"}).structured
    assert shown["status"] == "paid"
    assert shown == client.call_tool("get_order", {"number": "N1"}).structured
    after = Order.objects.get()
    assert (after.status, after.note, after.internal_note, after.total) == (
        "paid",
        "old",
        "hidden",
        5,
    )
    assert after.placed_at == before.placed_at


def test_nothing_is_required_but_the_key_and_nothing_has_a_default():
    update = tool(writer(Order, fields=ORDER), "update_order")
    schema = update["inputSchema"]
    assert schema["required"] == ["number"]
    assert "default" not in schema["properties"]["status"]
    assert list(schema["properties"]) == [
        "number", "status", "total", "placed_at", "customer", "note", "clear", "preview",
    ]  # fmt: skip
    assert update["annotations"] == {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": True,
    }


def test_the_key_names_the_object_and_does_not_change():
    order("N1")
    result = writer(Order, fields=ORDER).call_tool("update_order", {"number": "N1"}, check=False)
    assert result.text == (
        "There is nothing to change: send at least one of status, total, placed_at, customer, note."
    )


def test_an_object_that_is_not_there_is_said_to_be_missing():
    client = writer(Order, fields=ORDER)
    missing = {"number": "N9", "status": "paid"}
    assert client.call_tool("update_order", missing, check=False).text == (
        client.call_tool("get_order", {"number": "N9"}, check=False).text
    )


def test_null_is_what_clients_send_for_nothing_and_clear_empties():
    bought = order("N1", note="old", paid_at="2026-01-01T00:00:00Z")
    client = writer(Order, fields=[*ORDER, "paid_at"])
    sent = {"number": "N1", "status": "paid", "paid_at": None, "note": None}
    assert not client.call_tool("update_order", sent).is_error
    bought.refresh_from_db()
    assert bought.paid_at is not None
    assert bought.note == "old"
    sent = {"number": "N1", "clear": ["paid_at", "note"]}
    shown = client.call_tool("update_order", sent).structured
    assert (shown["paid_at"], shown["note"]) == (None, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"clear": ["number"]}, 'clear[0]: must be "note" (got "number")'),
        (
            {"clear": ["note"], "note": "x"},
            "note: has a value and is also in clear; send only one",
        ),
        ({"clear": "note"}, 'clear: must be an array (got "note")'),
    ],
)
def test_only_what_can_be_empty_is_emptied(arguments, message):
    order("N1")
    result = writer(Order, fields=ORDER).call_tool(
        "update_order", {"number": "N1", **arguments}, check=False
    )
    assert result.text == message


def test_empty_columns_of_every_kind():
    product(
        slug="ball", weight=1, released="2026-01-01", sold_from="08:00", address="10.0.0.1",
        lead_time=dt.timedelta(hours=1), details={"a": 1}, description="round",
    )  # fmt: skip
    emptied = ["weight", "released", "sold_from", "lead_time", "address", "description"]
    client = writer(Product, fields=["slug", *emptied], tools=KEPT)
    shown = client.call_tool("update_product", {"slug": "ball", "clear": emptied}).structured
    assert shown == {"slug": "ball", **dict.fromkeys(emptied), "description": ""}


def test_no_and_nothing_and_zero_are_values():
    product(slug="ball", stock=5, details={"a": 1}, description="round")
    fields = ["slug", "stock", "is_active", "description", "details"]
    sent = {"slug": "ball", "stock": 0, "is_active": False, "description": "", "details": {}}
    client = writer(Product, fields=fields, tools=KEPT)
    assert client.call_tool("update_product", sent).structured == sent


def test_a_list_of_keys_replaces_the_links():
    red, blue, green = (Tag.objects.create(word=word) for word in ("red", "blue", "green"))
    product(slug="ball").tags.set([red, blue])
    client = writer(Product, fields=["slug", "tags"], tools=KEPT)
    shown = client.call_tool("update_product", {"slug": "ball", "tags": [blue.pk, green.pk]})
    assert shown.structured["tags"] == [{"id": blue.pk}, {"id": green.pk}]
    shown = client.call_tool("update_product", {"slug": "ball", "tags": []})
    assert shown.structured["tags"] == []


def test_links_that_are_not_sent_are_not_read():
    product(slug="ball").tags.set([Tag.objects.create(word="red")])
    client = writer(Product, fields=["slug", "name"], write_fields=["name", "tags"], tools=KEPT)
    with CaptureQueriesContext(connection) as captured:
        client.call_tool("update_product", {"slug": "ball", "name": "New"})
    assert not [query for query in captured if "shop_tag" in query["sql"]]


def test_links_to_hidden_rows_stay():
    seen, hidden = Tag.objects.create(word="seen"), Tag.objects.create(word="hidden", secret="x")
    ball = product(slug="ball")
    ball.tags.set([seen, hidden])
    gate = {"fields": ["word"], "get_queryset": lambda self, ctx: Tag.objects.filter(secret="")}
    server = server_of(Product, (Tag, gate), fields=["slug", "tags"], tools=KEPT)
    client = MCPClient(server=server, user=may_all(Product, Tag))
    shown = client.call_tool("update_product", {"slug": "ball", "tags": []}).structured
    assert shown["tags"] == []
    assert list(ball.tags.all()) == [hidden]


def test_rules_over_several_fields_know_the_values_that_were_not_sent():
    order("N1", total=5)
    client = writer(Order, fields=ORDER)
    result = client.call_tool("update_order", {"number": "N1", "total": -1}, check=False)
    assert result.text == "Constraint “shop_total_positive” is violated"
    Order.objects.update(note="x")
    assert not client.call_tool("update_order", {"number": "N1", "status": "paid"}).is_error


def test_a_model_may_complain_of_a_field_that_was_not_sent(monkeypatch):
    def clean(self: Order) -> None:
        if self.status == "paid":
            raise ValidationError(
                {
                    "internal_note": f"Not with {self.internal_note}.",
                    "note": "Say who paid.",
                    "status": "Not yet.",
                }
            )

    monkeypatch.setattr(Order, "clean", clean)
    order("N1", internal_note="secret")
    call = {"number": "N1", "status": "paid"}
    result = writer(Order, fields=ORDER).call_tool("update_order", call, check=False)
    assert result.text.splitlines() == [
        "not allowed because of a value that you may not see",
        "note: Say who paid",
        'status: Not yet (got "paid")',
    ]


def test_a_model_that_checks_itself_while_saving_tells_no_hidden_value(monkeypatch):
    save = Product.save

    def save_clean(self: Product, *args: Any, **kwargs: Any) -> None:
        self.full_clean()
        save(self, *args, **kwargs)

    product("Ball", slug="ball", rating=77, size="x")
    monkeypatch.setattr(Product, "save", save_clean)
    client = writer(Product, fields=["slug", "name", "size"], tools=KEPT)
    result = client.call_tool("update_product", {"slug": "ball", "name": "New"}, check=False)
    assert result.text.splitlines() == [
        "not allowed because of a value that you may not see",
        "size: Value 'x' is not a valid choice",
    ]
    assert Product.objects.get().name == "Ball"


def test_a_hook_that_refuses_leaves_the_object_as_it_was():
    def perform_update(self: Any, ctx: Any, form: Any) -> Order:
        form.save()
        raise ValidationError("No changes on Sundays.")

    order("N1")
    client = writer(Order, fields=ORDER, perform_update=perform_update)
    result = client.call_tool("update_order", {"number": "N1", "status": "paid"}, check=False)
    assert result.text == "No changes on Sundays"
    assert Order.objects.get().status == "open"


def test_a_natural_key_is_not_written_over():
    category("toys")
    client = writer(Category, fields=["code", "title"])
    shown = client.call_tool("update_category", {"code": "toys", "title": "Games"}).structured
    assert shown == {"code": "toys", "title": "Games"}
    assert Category.objects.count() == 1


def test_a_relation_is_emptied():
    buyer = customer("Ada", referrer=customer("Bob"))
    client = writer(Customer, fields=["email", "referrer"], tools=KEPT)
    call = {"email": buyer.email, "clear": ["referrer"]}
    shown = client.call_tool("update_customer", call).structured
    assert shown == {"email": buyer.email, "referrer": None}


def test_where_only_the_key_could_be_written_there_is_no_such_tool():
    with pytest.raises(ImproperlyConfigured, match="no field can be written except 'number'"):
        server_of(Order, fields=["number"], tools=["update"])


@pytest.mark.django_db(transaction=True)
def test_two_writers_at_once_both_write(monkeypatch):
    """The second writer comes after the first has read the object, and before it saves it."""
    order("N1", total=5)
    holding, arrived = threading.Event(), threading.Event()
    begin = writing.acquire_sqlite_write_lock

    def begin_writing(alias: str, model: Any) -> None:
        if holding.is_set():
            arrived.set()
        begin(alias, model)

    def perform_update(self: Any, ctx: Any, form: Any) -> Order:
        if "note" in form.cleaned_data:
            holding.set()
            assert arrived.wait(5)
        saved: Order = form.save()
        return saved

    monkeypatch.setattr(writing, "acquire_sqlite_write_lock", begin_writing)
    server = server_of(Order, fields=ORDER, perform_update=perform_update)
    user = may_all(Order)
    answers: list[Any] = []

    def change(**sent: Any) -> None:
        client = MCPClient(server=server, user=user)
        answers.append(client.call_tool("update_order", {"number": "N1", **sent}).is_error)
        connection.close()

    first = threading.Thread(target=change, kwargs={"note": "first"})
    second = threading.Thread(target=change, kwargs={"total": "7.00"})
    first.start()
    assert holding.wait(5)
    second.start()
    first.join(10)
    second.join(10)
    assert answers == [False, False]
    row = Order.objects.get()
    assert (row.note, row.total) == ("first", 7)


def test_other_rows_stay_as_they_are():
    ada, bob = customer("Ada"), customer("Bob")
    client = writer(Customer, fields=["email", "name"])
    client.call_tool("update_customer", {"email": ada.email, "name": "Countess"})
    bob.refresh_from_db()
    assert (Customer.objects.get(pk=ada.pk).name, bob.name) == ("Countess", "Bob")
