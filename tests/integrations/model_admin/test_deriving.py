"""What is derived from a `ModelAdmin`, and which `ModelAdmin` is used."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.forms import ModelForm, PasswordInput

from mcp_django import MCPServer
from mcp_django.test import MCPClient
from tests.integrations.model_admin.desk import clerk, client, server, site
from tests.integrations.models.building import order
from tests.kit.servers import person
from tests.sites.shop.models import Category, Customer, Order, Tag

pytestmark = pytest.mark.django_db


def declaration(made: MCPServer, model: Any = Order) -> Any:
    (source,) = made.declarations_of(model)
    return source


def schema(mcp: MCPClient, tool: str) -> dict[str, Any]:
    (definition,) = [candidate for candidate in mcp.list_tools() if candidate["name"] == tool]
    properties: dict[str, Any] = definition["inputSchema"]["properties"]
    return properties


# What is derived -----------------------------------------------------------------------------


def test_fields_are_those_of_the_list_and_of_the_form_without_code_and_without_excluded():
    assert list(declaration(server()).exposed.paths) == [
        "number", "status", "total", "customer", "placed_at", "note",
    ]  # fmt: skip


def test_named_fields_stand_in_their_place():
    made = server(fields=["number", "internal_note"])
    assert list(declaration(made).exposed.paths) == ["number", "internal_note"]


def test_what_is_searched_filtered_and_ordered_is_what_is_shown():
    mcp = client()
    properties = schema(mcp, "list_orders")
    assert "number" in properties["search"]["description"]
    assert "email" not in properties["search"]["description"]
    assert {"status", "customer", "placed_at__gte", "placed_at__year"} <= set(properties)
    assert not any(name.startswith("margin") for name in properties)
    assert properties["order_by"]["enum"][:2] == ["number", "-number"]
    assert "-customer" in properties["order_by"]["enum"]


def test_what_is_left_out_is_known():
    assert sorted(declaration(server()).left_out) == [
        "'shout' is code; to include it, use fields=…",
        "list_filter contains 'Large', which has no counterpart",
        "ordering contains 'margin', which is not in fields",
        "search_fields contains '=total', which has no counterpart",
        "search_fields contains 'customer__email', which is not in fields",
    ]


def test_the_order_is_that_of_the_admin():
    order("A1", placed_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    order("A2", placed_at=dt.datetime(2026, 1, 2, tzinfo=dt.UTC))
    rows = client().call_tool("list_orders").structured["items"]
    assert [row["number"] for row in rows] == ["A2", "A1"]


def test_an_admin_that_says_nothing_shows_its_form_and_the_name_of_an_object():
    class Bare(admin.ModelAdmin):
        """Nothing."""

    Category.objects.create(code="toys", title="Toys")
    made = MCPServer("desk")
    made.register_admin(Category, site=site((Category, Bare)))
    mcp = MCPClient(server=made, user=clerk("view_category"))
    assert mcp.call_tool("list_categories").structured["items"] == [
        {"code": "toys", "title": "Toys", "parent": None, "label": "Toys"}
    ]


def test_an_admin_that_shows_nothing_shows_the_key_and_says_so():
    class Nothing(admin.ModelAdmin):
        """A form without fields."""

        list_display = []
        exclude = ["word", "secret"]

    made = MCPServer("desk")
    made.register_admin(Tag, site=site((Tag, Nothing)))
    source = declaration(made, Tag)
    assert list(source.exposed.paths) == ["id"]
    (problem,) = source.left_out
    assert problem.startswith("Nothing shows no field, so only the key is; name the fields")


def test_secrets_of_the_form_stay_in_the_form():
    class CustomerForm(ModelForm):
        """An address that is typed like a password."""

        class Meta:
            """Its model."""

            model = Customer
            fields = ("name", "email", "password")
            widgets = {"email": PasswordInput}

    class CustomerAdmin(admin.ModelAdmin):
        """All of them shown."""

        form = CustomerForm
        list_display = ["name"]
        fields = ["name", "email", "password"]

    made = MCPServer("desk")
    made.register_admin(Customer, site=site((Customer, CustomerAdmin)))
    source = declaration(made, Customer)
    assert list(source.exposed.paths) == ["id", "name"]
    assert len(source.left_out) == 2


def test_the_admin_of_users_gives_no_hash():
    made = MCPServer("desk")
    made.register_admin(User, site=site((User, UserAdmin)), tools=["list", "get", "update"])
    assert "password" not in declaration(made, User).exposed.paths
    assert "username" in declaration(made, User).exposed.paths
    person("root", is_staff=True, is_superuser=True, password="s3cret-password")
    mcp = MCPClient(server=made, user=User.objects.get(username="root"))
    assert "pbkdf2" not in str(mcp.call_tool("list_users").raw)
    assert "md5" not in str(mcp.call_tool("list_users").raw)


def test_a_key_that_is_the_name_of_a_row_needs_no_number():
    class CategoryAdmin(admin.ModelAdmin):
        """By its code."""

        list_display = ["code", "title"]

    made = MCPServer("desk")
    made.register_admin(CategoryAdmin, site=site((Category, CategoryAdmin)))
    assert list(declaration(made, Category).exposed.paths) == ["code", "title", "parent"]
    assert set(made.tools) == {"list_categories", "get_category"}


# What is meant -------------------------------------------------------------------------------


def test_a_model_that_the_site_does_not_have_is_refused():
    made = MCPServer("desk")
    with pytest.raises(
        ImproperlyConfigured, match="Tag is not registered at the admin site 'desk'"
    ):
        made.register_admin(Tag, site=site())


def test_the_nearest_name_is_told():
    class OrdersAdmin(admin.ModelAdmin):
        """Of no site."""

    with pytest.raises(ImproperlyConfigured, match="did you mean OrderAdmin"):
        MCPServer("desk").register_admin(OrdersAdmin, site=site())


def test_an_admin_of_several_models_is_named_by_the_model():
    class Every(admin.ModelAdmin):
        """Of two."""

    made = site((Tag, Every), (Category, Every))
    with pytest.raises(ImproperlyConfigured, match="pass one of them: Tag, Category"):
        MCPServer("desk").register_admin(Every, site=made)


@pytest.mark.parametrize("wrong", ["shop.Order", object])
def test_what_is_neither_is_refused(wrong):
    with pytest.raises(ImproperlyConfigured, match="takes a model or a ModelAdmin"):
        MCPServer("desk").register_admin(wrong)


def test_the_default_site_is_looked_through_after_its_modules_were_imported():
    made = MCPServer("desk")
    made.register_admin(User)
    assert set(made.tools) == {"list_users", "get_user"}


def test_a_site_without_the_admin_is_told(settings):
    settings.INSTALLED_APPS = [
        app for app in settings.INSTALLED_APPS if app != "django.contrib.admin"
    ]
    with pytest.raises(ImproperlyConfigured, match=r'add "django.contrib.admin"'):
        MCPServer("desk").register_admin(Order)
