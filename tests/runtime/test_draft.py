"""`DRAFT-2026-v1`, the alias: the stateless rules with other codes, ids and identity."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from mcp_django.protocol import meta
from mcp_django.protocol.errors import INVALID_PARAMS
from mcp_django.test import ErrorResponse, MCPClient
from tests.example.mcp import open_server
from tests.spec import spec

DRAFT = "DRAFT-2026-v1"


def unsupported(client: MCPClient) -> ErrorResponse:
    with pytest.raises(ErrorResponse) as caught:
        client.list_tools()
    return caught.value


@spec("ALS-1", "ALS-2", "ALS-4")
def test_a_client_of_the_draft_is_served_and_told_of_it() -> None:
    draft = MCPClient(server=open_server, protocol_version=DRAFT)
    result = draft.discover()
    assert result["supportedVersions"] == [DRAFT, "2026-07-28"]
    assert result["serverInfo"] == open_server.identity()
    assert draft.call_tool("echo", {"text": "x"}).text == "x"
    assert draft.list_tools() == MCPClient(server=open_server).list_tools()


@spec("ALS-4", "VER-7")
def test_others_are_not_told_of_the_draft() -> None:
    result = MCPClient(server=open_server).discover()
    assert result["supportedVersions"] == ["2026-07-28"]
    assert "serverInfo" not in result


@spec("ALS-3")
def test_a_client_of_the_draft_need_not_say_who_it_is() -> None:
    client = MCPClient(server=open_server, protocol_version=DRAFT)
    assert client.request("tools/list", {"_meta": {meta.CLIENT_INFO: None}})["tools"]


@spec("ALS-2", "SUB-9")
async def test_subscription_ids_are_text() -> None:
    client = MCPClient(server=open_server, protocol_version=DRAFT)
    async with client.listen(lists=["tools"]) as messages:
        acknowledged = await anext(messages)
    assert acknowledged["params"]["_meta"][meta.SUBSCRIPTION_ID] == "1"


@spec("SUB-8", "SUB-9")
async def test_subscription_ids_are_the_requests_own() -> None:
    client = MCPClient(server=open_server)
    async with client.listen(lists=["tools", "prompts"]) as messages:
        acknowledged = await anext(messages)
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["_meta"][meta.SUBSCRIPTION_ID] == 1
    assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}


@spec("VER-6", "VER-9", "ALS-4")
@pytest.mark.parametrize("version", ["2027-01-01", "2025-11-25", "2024-11-05", "", "x" * 1000])
def test_an_unsupported_version_names_the_supported_ones(version: str) -> None:
    error = unsupported(MCPClient(server=open_server, protocol_version=version))
    assert error.code == -32022
    assert error.data == {"supported": ["2026-07-28"], "requested": version}


@spec("ALS-1")
@override_settings(MCP_DJANGO={"PROTOCOL_VERSIONS": ["2026-07-28"]})
def test_the_draft_can_be_switched_off() -> None:
    error = unsupported(MCPClient(server=open_server, protocol_version=DRAFT))
    assert error.code in {-32022, -32004}
    data: Any = error.data
    assert data == {"supported": ["2026-07-28"], "requested": DRAFT}


@spec("ALS-2")
def test_errors_of_handlers_keep_their_codes() -> None:
    client = MCPClient(server=open_server, protocol_version=DRAFT)
    with pytest.raises(ErrorResponse) as caught:
        client.call_tool("missing")
    assert caught.value.code == INVALID_PARAMS
