"""Every mount gives the same answer to the same request."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, User

from mcp_django import mcp
from mcp_django.protocol import envelope
from mcp_django.protocol.revisions import HANDSHAKE
from mcp_django.test import MCPClient
from tests.kit.drivers import message
from tests.spec import spec
from tests.transports.mounts import ask
from tests.transports.test_mount_matrix import answered

TOOLS = "tools/call"
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a sync tool": (TOOLS, {"name": "add", "arguments": {"a": 2, "b": 3}}),
    "an async tool": (TOOLS, {"name": "add_later", "arguments": {"a": 2, "b": 3}}),
    "structured output": (TOOLS, {"name": "takings", "arguments": {"day": "2026-03-01"}}),
    "a sync tool with the ORM": (TOOLS, {"name": "count_groups"}),
    "an async tool with the ORM": (TOOLS, {"name": "count_groups_later", "arguments": None}),
    "a failing tool": (TOOLS, {"name": "fail", "arguments": {"kind": "tool"}}),
    "a tool with a bug": (TOOLS, {"name": "fail", "arguments": {"kind": "bug"}}),
    "wrong arguments": (TOOLS, {"name": "add", "arguments": {"a": "x", "c": 1}}),
    "blocks": (TOOLS, {"name": "pictures", "arguments": {}}),
    "a silent context": (TOOLS, {"name": "count_to", "arguments": {"n": 3}}),
    "an unknown tool": (TOOLS, {"name": "nothing", "arguments": {}}),
    "arguments of a wrong kind": (TOOLS, {"name": "add", "arguments": [1]}),
    "a resource": ("resources/read", {"uri": "shop://about"}),
    "a binary resource": ("resources/read", {"uri": "shop://logo"}),
    "a template": ("resources/read", {"uri": "shop://groups/crew"}),
    "a missing row": ("resources/read", {"uri": "shop://groups/nobody"}),
    "no resource": ("resources/read", {"uri": "shop://nothing"}),
    "a prompt": ("prompts/get", {"name": "apologize", "arguments": {"number": "7"}}),
    "a prompt from a template": ("prompts/get", {"name": "briefing", "arguments": {"topic": "x"}}),
    "a prompt without its argument": ("prompts/get", {"name": "apologize", "arguments": {}}),
    "a completion": (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "shop://groups/{name}"},
            "argument": {"name": "name", "value": "c"},
        },
    ),
    "a completion that knows another argument": (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "apologize"},
            "argument": {"name": "number", "value": "1"},
            "context": {"arguments": {"tone": "warm"}},
        },
    ),
    "tools": ("tools/list", {}),
    "resources": ("resources/list", {}),
    "templates": ("resources/templates/list", {}),
    "prompts": ("prompts/list", {}),
    "a bad cursor": ("tools/list", {"cursor": "nonsense"}),
    "an unknown method": ("tools/dance", {}),
    "a method of another revision": ("logging/setLevel", {"level": "debug"}),
}


def reference(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the answer without any transport."""
    user = User.objects.get(username="ada")
    return answered(MCPClient(raise_exceptions=False, user=user), method, params)


@spec("HTTP-1", "RPC-5", "RPC-6", "RPC-10", "VER-1", "ERR-3")
async def test_an_answer_does_not_depend_on_the_mount(mount, token):
    await Group.objects.acreate(name="crew")
    expected, answers = {}, {}
    for name, (method, params) in REQUESTS.items():
        plain = await sync_to_async(reference)(method, params)
        status = 404 if plain.get("error", {}).get("code") == -32601 else 200
        expected[name] = (status, "application/json", {"jsonrpc": "2.0", "id": name, **plain})
        got = await ask(mount, "/mcp", message(method, params, id=name), authorization=token)
        answers[name] = (got.status, got.headers["content-type"], got.json())
        assert got.json().get("result", {"resultType": "complete"})["resultType"] == "complete"
    assert answers == expected


async def test_only_a_mount_that_streams_says_so(mount, token):
    answer = await ask(mount, "/mcp", message("server/discover"), authorization=token)
    result = answer.json()["result"]
    streams = mount != "wsgi"
    assert result["supportedVersions"] == [
        "2026-07-28",
        *(revision.version for revision in HANDSHAKE),
    ]
    assert result["_meta"][envelope.SERVER_INFO]["name"] == mcp.identity()["name"]
    assert ("logging" in result["capabilities"]) is streams
    assert result["capabilities"]["tools"] == ({"listChanged": True} if streams else {})
    assert result["capabilities"]["completions"] == {}


@spec("TOOL-10")
@pytest.mark.parametrize(("tool", "kept"), [("add_group", True), ("add_group_atomically", False)])
async def test_an_atomic_tool_that_fails_keeps_nothing(tool, kept, mount, token):
    body = message(TOOLS, {"name": tool, "arguments": {"name": "night", "fail": True}})
    answer = await ask(mount, "/mcp", body, authorization=token)
    assert answer.json()["result"]["isError"] is True
    assert await Group.objects.filter(name="night").aexists() is kept


async def test_a_tool_sees_who_calls(mount, token):
    body = message(
        TOOLS,
        {"name": "whoami", "arguments": {}},
        **{envelope.CLIENT_INFO: {"name": "tester", "version": "1"}},
    )
    answer = await ask(mount, "/mcp", body, authorization=token)
    assert answer.json()["result"]["structuredContent"] == {
        "user": "ada",
        "backend": "tokens",
        "server": "default",
        "client": "tester",
        "protocol_version": "2026-07-28",
        "method": "POST",
    }


@spec("AUT-1", "AUT-3")
@pytest.mark.django_db(transaction=True)
async def test_who_is_unknown_stays_outside(mount):
    answer = await ask(mount, "/mcp", message("tools/list"))
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="mcp"'
    assert answer.json()["error"] == "unauthorized"


@spec("AUT-11")
async def test_a_tool_for_others_challenges_whom_it_does_not_know(mount):
    body = message(TOOLS, {"name": "members_tool", "arguments": {}})
    answer = await ask(mount, "/open/mcp", body)
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="mcp"'


@spec("HTTP-4", "RPC-8", "HTTP-30")
@pytest.mark.parametrize("method", ["notifications/cancelled", "notifications/unknown"])
async def test_a_notification_is_accepted_without_a_word(method, mount):
    body = message(method, {"requestId": 1})
    del body["id"]
    answer = await ask(mount, "/open/mcp", body)
    assert (answer.status, answer.body) == (202, b"")
