"""Overrides that the site owner made for a component also apply under its new name."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django.models import Component
from mcp_django.test import MCPClient
from mcp_django.testing.answers import ErrorResponse
from tests.kit.servers import person, real_client
from tests.overrides.site import decide, server_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unpinned")]


@pytest.fixture
def shop():
    """Return a server with one tool that has a new name."""
    server = server_of("renamed", "other")
    server.tool("find_orders", aliases=["orders"])(_work)
    return server


def _work() -> str:
    """Work."""
    return "done"


def refusal(client: MCPClient, name: str) -> tuple[Any, str]:
    """Return how the call of a tool is refused."""
    with pytest.raises(ErrorResponse) as caught:
        client.call_tool(name)
    return caught.value.code, str(caught.value).replace(name, "NAME")


@pytest.mark.parametrize("decided", ["find_orders", "orders"])
def test_what_is_switched_off_by_any_name_is_gone_by_every_name(shop, decided):
    client = real_client(server=shop)
    decide(shop.name, decided, is_enabled=False)
    unknown = refusal(client, "never_was")
    assert refusal(client, "orders") == refusal(client, "find_orders") == unknown


@pytest.mark.parametrize("decided", ["shop://About", "Shop://About", "OLD://About"])
def test_what_is_switched_off_by_a_uri_is_gone_whatever_the_case_of_its_scheme(decided):
    shop = server_of("capitals")
    shop.resource("Shop://About", aliases=["OLD://About"])(_work)
    client = real_client(server=shop)
    assert client.read_resource("Shop://About")
    decide(shop.name, decided, kind="resource", is_enabled=False)
    assert client.list_resources() == []
    for uri in ("Shop://About", "shop://About", "old://About"):
        with pytest.raises(ErrorResponse):
            client.read_resource(uri)


def test_what_was_narrowed_under_the_former_name_stays_narrow(shop):
    decide(shop.name, "orders", permissions=["auth.view_group"])
    for user, names in (
        (person(), ["other"]),
        (person("root", is_superuser=True), ["find_orders", "other"]),
    ):
        tools = real_client(server=shop, user=user).list_tools()
        assert [tool["name"] for tool in tools] == names


def test_the_new_words_win_and_other_components_are_left_alone(shop):
    decide(shop.name, "orders", description="Old words")
    decide(shop.name, "find_orders", description="New words")
    descriptions = {
        tool["name"]: tool["description"] for tool in real_client(server=shop).list_tools()
    }
    assert descriptions == {"find_orders": "New words", "other": "Work."}


def test_the_admin_says_what_answers_to_which_name(shop, client):
    decide(shop.name, "orders")
    decide(shop.name, "find_orders")
    client.force_login(person("root", is_superuser=True, is_staff=True))
    pages = {
        row.key: client.get(f"/admin/mcp_django/component/{row.pk}/change/").content.decode()
        for row in Component.objects.filter(server=shop.name)
    }
    assert "former names: orders." in pages["find_orders"]
    assert "Code has renamed this component to find_orders" in pages["orders"]
