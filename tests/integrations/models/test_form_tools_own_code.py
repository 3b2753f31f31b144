"""Forms that run code of the site when they are created."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django import forms
from django.contrib import admin
from django.contrib.admin import AdminSite
from django.db import OperationalError

from mcp_django import MCPServer
from mcp_django.integrations.models.declaration import ModelTools
from mcp_django.schema import deferred
from mcp_django.test import MCPClient
from tests.integrations.models.building import category, product
from tests.integrations.models.writers import may_all, tool, writer
from tests.kit.servers import person
from tests.sites.shop.models import Category, Product, Tag

pytestmark = pytest.mark.django_db


class MovingForm(forms.ModelForm):
    """Sets its queryset when it is created, as Django's documentation does."""

    category = forms.ModelChoiceField(queryset=None)
    is_migrated = True

    class Meta:
        """Its model."""

        model = Product
        fields = ("name", "category")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.is_migrated:
            raise OperationalError("no such table: shop_tag")
        self.fields["category"].queryset = Category.objects.all()
        for tag in Tag.objects.order_by("pk"):
            self.fields[f"is_{tag.word}"] = forms.BooleanField(required=False)


def moving(**options: Any) -> MCPClient:
    user = may_all(Product, Category, Tag)
    return writer(
        Product, user=user, fields=["slug"], tools=["list", "update"], form=MovingForm, **options
    )


def test_a_field_without_a_queryset_has_that_of_the_form():
    product("Ball", slug="ball")
    category("hats")
    client = moving()
    properties = tool(client, "update_product")["inputSchema"]["properties"]
    assert properties["category"] == {
        "type": "string",
        "description": "The key of one category.",
    }
    done = client.call_tool("update_product", {"slug": "ball", "category": "hats"})
    assert not done.is_error
    assert Product.objects.get().category_id == "hats"
    wrong = client.call_tool("update_product", {"slug": "ball", "category": "none"}, check=False)
    assert "this category does not exist" in wrong.text


def test_the_form_is_not_created_when_its_tool_is_declared(monkeypatch):
    monkeypatch.setattr(MovingForm, "is_migrated", False)
    client = moving()
    assert [definition["name"] for definition in client.list_tools()] == ["list_products"]
    refused = client.call_tool("update_product", {"slug": "ball", "name": "x"}, check=False)
    assert "not available" in refused.text


def test_fields_that_are_rows_are_those_of_now(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(deferred, "time", SimpleNamespace(monotonic=lambda: clock.now))
    client = moving()
    assert "is_red" not in tool(client, "update_product")["inputSchema"]["properties"]
    Tag.objects.create(word="red")
    clock.now += deferred.MAX_AGE + 1
    assert "is_red" in tool(client, "update_product")["inputSchema"]["properties"]


def test_the_generic_set_leaves_out_what_cannot_be_created(monkeypatch):
    monkeypatch.setattr(MovingForm, "is_migrated", False)
    product("Ball", slug="ball")
    server = MCPServer("shop", generic=True)
    details = {"fields": ["slug", "name"], "tools": ["list", "update"], "form": MovingForm}
    server.register(Product, type("Tools", (ModelTools,), details))
    client = MCPClient(server=server, user=may_all(Product))
    described = client.call_tool("describe_model", {"model": "product"}).structured
    assert set(described["tools"]) == {"search_records"}
    call = {"model": "product", "key": "ball", "values": {"name": "x"}}
    assert client.call_tool("update_record", call, check=False).is_error
    monkeypatch.setattr(MovingForm, "is_migrated", True)
    Category.objects.get_or_create(code="toys")
    clock = SimpleNamespace(now=1e9)
    monkeypatch.setattr(deferred, "time", SimpleNamespace(monotonic=lambda: clock.now))
    assert not client.call_tool("update_record", call).is_error
    assert Product.objects.get().name == "x"


def test_a_call_uses_what_the_form_has_now():
    class Counted(forms.Form):
        """Begins with a number of rows, and has a field for each of them."""

        number = forms.IntegerField(required=False)

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.fields["number"].initial = Tag.objects.count()
            for tag in Tag.objects.all():
                self.fields[f"is_{tag.word}"] = forms.BooleanField(required=False)

    server = MCPServer("forms")

    @server.tool(form=Counted)
    async def count(form: Any) -> str:
        """Count."""
        return str(sorted(form.cleaned_data.items()))

    client = MCPClient(server=server, user=person("ada"))
    assert client.call_tool("count").text == "[('number', 0)]"
    Tag.objects.create(word="red")
    assert client.call_tool("count", {"is_red": True}).text == "[('is_red', True), ('number', 1)]"


class OwnedForm(forms.Form):
    """Sets its queryset from what only its view has."""

    tag = forms.ModelChoiceField(queryset=None)

    def __init__(self, *args: Any, owner: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["tag"].queryset = Tag.objects.all()


def test_a_form_that_only_its_view_can_create_is_described_by_its_class():
    server = MCPServer("forms")
    server.register_view("own", method="post", form=OwnedForm)
    assert "own" in server.tools


def test_a_function_with_such_a_form_has_the_fields_of_the_form():
    class TagForm(forms.Form):
        """Sets its queryset when it is created."""

        tag = forms.ModelChoiceField(queryset=None)

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.fields["tag"].queryset = Tag.objects.all()

    server = MCPServer("forms")

    @server.tool(form=TagForm)
    def choose(form: Any) -> str:
        """Choose one."""
        return str(form.cleaned_data["tag"])

    red = Tag.objects.create(word="red")
    client = MCPClient(server=server, user=person("ada"))
    assert client.call_tool("choose", {"tag": red.pk}).text == "red"
    assert client.call_tool("choose", {"tag": 0}, check=False).is_error


def test_an_admin_that_needs_missing_tables_is_left_out_until_they_exist(monkeypatch):
    class Moved(admin.ModelAdmin):
        """Reads rows for its form."""

        list_display = ["slug"]
        is_migrated = False

        def get_form(self, request: Any, obj: Any = None, **kwargs: Any) -> Any:
            """Read them."""
            if not self.is_migrated:
                raise OperationalError("no such table: shop_tag")
            return super().get_form(request, obj, **kwargs)

    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(deferred, "time", SimpleNamespace(monotonic=lambda: clock.now))
    own = AdminSite(name="desk")
    own.register(Product, Moved)
    server = MCPServer("desk")
    server.register_admin(Product, site=own, tools=["list", "update"])
    client = MCPClient(server=server, user=person("root", is_staff=True, is_superuser=True))
    assert [definition["name"] for definition in client.list_tools()] == ["list_products"]
    monkeypatch.setattr(Moved, "is_migrated", True)
    clock.now += deferred.RETRY_AFTER + 1
    assert "name" in tool(client, "update_product")["inputSchema"]["properties"]
