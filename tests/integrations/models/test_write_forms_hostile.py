"""Callers who send arbitrary values, and callers who try to find out what they may not see."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings, strategies as st

from mcp_django import MCPServer
from mcp_django.integrations.models.declaration import ModelTools
from mcp_django.integrations.models.write_forms import MAX_KEYS
from mcp_django.schema.arguments import InvalidArguments
from mcp_django.test import MCPClient
from tests.integrations.models.building import category, customer, line, order, product
from tests.integrations.models.writers import KEPT, ORDER, PLACED, may_all, server_of, writer
from tests.kit.rings import examples
from tests.sites.shop.models import Customer, Order, OrderLine, Product, Tag

pytestmark = pytest.mark.django_db

PRODUCT = [
    "slug", "name", "description", "category", "price", "weight", "stock", "rating", "size",
    "is_active", "released", "sold_from", "lead_time", "details", "address", "tags",
]  # fmt: skip
HUGE = 2**80


OTHER_NAMES = [
    "pk", "id", "margin", "internal_note", "customer__password", "customer_id",
    "customer__name", "lines", "internal_note__icontains", "_state", "clear[]", "", "Number",
    "numb\u0435r",
]  # fmt: skip


def test_no_other_name_is_an_argument():
    order("N1")
    client = writer(Order, fields=ORDER)
    for name in OTHER_NAMES:
        result = client.call_tool("update_order", {"number": "N1", name: "x"}, check=False)
        assert result.is_error, name
        beginning = f"unknown argument {json.dumps(name, ensure_ascii=False)}"
        assert result.text.startswith(beginning), name


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"stock": HUGE}, "stock: Ensure this value is less than or equal to "),
    ({"stock": -1}, "stock: Ensure this value is greater than or equal to 0 (got -1)"),
    ({"stock": "9" * 5000}, "stock: must be an integer"),
    ({"stock": True}, "stock: must be an integer (got true)"),
    ({"stock": 1.5}, "stock: must be an integer (got 1.5)"),
    ({"price": "NaN"}, 'price: must be a decimal number (got "NaN")'),
    ({"price": "Infinity"}, 'price: must be a decimal number (got "Infinity")'),
    ({"price": "1e400"}, "price: Ensure"),
    ({"price": [1]}, "price: must be a string (got [1])"),
    ({"lead_time": "P999999999D"}, "lead_time: must be at most 106751991 days"),
    ({"weight": "inf"}, 'weight: must be a number (got "inf")'),
    ({"rating": HUGE}, f"rating: must be one of 1, 2, 3 (got {HUGE})"),
    ({"size": "<b>"}, 'size: must be one of "s", "l" (got "<b>")'),
    ({"category": HUGE}, f"category: this category does not exist (got {HUGE})"),
    ({"category": {"code": "toys"}}, 'category: must be a string (got {"code": "toys"})'),
    ({"tags": [HUGE]}, f"tags[0]: this tag does not exist (got {HUGE})"),
    ({"tags": [f"{HUGE}"]}, f'tags[0]: this tag does not exist (got "{HUGE}")'),
    ({"tags": ["x"]}, 'tags: there is no tag x (got ["x"])'),
    ({"tags": [[1]]}, "tags: each item must be an integer (got [[1]])"),
    ({"tags": 1}, "tags: must be an array (got 1)"),
    ({"is_active": "perhaps"}, 'is_active: must be true or false (got "perhaps")'),
    ({"is_active": 1}, "is_active: must be true or false (got 1)"),
    ({"released": "2026-02-30"}, "released: must be a date like 2026-12-31"),
    ({"released": "99999-01-01"}, "released: must be a date like 2026-12-31"),
    ({"lead_time": "P99999999999D"}, "lead_time: "),
    ({"sold_from": "25:00"}, "sold_from: must be a time like 23:59:00"),
    ({"address": "10.0.0.999"}, "address: "),
    ({"name": "a\0b"}, "name: must not contain NUL characters"),
    ({"details": {"a": ["\0"]}}, "details.a[0]: must not contain NUL characters"),
    ({"details": {"\0": 1}}, "details: must not contain NUL characters"),
    ({"name": "x" * 101}, "name: Ensure this value has at most 100 characters (it has 101)"),
    ({"preview": "maybe"}, 'preview: must be true or false (got "maybe")'),
    ({"slug": ["ball"], "stock": 1}, 'slug: must be a string (got ["ball"])'),
]


def test_a_wrong_value_is_said_to_be_wrong():
    product(slug="ball")
    before = list(Product.objects.values())
    client = writer(Product, fields=PRODUCT)
    for sent, message in WRONG:
        result = client.call_tool("update_product", {"slug": "ball", **sent}, check=False)
        assert result.is_error, message
        assert result.text.startswith(message), message
    assert list(Product.objects.values()) == before


def test_too_many_keys_are_refused_before_the_database():
    product(slug="ball")
    sent = {"slug": "ball", "tags": list(range(10_000))}
    result = writer(Product, fields=PRODUCT).call_tool("update_product", sent, check=False)
    assert result.text == f"tags: has 10000 keys; send at most {MAX_KEYS}"


def test_many_keys_cost_as_few_statements_as_two():
    product(slug="ball")
    tags = Tag.objects.bulk_create([Tag(word=f"{number}") for number in range(MAX_KEYS)])
    client = writer(Product, fields=["slug", "tags"], tools=KEPT)
    counts = []
    for chosen in (tags[:2], tags):
        keys = [tag.pk for tag in chosen]
        with CaptureQueriesContext(connection) as captured:
            assert not client.call_tool("update_product", {"slug": "ball", "tags": keys}).is_error
        counts.append(len(captured))
    # SQLite takes a thousand parameters in one statement.
    assert counts[1] <= counts[0] + 3


def test_half_a_character_is_refused():
    """On the wire, the decoder of messages refuses it; here it is written as an escape."""
    arguments = server_of(Product, fields=PRODUCT).tools["update_product"].arguments
    with pytest.raises(InvalidArguments, match="name: must not contain lone surrogates"):
        arguments.parse(b'{"slug": "ball", "name": "x\\ud800y"}')


def test_times_of_a_site_without_time_zones(settings):
    settings.USE_TZ = False
    client = writer(Order, fields=ORDER)
    sent = {"number": "N1", "customer": customer().pk, "placed_at": "2026-03-01T12:00:00+02:00"}
    assert client.call_tool("create_order", sent).structured["placed_at"] == "2026-03-01T10:00:00"
    sent = {"number": "N1", "placed_at": "2026-03-02T12:00:00"}
    assert client.call_tool("update_order", sent).structured["placed_at"] == "2026-03-02T12:00:00"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.sampled_from(["toys", "s", "2026-01-01", "12:00", "P1D", "1e999", "-0", "0x10", " 1 "]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@settings(
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    name=st.sampled_from(["create_product", "update_product"]),
    sent=st.dictionaries(
        st.sampled_from([*PRODUCT, "clear", "preview"]), ANYTHING, min_size=1, max_size=4
    ),
)
def test_nothing_that_is_sent_is_a_bug(fuzzed, name, sent):
    """The client raises what is not the caller's fault; every answer is a result or a refusal."""
    with transaction.atomic():
        before = list(Product.objects.values())
        complete = {"slug": "ball", **sent} if name == "update_product" else sent
        result = fuzzed.call_tool(name, complete, check=False)
        if result.is_error or result.structured.get("preview"):
            assert list(Product.objects.values()) == before
            assert result.text
        transaction.set_rollback(True)


