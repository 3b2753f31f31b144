"""Deleting a node: the preview, the result and the table say the same."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django import MCPServer
from mcp_django.integrations.models.declaration import ModelTools
from mcp_django.test import MCPClient
from tests.sites.wagtail.models import Bread, Category, Genre, Recipe, Shelf

pytestmark = pytest.mark.django_db
TOOLS = ["list", "get", "delete"]


def client(user: Any, model: Any, **options: Any) -> MCPClient:
    server = MCPServer("trees")
    details = {"fields": ["id", "name"], "tools": TOOLS, **options}
    server.register(model, type("Tools", (ModelTools,), details))
    return MCPClient(server=server, user=user)


def plant(model: Any) -> Any:
    """Return the root of a tree of seven; another tree stands beside it."""

    def add(parent: Any, name: str) -> Any:
        if model is Genre:
            return Genre.objects.create(name=name, parent=parent)
        if parent is None:
            return model.add_root(name=name)
        return model.objects.get(pk=parent.pk).add_child(name=name)

    root = add(None, "root")
    branch = add(root, "branch")
    for number in range(5):
        add(branch, f"leaf {number}")
    add(None, "other")
    return root


@pytest.mark.parametrize("model", [Category, Shelf, Genre])
def test_a_subtree_is_counted_before_and_after(root, model):
    node, label = plant(model), model._meta.label
    tools = client(root, model)
    call = {"id": node.pk}
    name = f"delete_{model.__name__.lower()}"
    preview = tools.call_tool(name, {**call, "preview": True}).structured
    assert preview == {"preview": True, "cascade": {label: 7}}
    assert model.objects.count() == 8
    assert tools.call_tool(name, call).structured == {"deleted": {label: 7}}
    assert model.objects.count() == 1


def test_what_hangs_on_a_subtree_is_counted_too(root):
    node = plant(Category)
    Bread.objects.create(name="Rye", category=Category.objects.get(name="leaf 3"))
    counts = client(root, Category).call_tool("delete_category", {"id": node.pk}).structured
    assert counts["deleted"] == {"wagtail_site.Category": 7, "wagtail_site.Bread": 1}


def test_of_a_subtree_only_visible_nodes_are_counted(root):
    node = plant(Category)
    rows = Category.objects.exclude(name="leaf 3")
    tools = client(root, Category, get_queryset=lambda self, ctx: rows)
    counts = tools.call_tool("delete_category", {"id": node.pk}).structured
    assert counts == {"deleted": {"wagtail_site.Category": 6}}


@pytest.mark.parametrize("has_rule", [False, True])
def test_a_large_tree_is_counted_within_bounds(root, *, has_rule):
    node = Category.add_root(name="root")
    number = 100_000
    Category.objects.bulk_create(
        Category(path=node.path + Category._int2str(index + 1).rjust(4, "0"), depth=2, name="leaf")
        for index in range(number)
    )
    Category.objects.filter(pk=node.pk).update(numchild=number)
    rows = Category.objects.exclude(name="none")
    rule = {"get_queryset": lambda self, ctx: rows} if has_rule else {}
    tools = client(root, Category, **rule)
    call = {"id": node.pk, "preview": True}
    counts = tools.call_tool("delete_category", call).structured
    if has_rule:
        assert counts["at_least"] is True
    else:
        assert counts == {"preview": True, "cascade": {"wagtail_site.Category": number + 1}}


def test_pages_below_a_page_are_counted(root, home):
    above = home.add_child(instance=Recipe(title="Above"))
    below = above.add_child(instance=Recipe(title="Below"))
    below.add_child(instance=type(home)(title="Plain"))
    tools = client(root, Recipe, fields=["id", "title"])
    call = {"id": above.pk}
    preview = tools.call_tool("delete_recipe", {**call, "preview": True}).structured["cascade"]
    assert (preview["wagtail_site.Recipe"], preview["wagtailcore.Page"]) == (2, 3)
    assert tools.call_tool("delete_recipe", call).structured["deleted"] == preview
    assert not Recipe.objects.exists()
