"""`search_fields`: words in columns of text."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from mcp_django.test import MCPClient
from tests.integrations.models.building import client, customer, line, order, product
from tests.sites.shop.models import Order, Product, Tag

pytestmark = pytest.mark.django_db


def numbers(mcp_client: MCPClient, search: str) -> list[str]:
    result = mcp_client.call_tool("list_orders", {"search": search})
    assert not result.is_error, result.text
    return [row["number"] for row in result.structured["items"]]


def desk() -> MCPClient:
    return client(
        Order,
        fields=["number", "note", "customer__name", "lines__product__name"],
        search_fields=["number", "note", "customer__name", "lines__product__name"],
        ordering=["number"],
    )


def test_every_word_is_in_one_of_the_fields():
    ada = order("A1", customer=customer("Ada Lovelace"), note="fragile")
    line(ada, product=product("Blue ball"))
    line(ada, product=product("Red ball"))
    order("A2", customer=customer("Bob"), note="gift", internal_note="Lovelace")
    mcp_client = desk()
    assert numbers(mcp_client, "ball") == ["A1"]
    assert numbers(mcp_client, "LOVELACE fragile") == ["A1"]
    assert numbers(mcp_client, "lovelace gift") == []
    assert numbers(mcp_client, "a") == ["A1", "A2"]
    assert numbers(mcp_client, "") == ["A1", "A2"]
    assert numbers(mcp_client, "  ") == ["A1", "A2"]


@pytest.mark.parametrize("text", ["%", "_", "\\", "'", '"', "--", "🎈", "ß", "x" * 196])
def test_a_search_takes_its_text_as_it_is(text):
    order("A1", note="plain")
    order("A2", note=f"has {text}")
    assert numbers(desk(), text) == ["A2"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x" * 201, "search: must have at most 200 characters"),
        ("a\0b", "search: must not contain NUL characters"),
        (" ".join("abcdefghijk"), "search has 11 words; send at most 10"),
        (5, "search: must be a string"),
        (["a"], "search: must be a string"),
    ],
)
def test_a_search_that_cannot_be_is_refused(text, words):
    result = desk().call_tool("list_orders", {"search": text}, check=False)
    assert result.is_error
    assert words in result.text


def test_without_search_fields_there_is_no_search():
    result = client(Order, fields=["number"]).call_tool("list_orders", {"search": "A"}, check=False)
    assert result.is_error
    assert 'unknown argument "search"' in result.text


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("customer__email", "which is not in fields and would be revealed; add it to fields"),
        ("internal_note", "which is not in fields"),
        ("total", "which is not a text column"),
        ("customer", "which is not a text column"),
    ],
)
def test_a_search_that_would_tell_of_hidden_text_is_refused(field, words):
    with pytest.raises(ImproperlyConfigured) as caught:
        client(Order, fields=["number", "total", "customer"], search_fields=[field])
    assert words in str(caught.value)


def test_a_row_that_matches_twice_is_found_once():
    ball = product("Ball")
    ball.tags.add(Tag.objects.create(word="red"), Tag.objects.create(word="dark red"))
    mcp_client = client(Product, fields=["slug", "tags__word"], search_fields=["tags__word"])
    answer = mcp_client.call_tool("list_products", {"search": "red"}).structured
    assert (len(answer["items"]), answer["total"]) == (1, 1)
