"""`server/discover`, and that its answer is true."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from mcp_django import Context, EmbeddedResource, Icon, MCPServer, ResourceLink, mcp
from mcp_django.protocol import envelope
from mcp_django.protocol.errors import INVALID_PARAMS, METHOD_NOT_FOUND
from mcp_django.protocol.revisions import HANDSHAKE
from mcp_django.test import ErrorResponse, MCPClient
from tests.kit.servers import open_to_all, person
from tests.sites.example.mcp import open_server
from tests.spec import spec

METHODS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "tools": [("tools/list", {}), ("tools/call", {"name": "x"})],
    "resources": [
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": "x://x"}),
    ],
    "prompts": [("prompts/list", {}), ("prompts/get", {"name": "x"})],
    "completions": [
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "v", "value": ""}},
        )
    ],
}


def declare(server: MCPServer, capability: str) -> None:
    if capability == "tools":
        server.tool("x")(lambda: "x")
    elif capability == "resources":
        server.resource("x://x")(lambda: "x")
    else:
        if "x" not in server.prompts:
            server.prompt("x")(lambda v="": "x")
        if capability == "completions":
            server.completion("x", "v")(lambda value: [])


def code_of(client: MCPClient, method: str, params: dict[str, Any] | None = None) -> int | None:
    try:
        client.request(method, params)
    except ErrorResponse as exc:
        return exc.code
    return None


@spec("VER-7", "VER-9", "CCH-1", "EXT-3", "VER-10", "LOG-1")
def test_discovery_names_versions_capabilities_and_identity():
    assert MCPClient(server=open_server).discover() == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28", *(revision.version for revision in HANDSHAKE)],
        "capabilities": {"tools": {"listChanged": True}, "logging": {}},
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {envelope.SERVER_INFO: open_server.identity()},
    }


@spec("VER-8", "TOOL-1", "RSC-1", "PRM-1", "CMP-1", "RPC-10")
@pytest.mark.parametrize("capability", METHODS)
def test_what_is_advertised_works_and_nothing_else(capability):
    server = open_to_all()
    declare(server, capability)
    client = MCPClient(server=server)
    offered = client.discover()["capabilities"]
    expected = {capability, "logging"} | ({"prompts"} if capability == "completions" else set())
    assert set(offered) == expected
    for name, methods in METHODS.items():
        for method, params in methods:
            code = code_of(client, method, params)
            assert code == (None if name in offered else METHOD_NOT_FOUND), method


def embedded(text: str) -> EmbeddedResource:
    return EmbeddedResource("note://", text=text)


@spec("TOOL-15")
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("kind", ["tool", "prompt"])
@pytest.mark.parametrize("says", ["code", "type"])
def test_who_embeds_resources_has_resources(kind, says, version):
    def by_code(ctx: Context) -> object:
        return [EmbeddedResource("note://", text="x")]

    def by_type(ctx: Context) -> list[EmbeddedResource]:
        return [embedded("x")]

    server = open_to_all()
    getattr(server, kind)(name="look")(by_code if says == "code" else by_type)
    assert MCPClient(server=server).discover()["capabilities"]["resources"] == {"listChanged": True}
    client = MCPClient(server=server, protocol_version=version)
    assert client.list_resources() == []
    assert code_of(client, "resources/read", {"uri": "note://"}) not in (None, METHOD_NOT_FOUND)


def test_a_link_to_a_resource_needs_none():
    server = open_to_all()
    server.tool(name="look")(lambda: ResourceLink("https://example.com/", name="example"))
    assert "resources" not in MCPClient(server=server).discover()["capabilities"]


@spec("VER-8", "SUB-16")
async def test_a_server_without_components_offers_nothing():
    client = MCPClient(server=open_to_all())
    assert client.discover()["capabilities"] == {}
    with pytest.raises(ErrorResponse) as caught:
        async with client.listen(lists=["tools"]):
            raise AssertionError("unreachable")
    assert caught.value.code == METHOD_NOT_FOUND


def test_subscribe_is_offered_while_a_resource_can_be_subscribed_to():
    server = open_to_all()
    server.resource("x://still", subscribe=False)(lambda: "x")
    client = MCPClient(server=server)
    assert client.discover()["capabilities"]["resources"] == {"listChanged": True}
    server.resource("x://{moving}")(lambda moving: "x")
    assert client.discover()["capabilities"]["resources"] == {
        "listChanged": True,
        "subscribe": True,
    }


@spec("RPC-10", "LOG-6", "PNG-3")
@pytest.mark.parametrize(
    "method",
    [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/get",
        "TOOLS/LIST",
        "",
        "x" * 10_000,
    ],
)
def test_methods_of_other_revisions_are_not_found(method):
    assert code_of(MCPClient(server=open_server), method) == METHOD_NOT_FOUND


@spec("LOG-1", "LOG-5")
@pytest.mark.parametrize(
    "level", ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
)
def test_the_eight_levels_are_known(level):
    client = MCPClient(server=open_server)
    assert code_of(client, "tools/list", {"_meta": {envelope.LOG_LEVEL: level}}) is None


@spec("LOG-5", "VER-3")
@pytest.mark.parametrize(
    "changes",
    [
        {envelope.LOG_LEVEL: "loud"},
        {envelope.LOG_LEVEL: 3},
        {envelope.PROTOCOL_VERSION: None},
        {envelope.CLIENT_CAPABILITIES: None},
        {envelope.CLIENT_CAPABILITIES: []},
        {envelope.PROGRESS_TOKEN: 1.5},
        {envelope.PROGRESS_TOKEN: True},
    ],
)
def test_a_malformed_envelope_is_refused(changes):
    client = MCPClient(server=open_server)
    assert code_of(client, "tools/list", {"_meta": changes}) == INVALID_PARAMS


@spec("VER-3", "MET-1", "VER-5", "EXT-2")
@pytest.mark.parametrize(
    "changes",
    [
        {envelope.CLIENT_INFO: None},
        {envelope.LOG_LEVEL: None},
        {"com.example/unknown": {"deep": [1]}},
        {"-": 1},
        {envelope.CLIENT_INFO: {"name": "root", "version": "x"}},
        {envelope.CLIENT_CAPABILITIES: {"extensions": {"com.example/unknown": {}}}},
        {envelope.CLIENT_CAPABILITIES: {"extensions": 5}},
    ],
)
def test_what_is_optional_or_unknown_in_the_envelope_changes_nothing(changes):
    client = MCPClient(server=open_server)
    assert client.request("tools/list", {"_meta": changes}) == client.request("tools/list")


@override_settings(
    MCP_DJANGO={
        "TITLE": "The shop",
        "INSTRUCTIONS": "Be kind.",
        "ICONS": [{"src": "https://x.test/i.png"}],
    }
)
@pytest.mark.django_db
def test_the_settings_describe_the_default_server_alone():
    result = MCPClient(server=mcp, user=person()).discover()
    identity = result["_meta"][envelope.SERVER_INFO]
    assert result["instructions"] == "Be kind."
    assert identity["title"] == "The shop"
    assert identity["icons"] == [{"src": "https://x.test/i.png"}]
    other = MCPClient(server=open_to_all()).discover()
    assert "instructions" not in other
    assert set(other["_meta"][envelope.SERVER_INFO]) == {"name", "version"}


@spec("UIX-1", "VER-7")
def test_a_server_describes_itself():
    server = open_to_all(
        title="Desk",
        version="9",
        description="What it does.",
        instructions="Ask first.",
        website_url="https://x.test/",
        icons=[Icon("https://x.test/i.png")],
    )
    result = MCPClient(server=server).discover()
    assert result["instructions"] == "Ask first."
    assert result["_meta"][envelope.SERVER_INFO] == {
        "name": "inline",
        "version": "9",
        "title": "Desk",
        "description": "What it does.",
        "icons": [{"src": "https://x.test/i.png"}],
        "websiteUrl": "https://x.test/",
    }
