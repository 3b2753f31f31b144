"""`MCPServer`: its name, its URLs, and how it notifies of changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client, override_settings
from django.urls import reverse

from mcp_django import MCPServer, mcp
from mcp_django.server import DefaultServer, all_servers
from mcp_django.test import MCPClient
from tests.kit.drivers import message
from tests.kit.servers import open_to_all, post
from tests.sites.example.mcp import staff
from tests.spec import spec


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"name": "with space"}, "'with space'"),
        ({"name": ""}, "''"),
        ({"name": "a:b"}, "'a:b'"),
        ({"auth": "tokens"}, "auth=['tokens']"),
        ({"page_size": 0}, "page_size is 0"),
        ({"page_size": -1}, "page_size is -1"),
    ],
)
def test_a_mistaken_option_is_named(options, word):
    with pytest.raises(ImproperlyConfigured) as caught:
        MCPServer(**{"name": "inline", **options})
    assert word in str(caught.value)


def test_addresses_are_reversed_by_the_name_of_the_server():
    assert reverse("mcp_django:endpoint") == "/mcp"
    assert reverse("mcp_django_staff:endpoint") == "/staff/mcp"
    assert staff.namespace == "mcp_django_staff"
    assert MCPServer().namespace == "mcp_django"


@spec("HTTP-10")
def test_both_spellings_answer_and_others_do_not():
    for path in ("/open/mcp", "/open/mcp/"):
        response = post(path, message("tools/list"), client=Client(enforce_csrf_checks=True))
        assert response.status_code == 200
        assert not response.cookies
    assert post("/open/mcp/x", message("tools/list")).status_code == 404
    assert post("/open/mcpx", message("tools/list")).status_code == 404


def test_a_server_says_which_it_is():
    assert repr(staff) == "<MCPServer 'staff'>"
    assert {"default", "open", "staff"} <= {server.name for server in all_servers()}


def test_the_default_server_is_made_at_first_use():
    lazy: Any = DefaultServer()
    assert isinstance(lazy.tools, dict)
    assert lazy.is_default
    assert mcp.is_default
    assert isinstance(mcp, MCPServer)


def test_a_server_may_authenticate_in_its_own_way():
    server = MCPServer("inline", auth=["session"])
    with override_settings(MCP_DJANGO={"AUTH": ["drf"]}):
        assert server.auth == ("session",)
        assert staff.auth == ("drf",)


def test_there_are_three_lists_to_notify_of():
    odd: Any = "templates"
    with pytest.raises(ValueError, match="'templates'"):
        mcp.notify_list_changed(odd)


@pytest.mark.django_db(transaction=True)
@spec("SUB-10")
async def test_listeners_hear_of_what_they_asked_for():
    server = open_to_all()
    server.tool("tool")(lambda: "x")
    server.prompt("prompt")(lambda: "x")
    server.resource("x://{n}")(lambda n: "x")
    async with MCPClient(server=server).listen(lists=["tools"], uris=["x://1"]) as messages:
        await anext(messages)
        server.notify_list_changed("prompts")
        server.notify_resource_updated("x://2")
        server.notify_resource_updated("x://1")
        first = await anext(messages)
        server.notify_list_changed("tools")
        second = await anext(messages)
    assert first["method"] == "notifications/resources/updated"
    assert first["params"]["uri"] == "x://1"
    assert second["method"] == "notifications/tools/list_changed"


@pytest.mark.django_db(transaction=True)
@spec("SUB-18")
async def test_edited_tools_and_templates_are_changes_of_their_lists():
    server = open_to_all()
    server.tool("tool", description="Old.")(lambda: "x")
    server.resource("x://old/{n}")(lambda n: "x")
    client = MCPClient(server=server)
    async with client.listen(lists=["tools", "resources"]) as messages:
        await anext(messages)
        server.unregister(server.tools["tool"])
        server.tool("tool", description="New.")(lambda: "x")
        server.notify_list_changed("tools")
        assert (await anext(messages))["method"] == "notifications/tools/list_changed"
        server.unregister(server.templates["x://old/{n}"])
        server.resource("x://new/{n}")(lambda n: "x")
        server.notify_list_changed("resources")
        assert (await anext(messages))["method"] == "notifications/resources/list_changed"
    (tool,) = client.list_tools()
    (template,) = client.list_resource_templates()
    assert (tool["description"], template["uriTemplate"]) == ("New.", "x://new/{n}")


@pytest.mark.django_db(transaction=True)
@spec("CCH-5")
async def test_a_change_within_the_lifetime_is_announced():
    server = open_to_all()
    stock = ["one"]
    server.resource("x://stock", cache_ttl=timedelta(hours=1))(lambda: stock[0])
    client = MCPClient(server=server)
    async with client.listen(uris=["x://stock"]) as messages:
        await anext(messages)
        result = await client.arequest("resources/read", {"uri": "x://stock"})
        stock[0] = "two"
        server.notify_resource_updated("x://stock")
        notification = await anext(messages)
    assert (result["ttlMs"], result["contents"][0]["text"]) == (3_600_000, "one")
    assert notification["params"]["uri"] == "x://stock"
    assert (await client.aread_resource("x://stock"))[0]["text"] == "two"
