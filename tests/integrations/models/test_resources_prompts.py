"""Prompts about an object."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db.models import QuerySet
from django.http import Http404

from mcp_django import Context
from mcp_django.protocol.errors import INVALID_PARAMS
from mcp_django.test import ErrorResponse, MCPClient
from tests.integrations.models.building import customer, order
from tests.integrations.models.offering import offer, reader
from tests.kit.servers import person
from tests.sites.shop.models import Customer, Order

pytestmark = pytest.mark.django_db

SUMMARIZE = {"summarize": "Summarize {object} for a new colleague."}


def refused(client: MCPClient, arguments: dict[str, Any]) -> str:
    with pytest.raises(ErrorResponse) as caught:
        client.get_prompt("summarize_order", arguments)
    assert caught.value.code == INVALID_PARAMS
    return str(caught.value.message)


def test_a_prompt_says_what_it_wants():
    client = reader(prompts=SUMMARIZE)
    assert client.list_prompts() == [
        {
            "name": "summarize_order",
            "title": "Summarize order",
            "description": "Summarize one order for a new colleague.",
            "arguments": [{"name": "number", "required": True, "description": "The number."}],
        }
    ]


def test_the_message_names_the_object_and_the_object_follows():
    order("A 1", status="paid", placed_at=dt.datetime(2026, 5, 1, tzinfo=dt.UTC))
    client = reader(
        fields=["number", "status", "placed_at"],
        prompts=SUMMARIZE,
        title="status",
        last_modified="placed_at",
    )
    text, embedded = client.get_prompt("summarize_order", {"number": "A 1"})
    assert text == {
        "role": "user",
        "content": {
            "type": "text",
            "text": "Summarize order paid (shop://orders/A%201) for a new colleague.",
        },
    }
    resource = embedded["content"].pop("resource")
    assert embedded == {
        "role": "user",
        "content": {
            "type": "resource",
            "annotations": {"lastModified": "2026-05-01T00:00:00Z"},
        },
    }
    assert (resource["uri"], resource["mimeType"]) == ("shop://orders/A%201", "application/json")
    assert json.loads(resource["text"]) == json.loads(
        client.read_resource("shop://orders/A%201")[0]["text"]
    )


def test_what_the_model_calls_itself_is_not_said():
    customer("Hush", email="ada@x")
    client = reader(Customer, uri="shop://c/{email}", fields=["email"], prompts=SUMMARIZE)
    text, embedded = client.get_prompt("summarize_customer", {"email": "ada@x"})
    assert text["content"]["text"] == (
        "Summarize customer ada@x (shop://c/ada%40x) for a new colleague."
    )
    assert embedded["content"]["resource"]["text"] == '{"email":"ada@x"}'


def test_variables_the_uri_and_braces_can_be_written():
    order("A-1")
    client = reader(prompts={"summarize": "{number}: {{{uri}}} {object}, {{number}}"})
    text, _ = client.get_prompt("summarize_order", {"number": "A-1"})
    assert text["content"]["text"] == (
        "A-1: {shop://orders/A-1} order A-1 (shop://orders/A-1), {number}"
    )


def test_values_are_not_taken_for_placeholders():
    order("{uri}")
    client = reader(prompts=SUMMARIZE)
    text, _ = client.get_prompt("summarize_order", {"number": "{uri}"})
    assert "{uri}" in text["content"]["text"]


def test_an_object_that_is_hidden_and_one_that_does_not_exist_sound_the_same():
    def get_queryset(self: Any, ctx: Context) -> QuerySet[Order]:
        return Order.objects.filter(customer__user=ctx.user)

    ada = person("ada")
    order("A-1", customer=customer(user=ada))
    order("B-1", customer=customer())
    client = MCPClient(server=offer(get_queryset=get_queryset, prompts=SUMMARIZE), user=ada)
    assert client.get_prompt("summarize_order", {"number": "A-1"})
    for number in ("B-1", "C-1"):
        assert refused(client, {"number": number}) == (
            f"There is no order with number {number!r}, or you may not see it."
        )


@pytest.mark.parametrize("exc", [Http404("no"), PermissionDenied("no"), Order.DoesNotExist("no")])
def test_a_gate_that_refuses_hides(exc):
    def get_queryset(self: Any, ctx: Context) -> QuerySet[Order]:
        raise exc

    client = reader(get_queryset=get_queryset, prompts=SUMMARIZE)
    assert refused(client, {"number": "A"}) == (
        "There is no order with number 'A', or you may not see it."
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "number: required"),
        ({"number": "\0"}, "without NUL"),
        ({"number": "x" * 1001}, "at most 1000 characters"),
        ({"number": "x" * 1000}, "There is no order with number 'xxx"),
        ({"nummer": "A"}, "number: required"),
    ],
)
def test_arguments_that_fit_no_object_are_refused(arguments, words):
    message = refused(reader(prompts=SUMMARIZE), arguments)
    assert words in message
    assert len(message) < 300


def test_an_object_that_no_uri_can_name_is_not_there():
    order("..")
    assert "There is no order" in refused(reader(prompts=SUMMARIZE), {"number": ".."})


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ({"x": "{objekt}"}, "prompts['x'] has {objekt}; did you mean 'object'?"),
        ({"x": "{status}"}, "prompts['x'] has {status}; valid names: object, uri, number."),
        ({"x": "{object.customer.email}"}, "has {object.customer.email}"),
        ({"x": "{object[0]}"}, "has {object[0]}"),
        ({"x": "{object!r}"}, "has {object}"),
        ({"x": "{object:>10}"}, "has {object}"),
        ({"x": "{}"}, "has {}"),
        ({"x": "{"}, "write {{ and }} for braces"),
        ({"x": "}"}, "write {{ and }} for braces"),
        ({"x": "{object"}, "write {{ and }} for braces"),
        ({"x": ""}, "write a text with {object}"),
        ({"x": 5}, "write a text with {object}"),
        ({"x y": "{object}"}, "use letters, digits, - and _ in names"),
        ({5: "{object}"}, "use letters, digits, - and _ in names"),
        (["x"], "write a dictionary of names and texts"),
        ("x", "write a dictionary of names and texts"),
    ],
)
def test_a_text_that_cannot_be_filled_is_refused(prompts, words):
    with pytest.raises(ImproperlyConfigured) as caught:
        offer(prompts=prompts)
    assert words in str(caught.value)


def test_a_text_without_placeholder_is_a_text():
    order("A-1")
    client = reader(prompts={"summarize": "Say it in a sentence."})
    text, embedded = client.get_prompt("summarize_order", {"number": "A-1"})
    assert text["content"]["text"] == "Say it in a sentence."
    assert embedded["content"]["resource"]["uri"] == "shop://orders/A-1"
