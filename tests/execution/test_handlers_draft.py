"""`DRAFT-2026-v1`, an alias: the stateless rules with other codes, ids and identity."""

from __future__ import annotations

import pytest
from django.test import override_settings

from mcp_django.protocol import envelope
from mcp_django.protocol.errors import INVALID_PARAMS, UNSUPPORTED_VERSION
from mcp_django.protocol.revisions import HANDSHAKE
from mcp_django.test import ErrorResponse, MCPClient
from tests.sites.example.mcp import open_server
from tests.spec import spec

DRAFT = "DRAFT-2026-v1"
OLD = [revision.version for revision in HANDSHAKE]


def unsupported(version: str) -> ErrorResponse:
    """Return the error for a request whose envelope names this version."""
    with pytest.raises(ErrorResponse) as caught:
        MCPClient(server=open_server).request(
            "tools/list", {"_meta": {envelope.PROTOCOL_VERSION: version}}
        )
    return caught.value


@spec("ALS-1", "ALS-2", "ALS-4")
def test_a_client_of_the_draft_is_served_and_told_of_it():
    draft = MCPClient(server=open_server, protocol_version=DRAFT)
    result = draft.discover()
    assert result["supportedVersions"] == [DRAFT, "2026-07-28", *OLD]
    assert result["serverInfo"] == open_server.identity()
    assert draft.call_tool("echo", {"text": "x"}).text == "x"
    assert draft.list_tools() == MCPClient(server=open_server).list_tools()


@spec("ALS-4", "VER-7")
def test_others_are_not_told_of_the_draft():
    result = MCPClient(server=open_server).discover()
    assert result["supportedVersions"] == ["2026-07-28", *OLD]
    assert "serverInfo" not in result


@spec("ALS-3")
def test_a_client_of_the_draft_need_not_say_who_it_is():
    client = MCPClient(server=open_server, protocol_version=DRAFT)
    assert client.request("tools/list", {"_meta": {envelope.CLIENT_INFO: None}})["tools"]


@spec("ALS-2", "SUB-9")
async def test_subscription_ids_are_text():
    client = MCPClient(server=open_server, protocol_version=DRAFT)
    async with client.listen(lists=["tools"]) as messages:
        acknowledged = await anext(messages)
    assert acknowledged["params"]["_meta"][envelope.SUBSCRIPTION_ID] == "1"


@spec("SUB-8", "SUB-9")
async def test_subscription_ids_are_the_requests_own():
    client = MCPClient(server=open_server)
    async with client.listen(lists=["tools", "prompts"]) as messages:
        acknowledged = await anext(messages)
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["_meta"][envelope.SUBSCRIPTION_ID] == 1
    assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}


@spec("VER-6", "VER-9", "ALS-4")
@pytest.mark.parametrize("version", ["2027-01-01", "", "x" * 1000])
def test_an_unsupported_version_names_the_supported_ones(version):
    error = unsupported(version)
    assert error.code == UNSUPPORTED_VERSION
    assert error.data == {"supported": ["2026-07-28", *OLD], "requested": version}


@spec("VER-6", "VER-9")
@pytest.mark.parametrize("version", OLD)
def test_a_handshake_version_in_an_envelope_is_told_of_the_modern_ones(version):
    error = unsupported(version)
    assert error.code == UNSUPPORTED_VERSION
    assert error.data == {"supported": ["2026-07-28"], "requested": version}


@spec("ALS-1")
@override_settings(MCP_DJANGO={"PROTOCOL_VERSIONS": ["2026-07-28"]})
def test_the_draft_can_be_switched_off():
    error = unsupported(DRAFT)
    # The draft has a code of its own for this error.
    assert error.code == -32004
    assert error.data == {"supported": ["2026-07-28"], "requested": DRAFT}


@spec("ALS-2")
def test_errors_of_handlers_keep_their_codes():
    client = MCPClient(server=open_server, protocol_version=DRAFT)
    with pytest.raises(ErrorResponse) as caught:
        client.call_tool("missing")
    assert caught.value.code == INVALID_PARAMS
