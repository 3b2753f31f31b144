"""Scopes that a server requires for what it generates from models: one to read, one to write."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured

from mcp_django import MCPServer
from mcp_django.exceptions import InsufficientScope
from mcp_django.integrations.models.declaration import ModelResource, ModelTools
from mcp_django.test import MCPClient
from tests.kit.servers import person
from tests.spec import spec

OPERATIONS = ("list", "get", "count", "create", "update", "delete")
READING = {"list_groups", "get_group", "count_groups"}


def offered(generated: Any, own: tuple[str, ...] = ()) -> MCPServer:
    """Return a server with everything that can be generated from a model."""
    server = MCPServer("made", generated_scopes=generated)

    class Groups(ModelTools[Group], ModelResource[Group]):
        """Groups."""

        fields = ("id", "name")
        filter_fields = ("name",)
        tools = OPERATIONS
        uri = "groups://{id}"
        scopes = own

    server.register(Group, Groups)
    return server


def scopes_of(server: MCPServer) -> dict[str, tuple[str, ...]]:
    return {name: tool.scopes for name, tool in server.tools.items()}


@spec("AUT-11")
@pytest.mark.parametrize(("generated", "word"), [(True, "auth"), ("desk", "desk")])
def test_viewing_needs_the_one_and_changing_the_other(generated, word):
    server = offered(generated)
    for name, scopes in scopes_of(server).items():
        assert scopes == ((f"{word}:read",) if name in READING else (f"{word}:write",))
    assert len(server.tools) == len(OPERATIONS)
    assert {template.scopes for template in server.templates.values()} == {(f"{word}:read",)}


def test_they_come_on_top_of_the_scopes_of_the_class():
    scopes = scopes_of(offered(True, own=("people", "auth:read")))
    assert scopes["list_groups"] == ("people", "auth:read")
    assert scopes["delete_group"] == ("people", "auth:read", "auth:write")


def test_unless_a_server_asks_for_them_there_are_none():
    assert set(scopes_of(offered(False)).values()) == {()}
    assert set(scopes_of(offered(False, own=("people",))).values()) == {("people",)}


@spec("AUT-6")
@pytest.mark.django_db
def test_a_token_to_read_does_not_write():
    root = person("root", is_superuser=True)
    with MCPClient(server=offered(True), user=root, scopes=["auth:read"]) as client:
        assert client.call_tool("list_groups").is_error is False
        with pytest.raises(InsufficientScope) as refused:
            client.call_tool("create_group", {"name": "New"})
    assert refused.value.scopes == ("auth:write",)
    assert not Group.objects.filter(name="New").exists()


@spec("AUT-6")
@pytest.mark.django_db
def test_one_set_of_tools_for_all_models_asks_for_the_scopes_of_each():
    server = offered(True)
    server.generic = True
    root = person("root", is_superuser=True)
    with MCPClient(server=server, user=root, scopes=["auth:read"]) as client:
        tools = [tool["name"] for tool in client.list_tools()]
        writing = next(name for name in tools if name.startswith("create"))
        with pytest.raises(InsufficientScope) as refused:
            client.call_tool(writing, {"model": "group", "values": {"name": "New"}})
    assert refused.value.scopes == ("auth:write",)


@pytest.mark.parametrize(
    "options",
    [
        {"generated_scopes": "two words"},
        {"scopes": ["two words"]},
        {"scopes": ['quo"te']},
        {"scopes": ["mcp", "offline_access"]},
    ],
)
def test_what_is_no_scope_is_told(options):
    with pytest.raises(ImproperlyConfigured, match="of the server 'odd' contains"):
        MCPServer("odd", **options)


def test_scopes_of_a_server_are_a_list():
    with pytest.raises(ImproperlyConfigured, match=r"write scopes=\['mcp'\]"):
        MCPServer("odd", scopes="mcp")
