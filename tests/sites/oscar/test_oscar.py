"""Categories, products and groups through the admin of the shop."""

from __future__ import annotations

import os
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from oscar.core.loading import get_model

from mcp_django import mcp
from mcp_django.test import MCPClient
from tests.sites.programs import migrate, run

pytestmark = pytest.mark.django_db
Category = get_model("catalogue", "Category")
Product = get_model("catalogue", "Product")
ProductClass = get_model("catalogue", "ProductClass")


@pytest.fixture
def staff(db):
    """Return a client of a superuser."""
    user = get_user_model().objects.create_superuser("root", "root@example.org", "x")
    return MCPClient(server=mcp, user=user)


def test_deleting_a_category_says_what_goes_along(staff):
    root = Category.add_root(name="Books")
    branch = root.add_child(name="Fiction")
    for number in range(5):
        Category.objects.get(pk=branch.pk).add_child(name=f"Shelf {number}")
    (row,) = [
        row
        for row in staff.call_tool("list_categories").structured["items"]
        if row["name"] == "Books"
    ]
    key = {name: row[name] for name in ("id", "slug") if name in row}
    argument = next(iter(tool_arguments(staff, "delete_category")))
    call = {argument: key.get(argument, root.pk)}
    preview = staff.call_tool("delete_category", {**call, "preview": True}).structured
    assert preview["cascade"]["catalogue.Category"] == 7
    assert Category.objects.count() == 7
    done = staff.call_tool("delete_category", call).structured
    assert done["deleted"] == preview["cascade"]
    assert not Category.objects.exists()


def tool_arguments(client: MCPClient, name: str) -> dict[str, Any]:
    (tool,) = [tool for tool in client.list_tools() if tool["name"] == name]
    schema: dict[str, Any] = tool["inputSchema"]["properties"]
    return schema


def test_a_product_has_its_title_and_what_its_form_shows(staff):
    kind = ProductClass.objects.create(name="Book")
    product = Product.objects.create(title="Emma", product_class=kind, upc="1")
    (row,) = staff.call_tool("list_products").structured["items"]
    assert row["title"] == "Emma"
    argument = next(iter(tool_arguments(staff, "get_product")))
    shown = staff.call_tool("get_product", {argument: getattr(product, argument)}).structured
    assert shown["title"] == "Emma"
    assert shown["product_class"]["label"] == "Book"


def test_groups_show_what_they_write(staff):
    Group.objects.create(name="clerks")
    shown = staff.call_tool("get_group", {"name": "clerks"}).structured
    assert shown["permissions"] == []
    call = {"name": "clerks", "permissions": [1, 2], "preview": True}
    assert "permissions" in staff.call_tool("update_group", call).structured["changes"]


@pytest.mark.outside
def test_the_site_is_migrated_from_nothing(tmp_path):
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.sites.oscar.settings"}
    environ["MCP_TEST_DATABASE"] = str(tmp_path / "database")
    migrate(environ)
    assert "list_products" in run(environ, "mcp", "list")
