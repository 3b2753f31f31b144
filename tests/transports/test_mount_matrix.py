"""A dozen requests over every mount, at every revision, in the fast ring of tests.

Other tests use one mount in the fast ring, and the others in the outside ring (tests/kit/rings.py).
"""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, User

from mcp_django.exceptions import MCPError
from mcp_django.protocol import envelope
from mcp_django.protocol.errors import METHOD_NOT_FOUND
from mcp_django.protocol.revisions import HANDSHAKE, REVISIONS
from mcp_django.test import MCPClient
from tests.kit.drivers import Answer, message
from tests.spec import spec
from tests.transports.http_session.handshakes import opened, request
from tests.transports.mounts import EVERY_MOUNT, ask

HANDSHAKES = {revision.version for revision in HANDSHAKE}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "sync": ("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}}),
    "async": ("tools/call", {"name": "add_later", "arguments": {"a": 2, "b": 3}}),
    "structured": ("tools/call", {"name": "takings", "arguments": {"day": "2026-03-01"}}),
    "database": ("tools/call", {"name": "count_groups", "arguments": {}}),
    "failing": ("tools/call", {"name": "fail", "arguments": {"kind": "tool"}}),
    "bug": ("tools/call", {"name": "fail", "arguments": {"kind": "bug"}}),
    "wrong arguments": ("tools/call", {"name": "add", "arguments": {"a": "x"}}),
    "unknown tool": ("tools/call", {"name": "nothing", "arguments": {}}),
    "tools": ("tools/list", {}),
    "resource": ("resources/read", {"uri": "shop://about"}),
    "template": ("resources/read", {"uri": "shop://groups/crew"}),
    "missing row": ("resources/read", {"uri": "shop://groups/nobody"}),
    "prompt": ("prompts/get", {"name": "apologize", "arguments": {"number": "7"}}),
    "unknown method": ("tools/dance", {}),
}


def reference(version: str) -> dict[str, Any]:
    """Return the answers to a client of this revision without any transport, by request."""
    user = User.objects.get(username="ada")
    client = MCPClient(raise_exceptions=False, user=user, protocol_version=version)
    return {name: answered(client, *arguments) for name, arguments in REQUESTS.items()}


def answered(client: MCPClient, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request, and return the member of the response that holds the answer."""
    try:
        return {"result": client.request(method, params)}
    except MCPError as exc:
        error = {"code": exc.code, "message": exc.message}
        return {"error": error | ({"data": exc.data} if exc.data else {})}


@spec("HTTP-1", "RPC-5", "RPC-6", "RPC-10", "VER-1", "ERR-3")
@pytest.mark.every_mount
@pytest.mark.parametrize("version", REVISIONS)
async def test_each_mount_answers_each_revision_as_without_a_transport(version, mount, token):
    await Group.objects.acreate(name="crew")
    peer = await opened(mount, "/mcp", version=version, token=token) if is_old(version) else None

    async def send(name: str) -> Answer:
        method, params = REQUESTS[name]
        if peer:
            return await peer.send(request(method, params, id=name))
        body = message(method, params, id=name, **{envelope.PROTOCOL_VERSION: version})
        return await ask(mount, "/mcp", body, authorization=token)

    expected = await sync_to_async(reference)(version)
    for name, answer in expected.items():
        got = await send(name)
        assert got.json() == {"jsonrpc": "2.0", "id": name, **answer}, name
        assert got.headers["content-type"] == "application/json"
        assert got.status == (404 if is_unknown(answer) and not peer else 200), name
    assert is_unknown(expected["unknown method"])
    assert expected["failing"]["result"]["isError"] is True


def is_old(version: str) -> bool:
    return version in HANDSHAKES


def is_unknown(answer: dict[str, Any]) -> bool:
    code: Any = answer.get("error", {}).get("code")
    return bool(code == METHOD_NOT_FOUND)


def test_every_mount_is_in_the_matrix():
    assert EVERY_MOUNT == ("wsgi", "view", "lane", "raw", "consumer")