@pytest.fixture
def fuzzed():
    product(slug="ball")
    return writer(Product, fields=PRODUCT)


def secret_moment(secret: str) -> str:
    return f"2026-01-{len(secret):02}T00:00:00Z"


class World:
    """A shop of two customers, one of whom is Ada; ``secret`` is in all that she may not see."""

    def __init__(self, secret: str) -> None:
        self.ada = may_all(Order, Customer, Product, OrderLine, Tag)
        mine = customer("Ada", pk=1, email="a@shop.test", user=self.ada, password=secret)
        other = customer("Bob", pk=2, email="b@shop.test", password=secret)
        category("toys")
        ball = product(pk=1, slug="ball", cost=len(secret), description=secret)
        hidden = Tag.objects.create(pk=1, word=f"hidden {secret}", secret=secret)
        Tag.objects.create(pk=2, word="seen")
        ball.tags.add(hidden)
        bought = order("A1", pk=1, customer=mine, internal_note=secret, placed_at=PLACED)
        order("B1", pk=2, customer=other, internal_note=secret, placed_at=secret_moment(secret))
        for number in range(len(secret)):
            line(bought, pk=number + 1, product=ball, secret=secret)
        self.server = MCPServer("shop")
        self.register(Customer, ["id", "name"], lambda user: Customer.objects.filter(user=user))
        self.register(OrderLine, ["id"], lambda user: OrderLine.objects.filter(secret=""))
        self.register(Tag, ["id", "word"], lambda user: Tag.objects.filter(secret=""))
        self.register(Product, ["slug", "name", "tags"], lambda user: Product.objects.all())
        self.register(Order, ORDER, lambda user: Order.objects.filter(customer__user=user))

    def register(self, model: Any, fields: list[str], rows: Any) -> None:
        options = {
            "fields": fields,
            "tools": ["delete"] if fields[0] == "id" else ["update", "delete"],
            "get_queryset": lambda self, ctx: rows(ctx.user),
        }
        self.server.register(model, type("WorldMCP", (ModelTools,), options))

    def answers(self) -> list[Any]:
        client = MCPClient(server=self.server, user=self.ada)
        return [client.list_tools(), *(self.ask(client, *attack) for attack in ATTACKS)]

    def ask(self, client: MCPClient, name: str, sent: dict[str, Any]) -> Any:
        return client.call_tool(name, sent, check=False).raw


