"""Writing through a serializer of REST framework."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from mcp_django.test import MCPClient
from tests.integrations.models.building import category, customer, order, product
from tests.integrations.models.writers import (
    ORDER,
    PLACED,
    history,
    may_all,
    server_of,
    tool,
    writer,
)
from tests.sites.shop.models import Customer, Order, Product, Tag

pytest.importorskip("rest_framework")

from rest_framework import serializers

pytestmark = pytest.mark.django_db


class OrderSerializer(serializers.ModelSerializer):
    class Meta:
        model = Order
        fields = ["number", "status", "customer", "placed_at", "paid_at", "margin"]
        read_only_fields = ["margin"]

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        status = attrs.get("status", getattr(self.instance, "status", None))
        if status == "paid" and not attrs.get("paid_at", getattr(self.instance, "paid_at", None)):
            raise serializers.ValidationError({"paid_at": "Say when it was paid."})
        return attrs


def test_a_serializer_says_what_can_be_written():
    client = writer(Order, fields=ORDER, serializer=OrderSerializer)
    create = tool(client, "create_order")["inputSchema"]
    assert list(create["properties"]) == [
        "number", "status", "customer", "placed_at", "paid_at", "preview",
    ]  # fmt: skip
    assert create["required"] == ["number", "customer", "placed_at"]
    update = tool(client, "update_order")["inputSchema"]
    assert update["required"] == ["number"]
    assert update["properties"]["clear"]["items"]["enum"] == ["paid_at"]


def test_a_serializer_writes():
    client = writer(Order, fields=[*ORDER, "paid_at"], serializer=OrderSerializer)
    sent = {"number": "N1", "customer": customer().pk, "placed_at": PLACED}
    assert client.call_tool("create_order", sent).structured["status"] == "open"
    paid = {"number": "N1", "status": "paid"}
    assert (
        client.call_tool("update_order", paid, check=False).text == "paid_at: Say when it was paid"
    )
    shown = client.call_tool("update_order", {**paid, "paid_at": PLACED}).structured
    assert (shown["status"], shown["paid_at"]) == ("paid", PLACED)
    # Clients send null for an argument that they do not use.
    call = {"number": "N1", "status": "open", "paid_at": None}
    assert client.call_tool("update_order", call).structured["paid_at"] == PLACED
    call = {"number": "N1", "clear": ["paid_at"]}
    assert client.call_tool("update_order", call).structured["paid_at"] is None
    assert [message for _, _, message in history()][1:] == [
        "Changed status, paid_at through the MCP tool update_order.",
        "Changed status through the MCP tool update_order.",
        "Changed paid_at through the MCP tool update_order.",
    ]


def test_a_preview_of_a_serializer_writes_nothing():
    order("N1")
    client = writer(Order, fields=ORDER, serializer=OrderSerializer)
    call = {"number": "N1", "status": "shipped", "preview": True}
    assert client.call_tool("update_order", call).structured == {
        "preview": True,
        "changes": {"status": {"from": "open", "to": "shipped"}},
    }
    assert Order.objects.get().status == "open"


def test_a_serializer_explains_what_is_wrong():
    client = writer(Order, fields=ORDER, serializer=OrderSerializer)
    result = client.call_tool("create_order", {"number": "x" * 30, "status": "lost"}, check=False)
    assert result.text.splitlines() == [
        f'number: Ensure this field has no more than 20 characters (got "{"x" * 30}")',
        'status: "lost" is not a valid choice (got "lost")',
        "customer: is required",
        "placed_at: is required",
    ]


class TagSerializer(serializers.Serializer):
    tag = serializers.PrimaryKeyRelatedField(queryset=Tag.objects.all())


class ProductSerializer(serializers.ModelSerializer):
    marks = TagSerializer(many=True, required=False, write_only=True)

    class Meta:
        model = Product
        fields = ["name", "tags", "marks"]

    def update(self, instance: Product, validated_data: dict[str, Any]) -> Product:
        marks = validated_data.pop("marks", [])
        saved: Product = super().update(instance, validated_data)
        saved.tags.add(*(mark["tag"] for mark in marks))
        return saved


def test_keys_are_those_that_the_caller_sees_at_any_depth():
    seen, hidden = Tag.objects.create(word="seen"), Tag.objects.create(word="hidden", secret="x")
    other = Tag.objects.create(word="other", secret="x")
    ball = product(slug="ball", category=category())
    ball.tags.set([hidden])
    gate = {"fields": ["word"], "get_queryset": lambda self, ctx: Tag.objects.filter(secret="")}
    fields = ["slug", "name", "tags"]
    server = server_of(
        Product, (Tag, gate), fields=fields, serializer=ProductSerializer, tools=["update"]
    )
    client = MCPClient(server=server, user=may_all(Product, Tag))
    for sent in ({"tags": [other.pk]}, {"marks": [{"tag": other.pk}]}):
        hidden_key = client.call_tool("update_product", {"slug": "ball", **sent}, check=False)
        assert hidden_key.is_error
        assert "object does not exist" in hidden_key.text
    assert not client.call_tool("update_product", {"slug": "ball", "tags": [seen.pk]}).is_error
    assert set(ball.tags.all()) == {seen, hidden}
    sent = {"slug": "ball", "marks": [{"tag": seen.pk}], "tags": []}
    assert not client.call_tool("update_product", sent).is_error
    assert set(ball.tags.all()) == {seen, hidden}


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"serializer": Order}, "name a ModelSerializer of Order"),
        ({"serializer": OrderSerializer, "write_fields": ["number"]}, "keep one of them"),
    ],
)
def test_a_serializer_that_does_not_fit_is_refused(options, hint):
    with pytest.raises(ImproperlyConfigured, match=hint):
        server_of(Order, fields=ORDER, **options)


def test_nobody_sees_the_customers_of_others():
    ada = may_all(Order, Customer)
    order("N1", customer=customer("Ada", user=ada))
    other = customer("Bob")
    own = {
        "fields": ["id"],
        "get_queryset": lambda self, ctx: Customer.objects.filter(user=ctx.user),
    }
    server = server_of(Order, (Customer, own), fields=ORDER, serializer=OrderSerializer)
    client = MCPClient(server=server, user=ada)
    texts = [
        client.call_tool("update_order", {"number": "N1", "customer": key}, check=False).text
        for key in (other.pk, 10**6)
    ]
    assert texts[0].replace(str(other.pk), "KEY") == texts[1].replace(str(10**6), "KEY")
