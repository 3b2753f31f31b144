"""Relations whose managers are those of other packages, and JSON columns with values of their own.

`tests/sites` has the packages themselves: django-taggit, django-modelcluster and Wagtail.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db.models import JSONField

from mcp_django.integrations.models.columns import Column
from mcp_django.test import MCPClient
from tests.integrations.models.building import product
from tests.integrations.models.writers import may_all, server_of, writer
from tests.sites.shop.models import Product, Tag

pytestmark = pytest.mark.django_db

FIELDS = ["slug", "tags"]
KEPT = ["list", "get", "update"]


class Rows(list[Any]):
    """Objects that are not a queryset, as drafts of django-modelcluster have them."""


class OtherManager:
    """Refuses a queryset in a prefetch, as django-taggit does."""

    can_be_prefetched = True

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("get_prefetch") and not self.can_be_prefetched:
            raise AttributeError(name)
        return getattr(self._inner, name)

    def get_prefetch_querysets(self, instances: Any, querysets: Any = None) -> Any:
        """Refuse a queryset."""
        assert not querysets, "custom querysets are not supported"
        return self._inner.get_prefetch_querysets(instances, querysets)

    def all(self) -> Any:
        """Return no queryset."""
        return Rows(self._inner.all())

    def values_list(self, *names: str, **options: Any) -> Any:
        """Fail."""
        raise TypeError("there is no queryset")


class LonelyManager(OtherManager):
    """Loads the rows of one object only."""

    can_be_prefetched = False
    get_prefetch_querysets = property()


class Descriptor:
    """The attribute of the model, from a module that is not Django's."""

    def __init__(self, inner: Any, manager: type[OtherManager]) -> None:
        self._inner = inner
        self._manager = manager

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        """Return the manager of an object."""
        return self if obj is None else self._manager(self._inner.__get__(obj, owner))

    def __set__(self, obj: Any, value: Any) -> None:
        """Set the rows."""
        self._inner.__get__(obj).set(value)


@pytest.fixture(params=[OtherManager, LonelyManager])
def ball(request, monkeypatch):
    """Return a product with two tags, whose manager is not Django's."""
    row = product(slug="ball")
    row.tags.set([Tag.objects.create(word="red"), Tag.objects.create(word="secret")])
    inner = Product.__dict__["tags"]
    monkeypatch.setattr(Product, "tags", Descriptor(inner, request.param))
    return row


def labels(result: Any) -> list[Any]:
    """Return the labels of the tags."""
    return [tag.get("label") for tag in result["tags"]]


def test_its_rows_are_listed_shown_and_written(ball):
    client = writer(Product, user=may_all(Product, Tag), fields=FIELDS, tools=KEPT)
    (row,) = client.call_tool("list_products").structured["items"]
    assert labels(row) == ["red", "secret"]
    assert labels(client.call_tool("get_product", {"slug": "ball"}).structured) == labels(row)
    red = Tag.objects.get(word="red")
    call = {"slug": "ball", "tags": [red.pk]}
    assert labels(client.call_tool("update_product", call).structured) == ["red"]


def test_rows_that_the_caller_may_not_see_are_left_out_and_kept(ball):
    gate = {
        "fields": ["word"],
        "get_queryset": lambda self, ctx: Tag.objects.exclude(word="secret"),
    }
    server = server_of(Product, (Tag, gate), fields=FIELDS, tools=KEPT)
    client = MCPClient(server=server, user=may_all(Product, Tag))
    (row,) = client.call_tool("list_products").structured["items"]
    assert labels(row) == ["red"]
    client.call_tool("update_product", {"slug": "ball", "tags": []})
    assert [tag.word for tag in Product.objects.get().tags.all()] == ["secret"]


def test_labels_are_for_those_who_may_view_them(ball):
    client = writer(Product, user=may_all(Product), fields=FIELDS, tools=KEPT)
    (row,) = client.call_tool("list_products").structured["items"]
    assert labels(row) == [None, None]


def test_paths_behind_it_are_shown(ball):
    client = writer(Product, fields=["slug", "tags__word"], tools=["list"])
    (row,) = client.call_tool("list_products").structured["items"]
    assert row["tags"] == [{"word": "red"}, {"word": "secret"}]


# Columns -----------------------------------------------------------------------------------------


class Blocks:
    """A value that renders itself."""

    def __init__(self, blocks: list[Any]) -> None:
        self.blocks = blocks

    def __str__(self) -> str:
        raise AssertionError("it was rendered")


class TextBlocks(JSONField):
    """Stores them as JSON text."""

    def get_prep_value(self, value: Any) -> Any:
        """Return the text."""
        return json.dumps(value.blocks)


class PlainBlocks(JSONField):
    """Stores them as data."""

    def get_prep_value(self, value: Any) -> Any:
        """Return the data."""
        return value.blocks


@pytest.mark.parametrize("field_class", [TextBlocks, PlainBlocks])
def test_a_json_column_shows_what_it_stores(field_class):
    blocks = [{"type": "heading", "value": "Hello"}]
    assert Column(field_class()).dump(Blocks(blocks)) == blocks


def test_text_that_is_no_json_stays_text():
    class Plain(JSONField):
        """Stores the name of a value."""

        def get_prep_value(self, value: Any) -> Any:
            """Return it."""
            return "a name"

    assert Column(Plain()).dump(Blocks([])) == "a name"