ATTACKS: list[tuple[str, dict[str, Any]]] = [
    ("update_order", {"number": "A1", "customer": 2}),
    ("update_order", {"number": "A1", "customer": 3}),
    ("update_order", {"number": "A1", "status": "nope"}),
    ("update_order", {"number": "A1", "total": -1}),
    ("update_order", {"number": "A1", "internal_note": "guess"}),
    ("update_order", {"number": "A1", "note": "x", "preview": True}),
    ("update_order", {"number": "A1", "clear": ["note", "internal_note"]}),
    ("update_order", {"number": "B1", "status": "paid"}),
    ("update_order", {"number": "B1", "status": "nope", "preview": True}),
    ("update_product", {"slug": "ball", "tags": [1]}),
    ("update_product", {"slug": "ball", "tags": [], "preview": True}),
    ("update_product", {"slug": "ball", "tags": [2]}),
    ("update_product", {"slug": "ball", "tags": []}),
    ("delete_product", {"slug": "ball", "preview": True}),
    ("delete_product", {"slug": "ball"}),
    ("delete_tag", {"id": 1}),
    ("delete_order_line", {"id": 1}),
    ("delete_order", {"number": "B1", "preview": True}),
    ("delete_order", {"number": "B1"}),
    ("update_order", {"number": "A1", "note": "x"}),
    ("delete_order", {"number": "A1", "preview": True}),
    ("delete_order", {"number": "A1"}),
]


def test_answers_do_not_depend_on_what_is_hidden():
    transcripts = []
    for secret in ("open sesame", "paid"):
        with transaction.atomic():
            transcripts.append(json.dumps(World(secret).answers(), default=str))
            transaction.set_rollback(True)
    assert transcripts[0] == transcripts[1]
    for secret in ("sesame", "hidden"):
        assert secret not in transcripts[0]


def test_messages_of_the_database_do_not_reach_the_caller(caplog):
    def perform_update(self: Any, ctx: Any, form: Any) -> Order:
        Order.objects.create(number="B1", customer=form.instance.customer, placed_at=PLACED)
        saved: Order = form.save()
        return saved

    order("A1")
    order("B1", internal_note="sesame")
    client = writer(Order, fields=ORDER, perform_update=perform_update)
    result = client.call_tool("update_order", {"number": "A1", "note": "x"}, check=False)
    assert result.is_error
    assert "shop_order" not in result.text
    assert "shop_order" in caplog.text
    assert Order.objects.get(number="A1").note == ""
