"""What a `ModelResource` may declare, and the errors for what it may not."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import AppRegistryNotReady, ImproperlyConfigured
from django.db.models.options import Options

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.exceptions import AlreadyRegistered, NotRegistered
from tests.integrations.models.offering import URI, offer, resource
from tests.sites.shop.models import Order, Product


def refusal(model: type[Any] = Order, **options: Any) -> str:
    with pytest.raises(ImproperlyConfigured) as caught:
        offer(model, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"uri": ""}, "uri is missing; write uri = 'shop://orders/{FIELD}'"),
        ({"uri": "shop://orders"}, "is the same for every order"),
        ({"uri": "orders/{number}"}, "start with a scheme"),
        ({"uri": "shop://orders/{numbr}"}, "did you mean 'number'?"),
        ({"uri": "shop://orders/{pk}"}, "write the name of the primary key of Order: 'id'"),
        ({"uri": "shop://orders/{id}"}, "add it to fields"),
        ({"uri": "shop://orders/{status}"}, "several objects can share status"),
        ({"uri": "shop://orders{?number}"}, "write them in the path"),
        ({"uri": "shop://orders/{number}{?status}"}, "are optional"),
        ({"uri": "shop://orders/{total}", "fields": ["total"]}, "no unique spelling"),
        ({"uri": "shop://orders/{placed_at}", "fields": ["placed_at"]}, "is a DateTimeField"),
        ({"uri": "shop://orders/{lines__id}", "fields": ["lines__id"]}, "leads to many objects"),
        (
            {"uri": "shop://orders/{customer__passport}", "fields": ["customer__passport"]},
            "write customer__passport__id instead",
        ),
        ({"list": "yes"}, "list='yes'; write True or False."),
        ({"subscribe": 1}, "subscribe=1; write True or False."),
        ({"title": "internal_note"}, "add it to fields"),
        ({"title": "customer", "fields": ["number", "customer"]}, "name one field"),
        ({"last_modified": "status"}, "name one field of type datetime"),
        ({"title": "internal_note", "list": False}, "add it to fields"),
        ({"titel": "status"}, "did you mean 'title'?"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(options, words):
    assert words in refusal(**options)


def test_what_is_refused_leaves_nothing_behind():
    server = MCPServer("shop", permission=AllowAny)
    with pytest.raises(ImproperlyConfigured):
        server.register(Order, resource(uri=URI, fields=["number"], prompts={"x": "{nothing}"}))
    assert list(server.registry) == []


def test_one_template_is_offered_once():
    server = offer()
    with pytest.raises(AlreadyRegistered):
        server.register(Order, resource(uri=URI, fields=["number"]))
    assert list(server.templates) == [URI]


def test_unregistering_the_model_takes_everything_away():
    server = offer(
        Product,
        uri="shop://p/{slug}",
        fields=["slug", "photo"],
        blobs=["photo"],
        prompts={"x": "X {object}"},
    )
    assert len(list(server.registry)) == 3
    assert len(server.registry.completions) == 3
    server.unregister(Product)
    assert list(server.registry) == []
    assert server.registry.completions == {}
    with pytest.raises(NotRegistered):
        server.unregister(Product)
    server.register(Product, resource(uri="shop://p/{slug}", fields=["slug"]))
    assert list(server.templates) == ["shop://p/{slug}"]


def test_a_unique_column_is_enough_while_models_are_still_loading(monkeypatch):
    def refuse(options):
        raise AppRegistryNotReady("Models aren't loaded yet.")

    # Models of other apps may have relations to this one, so Django does not know all of them yet.
    monkeypatch.setattr(Options, "related_objects", property(refuse))
    server = offer(Product, uri="shop://p/{slug}", fields=["slug"])
    assert list(server.templates) == ["shop://p/{slug}"]
