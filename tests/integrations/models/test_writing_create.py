"""`create_…`: what a caller may send, what is checked, and what comes back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from tests.integrations.models.building import category, customer, order
from tests.integrations.models.writers import ORDER, PLACED, server_of, tool, writer
from tests.sites.shop.models import Category, Customer, Order, Product, Tag

pytestmark = pytest.mark.django_db

PRICE = (
    "Must be a decimal number, at least 0, at most 99999, of at most 8 digits, "
    "of at most 2 decimal places."
)
SLUG = "Enter a valid “slug” consisting of letters, numbers, underscores or hyphens"
PRODUCT = ["slug", "name", "category", "price", "rating", "size", "is_active", "released", "tags"]


def test_a_new_object_is_saved_and_shown_as_get_would():
    client = writer(Order, fields=ORDER)
    buyer = customer("Bob")
    sent = {"number": "N1", "customer": buyer.pk, "placed_at": PLACED, "total": "12.50"}
    made = client.call_tool("create_order", sent).structured
    assert made == {
        "number": "N1",
        "status": "open",
        "total": "12.50",
        "placed_at": PLACED,
        "customer": {"id": buyer.pk},
        "note": "",
    }
    assert made == client.call_tool("get_order", {"number": "N1"}).structured
    assert Order.objects.get().total == Decimal("12.50")


def test_the_schema_comes_from_the_model_and_its_validators():
    schema = tool(writer(Product, fields=PRODUCT), "create_product")["inputSchema"]
    assert schema["required"] == ["slug", "name", "category", "price"]
    assert schema["additionalProperties"] is False
    assert schema["properties"] == {
        "slug": {
            "type": "string",
            "maxLength": 50,
            "description": f"{SLUG}.",
        },
        "name": {"type": "string", "maxLength": 100, "description": "As it is on the label."},
        "category": {"type": "string", "description": "The key of one category."},
        "price": {
            "type": "string",
            "description": PRICE,
        },
        "rating": {
            "type": "integer",
            "enum": [1, 2, 3],
            "default": 2,
            "description": "Values: 1 = Bad, 2 = Fair, 3 = Good.",
        },
        "size": {
            "type": "string",
            "enum": ["s", "l"],
            "default": "s",
            "description": 'Values: "s" = Small, "l" = Large.',
        },
        "is_active": {"type": "boolean", "default": True},
        "released": {"type": "string", "format": "date"},
        "tags": {
            "type": "array",
            "items": {"type": "integer"},
            "maxItems": 1000,
            "description": "Keys of tag objects.",
        },
        "preview": {
            "type": "boolean",
            "default": False,
            "description": "True: return what would change, and change nothing.",
        },
    }


def test_it_says_that_it_adds_and_destroys_nothing():
    hints = tool(writer(Order, fields=ORDER), "create_order")["annotations"]
    assert hints == {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False}


def test_every_kind_of_value_arrives():
    fields = [*PRODUCT, "weight", "stock", "sold_from", "lead_time", "details", "address"]
    tags = [Tag.objects.create(word=word) for word in ("red", "round")]
    sent = {
        "slug": "ball",
        "name": "Ball",
        "category": category("toys").pk,
        "price": "9.50",
        "rating": 3,
        "size": "l",
        "is_active": False,
        "released": "2026-02-28",
        "tags": [tag.pk for tag in tags],
        "weight": 0.25,
        "stock": 7,
        "sold_from": "08:30:00",
        "lead_time": "P1DT2H",
        "details": {"colors": ["red", None, 1.5]},
        "address": "2001:db8::1",
    }
    made = writer(Product, fields=fields).call_tool("create_product", sent).structured
    assert made == {
        **sent,
        "category": {"id": "toys"},
        "tags": [{"id": tag.pk} for tag in tags],
    }


def test_each_field_says_what_is_wrong_with_it():
    client = writer(Product, fields=PRODUCT)
    category()
    sent = {
        "slug": "no slug",
        "category": "nowhere",
        "price": "1.234",
        "rating": 9,
        "released": "yesterday",
        "tags": [99],
    }
    result = client.call_tool("create_product", sent, check=False)
    assert result.is_error
    assert result.text.splitlines() == [
        f'slug: {SLUG} (got "no slug")',
        "name: is required",
        'category: this category does not exist (got "nowhere")',
        'price: Ensure that there are no more than 2 decimal places (got "1.234")',
        "rating: must be one of 1, 2, 3 (got 9)",
        'released: must be a date like 2026-12-31 (got "yesterday")',
        "tags: there is no tag 99 (got [99])",
    ]
    assert not Product.objects.exists()


def test_a_taken_value_is_said_to_be_taken():
    order("N1")
    sent = {"number": "N1", "customer": customer().pk, "placed_at": PLACED}
    result = writer(Order, fields=ORDER).call_tool("create_order", sent, check=False)
    assert result.text == 'number: is already taken and must be unique (got "N1")'


def test_a_constraint_of_the_database_is_checked_before():
    sent = {"number": "N1", "customer": customer().pk, "placed_at": PLACED, "total": -1}
    result = writer(Order, fields=ORDER).call_tool("create_order", sent, check=False)
    assert result.text == "Constraint “shop_total_positive” is violated"


def test_hidden_columns_cannot_be_written():
    client = writer(Order, fields=ORDER)
    sent = {"number": "N1", "customer": customer().pk, "placed_at": PLACED, "margin": 5}
    result = client.call_tool("create_order", sent, check=False)
    assert result.text == (
        'unknown argument "margin"; known: number, status, total, placed_at, customer, note, '
        "preview"
    )


def test_what_may_be_written_and_not_seen_is_named_apart():
    fields = [*ORDER, "internal_note"]
    client = writer(Order, fields=ORDER, write_fields=fields)
    sent = {"number": "N1", "customer": customer().pk, "placed_at": PLACED, "internal_note": "x"}
    assert "internal_note" not in client.call_tool("create_order", sent).structured
    assert Order.objects.get().internal_note == "x"


def test_the_column_of_a_key_stands_for_the_relation():
    client = writer(Order, fields=["number", "customer_id", "placed_at"])
    buyer = customer()
    sent = {"number": "N1", "customer": buyer.pk, "placed_at": PLACED}
    assert client.call_tool("create_order", sent).structured["customer_id"] == buyer.pk


def test_a_natural_key_is_written_once():
    category("toys", title="Toys")
    client = writer(Category, fields=["code", "title", "parent"])
    result = client.call_tool("create_category", {"code": "toys", "title": "Other"}, check=False)
    assert result.text == 'code: is already taken and must be unique (got "toys")'
    assert Category.objects.get().title == "Toys"


def test_a_key_that_somebody_else_took_meanwhile_is_not_written_over():
    def perform_create(self: Any, ctx: Any, form: Any) -> Category:
        category("toys", title="First")
        saved: Category = form.save()
        return saved

    client = writer(Category, fields=["code", "title"], perform_create=perform_create)
    result = client.call_tool("create_category", {"code": "toys", "title": "Second"}, check=False)
    assert result.is_error
    assert "must be unique" in result.text
    assert not Category.objects.filter(title="Second").exists()


def test_a_hook_sets_what_callers_do_not_send():
    buyer = customer()

    def perform_create(self: Any, ctx: Any, form: Any) -> Order:
        form.instance.customer = buyer
        form.instance.internal_note = f"by {ctx.user}"
        saved: Order = form.save()
        return saved

    client = writer(Order, fields=["number", "placed_at"], perform_create=perform_create)
    assert not client.call_tool("create_order", {"number": "N1", "placed_at": PLACED}).is_error
    made = Order.objects.get()
    assert (made.customer, made.internal_note) == (buyer, "by ada")


def test_what_fails_after_saving_leaves_nothing():
    def perform_create(self: Any, ctx: Any, form: Any) -> Order:
        form.save()
        raise RuntimeError("midway")

    client = writer(Customer, fields=["name", "email"], perform_create=perform_create)
    with pytest.raises(RuntimeError, match="midway"):
        client.call_tool("create_customer", {"name": "Ada", "email": "ada@shop.test"})
    assert not Customer.objects.exists()


def test_a_refusal_of_the_database_tells_nothing_of_it(caplog):
    def perform_create(self: Any, ctx: Any, form: Any) -> Order:
        form.instance.margin = None
        saved: Order = form.save()
        return saved

    client = writer(Order, fields=ORDER, perform_create=perform_create)
    sent = {"number": "N1", "customer": customer().pk, "placed_at": PLACED}
    result = client.call_tool("create_order", sent, check=False)
    assert result.is_error
    assert "nothing was changed" in result.text
    assert "margin" not in result.text
    assert "margin" in caplog.text


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"write_fields": ["numbr"]}, "did you mean 'number'"),
        ({"write_fields": ["customer__name"]}, "belongs to another model"),
        ({"write_fields": ["lines"]}, "write it on the related model"),
        ({"write_fields": ["id"]}, "is not a column of the model"),
        ({"write_fields": "number"}, r"write_fields = \['number'\]"),
        ({"write_fields": []}, "no field can be written"),
        ({"form": Order}, "name a ModelForm of Order"),
    ],
)
def test_what_cannot_be_written_is_refused_at_once(options, hint):
    with pytest.raises(ImproperlyConfigured, match=hint):
        server_of(Order, fields=ORDER, **options)


@pytest.mark.parametrize("name", ["manual", "photo"])
def test_files_are_refused_with_a_way_out(name):
    with pytest.raises(ImproperlyConfigured, match="is a file, which JSON cannot contain"):
        server_of(Product, fields=PRODUCT, write_fields=["name", name])


@pytest.mark.parametrize("name", ["uuid", "digest"])
def test_what_is_not_editable_is_refused(name):
    with pytest.raises(ImproperlyConfigured, match=f"{name!r} is not editable"):
        server_of(Product, fields=PRODUCT, write_fields=["name", name])


def test_files_that_are_exposed_are_left_out_by_default():
    client = writer(Product, fields=[*PRODUCT, "manual", "uuid", "category__title"])
    known = tool(client, "create_product")["inputSchema"]["properties"]
    assert {"manual", "uuid", "category__title"}.isdisjoint(known)
