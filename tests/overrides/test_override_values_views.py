"""Overrides of a tool apply to its view (MCP Apps); overrides of the view apply to it alone."""

import pytest
from django.contrib.auth.models import Group

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import Component
from mcp_django.overrides.sync import sync_rows
from mcp_django.test import ErrorResponse, MCPClient
from tests.kit.servers import person
from tests.overrides.site import decide

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unpinned")]
URI = "ui://hall/board"


@pytest.fixture
def hall():
    server = MCPServer("hall", permission=AllowAny)
    server.tool("board", description="A board.", ui="admin/base_site.html")(lambda: "x")
    return server


def test_a_tool_that_is_off_takes_its_view_along(hall):
    client = MCPClient(server=hall, user=person("ada"))
    assert [resource["uri"] for resource in client.list_resources()] == [URI]
    decide("hall", "board", is_enabled=False)
    assert client.list_resources() == []
    with pytest.raises(ErrorResponse):
        client.read_resource(URI)


def test_a_tool_for_a_group_has_a_view_for_that_group(hall):
    clerks = Group.objects.create(name="clerks")
    ada, bob = person("ada"), person("bob")
    ada.groups.add(clerks)
    decide("hall", "board", groups=["clerks"])
    assert MCPClient(server=hall, user=bob).list_resources() == []
    with pytest.raises(ErrorResponse):
        MCPClient(server=hall, user=bob).read_resource(URI)
    assert [resource["uri"] for resource in MCPClient(server=hall, user=ada).list_resources()] == [
        URI
    ]


@pytest.mark.parametrize("kind", ["tool", "resource"])
def test_a_new_name_of_the_tool_opens_no_view(kind):
    server = MCPServer("hall", permission=AllowAny)
    server.tool("notices", aliases=["board"], ui="admin/base_site.html")(lambda: "x")
    client = MCPClient(server=server, user=person("ada"))
    # Hosts cache the URI of a tool's view.
    assert client.read_resource(URI)[0]["uri"] == URI
    decide("hall", "board" if kind == "tool" else URI, kind=kind, is_enabled=False)
    assert client.list_resources() == []
    for uri in (URI, "ui://hall/notices"):
        with pytest.raises(ErrorResponse):
            client.read_resource(uri)


def test_a_view_that_is_off_leaves_the_tool_with_its_text(hall):
    sync_rows([hall])
    assert Component.objects.filter(server="hall", kind="resource", key=URI).exists()
    decide("hall", URI, kind="resource", is_enabled=False)
    client = MCPClient(server=hall, user=person("ada"))
    (tool,) = client.list_tools()
    assert "_meta" not in tool
    assert client.call_tool("board").text == "x"
