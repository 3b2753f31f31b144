"""The life of a page: a draft below a parent, revisions, publishing, and who may do what."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.core.exceptions import ImproperlyConfigured
from wagtail.models import GroupPagePermission, ModelLogEntry, Page, PageLogEntry

from mcp_django import MCPServer, mcp
from mcp_django.integrations.wagtail import PageTools
from mcp_django.test import MCPClient
from tests.sites.wagtail.models import Ingredient, Link, Recipe

pytestmark = pytest.mark.django_db


@pytest.fixture
def chef(root):
    """Return a client of a superuser."""
    return MCPClient(server=mcp, user=root)


def editor(home: Any, *codenames: str) -> MCPClient:
    """Return a client of a user with these page permissions below the home page."""
    group = Group.objects.create(name="editors")
    for codename in codenames:
        permission = Permission.objects.get(
            codename=codename, content_type__app_label="wagtailcore"
        )
        GroupPagePermission.objects.create(group=group, page=home, permission=permission)
    user = get_user_model().objects.create_user("editor")
    user.groups.add(group)
    return MCPClient(server=mcp, user=get_user_model().objects.get(pk=user.pk))


def names(client: MCPClient) -> list[str]:
    return [tool["name"] for tool in client.list_tools()]


def create(client: MCPClient, home: Any, **values: Any) -> dict[str, Any]:
    arguments = {"parent": home.pk, "title": "Rye bread", **values}
    recipe: dict[str, Any] = client.call_tool("create_recipe", arguments).structured
    return recipe


def test_a_page_is_created_as_a_draft_below_its_parent(chef, home):
    flour = Ingredient.objects.create(name="Flour")
    body = [
        {"type": "heading", "value": "Dough"},
        {"type": "step", "value": {"text": "Knead", "minutes": 10}},
    ]
    values = {"body": body, "ingredients": [flour.pk], "tags": "rye, bread"}
    preview = create(chef, home, **values, preview=True)
    assert preview["changes"]["title"] == {"from": None, "to": "Rye bread"}
    assert not Recipe.objects.exists()
    made = create(chef, home, **values)
    assert (made["live"], made["has_unpublished_changes"], made["slug"]) == (
        False,
        True,
        "rye-bread",
    )
    assert [block["type"] for block in made["body"]] == ["heading", "step"]
    assert made["body"][1]["value"] == {"text": "Knead", "minutes": 10}
    assert made["ingredients"] == [{"id": flour.pk, "label": "Flour"}]
    assert sorted(tag["label"] for tag in made["tags"]) == ["bread", "rye"]
    page = Recipe.objects.get()
    assert page.get_parent().pk == home.pk
    assert page.owner.username == "root"


def test_a_change_is_a_revision_until_it_is_published(chef, home):
    flour = Ingredient.objects.create(name="Flour")
    key = {"id": create(chef, home, ingredients=[flour.pk])["id"]}
    shown = chef.call_tool("publish_recipe", key).structured
    assert (shown["live"], shown["has_unpublished_changes"]) == (True, False)
    call = {**key, "title": "Wheat bread", "ingredients": []}
    preview = chef.call_tool("update_recipe", {**call, "preview": True}).structured
    assert preview["changes"]["title"] == {"from": "Rye bread", "to": "Wheat bread"}
    changed = chef.call_tool("update_recipe", call).structured
    assert (changed["title"], changed["ingredients"]) == ("Wheat bread", [])
    assert changed["has_unpublished_changes"] is True
    page = Recipe.objects.get()
    assert (page.title, page.ingredients.count()) == ("Rye bread", 1)
    more = chef.call_tool("update_recipe", {**key, "introduction": "Soft."}).structured
    assert (more["title"], more["introduction"]) == ("Wheat bread", "Soft.")
    chef.call_tool("publish_recipe", key)
    page = Recipe.objects.get()
    assert (page.title, page.introduction, page.ingredients.count()) == ("Wheat bread", "Soft.", 0)
    assert chef.call_tool("unpublish_recipe", key).structured["live"] is False
    actions = set(PageLogEntry.objects.values_list("action", flat=True))
    assert {"wagtail.create", "wagtail.edit", "wagtail.publish", "wagtail.unpublish"} <= actions
    assert not ModelLogEntry.objects.exists()


def test_the_rows_of_a_page_are_shown_in_their_order(chef, home):
    page = home.add_child(instance=Recipe(title="Rye bread"))
    page.links.add(Link(url="https://example.org/2", title="Second", sort_order=2))
    page.links.add(Link(url="https://example.org/1", title="First", sort_order=1))
    page.save()
    (row,) = chef.call_tool("list_recipes").structured["items"]
    assert [link["title"] for link in row["links"]] == ["First", "Second"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([{"type": "picture", "value": 1}], "body: [0] must be"),
        ([{"value": "x"}], "with one of the types heading, paragraph, step"),
        ("text", "body: must be a list of blocks"),
        ([{"type": "heading", "value": ""}], "body: [0]: This field is required"),
        (
            [{"type": "step", "value": {"text": "Wait", "minutes": -1}}],
            "body: [0].minutes: Ensure this value is greater than or equal to 0",
        ),
    ],
)
def test_blocks_that_the_editor_refuses_are_named(chef, home, body, words):
    arguments = {"parent": home.pk, "title": "Bread", "body": body}
    refused = chef.call_tool("create_recipe", arguments, check=False)
    assert refused.is_error
    assert words in refused.text
    assert not Recipe.objects.exists()


def test_a_parent_that_is_not_there_or_takes_no_such_page_is_refused(chef, home, monkeypatch):
    missing = chef.call_tool("create_recipe", {"parent": 0, "title": "Bread"}, check=False)
    assert missing.text.startswith("parent: this page does not exist")
    monkeypatch.setattr(Recipe, "can_create_at", classmethod(lambda cls, parent: False))
    refused = chef.call_tool("create_recipe", {"parent": home.pk, "title": "Bread"}, check=False)
    assert refused.is_error
    assert not Recipe.objects.exists()


def test_visitors_see_what_is_live_and_write_nothing(chef, home):
    live = create(chef, home, title="Live")
    create(chef, home, title="Draft")
    chef.call_tool("publish_recipe", {"id": live["id"]})
    chef.call_tool("update_recipe", {"id": live["id"], "title": "Not yet"})
    visitor = MCPClient(server=mcp, user=get_user_model().objects.create_user("visitor"))
    assert names(visitor) == ["get_recipe", "list_recipes"]
    (row,) = visitor.call_tool("list_recipes").structured["items"]
    assert row["title"] == "Live"
    assert visitor.call_tool("get_recipe", {"id": live["id"]}).structured["title"] == "Live"


def test_editors_do_what_wagtail_lets_them(chef, home):
    others = create(chef, home, title="Of others")
    client = editor(home, "add_page")
    assert "create_recipe" in names(client)
    own = create(client, home, title="Own")
    assert not client.call_tool("update_recipe", {"id": own["id"], "title": "Mine"}).is_error
    for tool, arguments in (
        ("update_recipe", {"id": others["id"], "title": "x"}),
        ("publish_recipe", {"id": own["id"]}),
        ("delete_recipe", {"id": others["id"]}),
    ):
        assert client.call_tool(tool, arguments, check=False).is_error
    assert Page.objects.get(pk=others["id"]).title == "Of others"


def test_an_editor_with_every_permission_publishes(home):
    client = editor(home, "add_page", "change_page", "publish_page")
    key = {"id": create(client, home)["id"]}
    assert client.call_tool("publish_recipe", key).structured["live"] is True
    assert client.call_tool("delete_recipe", key).structured["deleted"]["wagtail_site.Recipe"] == 1


def test_a_misspelled_action_and_another_model_are_refused():
    details = {"fields": ["id"], "page_actions": ["publsh"]}
    with pytest.raises(ImproperlyConfigured, match="did you mean 'publish'"):
        MCPServer("a").register(Recipe, type("Tools", (PageTools,), details))
    with pytest.raises(ImproperlyConfigured, match="PageTools is for pages of Wagtail"):
        MCPServer("b").register(Ingredient, type("Tools", (PageTools,), {"fields": ["id"]}))
