"""Pings of clients, and of the server to clients (PNG)."""

from __future__ import annotations

import asyncio
import json

import pytest

from mcp_django.transports.client_requests import LocalAnswers
from mcp_django.transports.local_session import ping_client
from tests.spec import spec
from tests.transports.http_session.asking import PARLOR
from tests.transports.http_session.handshakes import (
    VERSIONS,
    D,
    Peer,
    call,
    code_of,
    initialize,
    opened,
    request,
)
from tests.transports.http_session.reading import Reader
from tests.transports.stage import PATIENCE, gates, reached


@spec("PNG-1", "RPC-6")
@pytest.mark.parametrize("request_id", [1, "1"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_ping_is_answered_with_nothing(version, request_id, mount):
    peer = Peer(mount, PARLOR, version=version)
    begun = await peer.send(initialize(version))
    # Before the client has said that it is ready.
    peer.headers["mcp_session_id"] = begun.headers["mcp-session-id"]
    for params in (None, {}, {"_meta": {}}):
        sent = await peer.send(request("ping", params, id=request_id))
        assert sent.status == 200
        assert sent.json() == {"jsonrpc": "2.0", "id": request_id, "result": {}}


@spec("PNG-1")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_ping_does_not_wait_for_calls(version, streaming, gate, settings):
    settings.MCP_DJANGO = {"THREADS": 1}
    peer = await opened(streaming, PARLOR, version=version)
    calling = asyncio.create_task(peer.send(call("stay", gate=gate)))
    await reached(gates[gate].entered)
    assert await peer.result("ping") == {}
    gates[gate].opened.set()
    assert (await calling).status == 200


@spec("PNG-1")
async def test_a_ping_needs_a_session_and_whoever_has_it(mount):
    peer = Peer(mount, PARLOR)
    sent = await peer.send(request("ping"))
    assert (sent.status, code_of(sent)) == (400, -32600)
    assert (await Peer(mount, "/staff/mcp").send(request("ping"))).status == 401


@spec("PNG-2")
async def test_streams_of_sessions_are_kept_alive_by_comments_alone(streaming, settings):
    settings.MCP_DJANGO = {"PING_SECONDS": 0.01, "KEEPALIVE_SECONDS": 0.02}
    peer = await opened(streaming, PARLOR, version=D)
    async with peer.standing() as connection:
        reader = Reader(connection)
        for _ in range(4):
            await reader.comment()
    assert b"ping" not in reader.raw


class Client:
    """The client of a session that lives in its connection; it answers the first few pings."""

    def __init__(self, *, answers: int) -> None:
        self.answers = LocalAnswers()
        self.pinged: list[str] = []
        self.ended = asyncio.Event()
        self._left = answers

    async def write(self, raw: bytes) -> None:
        message = json.loads(raw)
        assert (message["method"], "params" in message) == ("ping", False)
        self.pinged.append(message["id"])
        if self._left:
            self._left -= 1
            asyncio.get_running_loop().call_soon(self.answers.deliver, message["id"], {})


@spec("PNG-2")
async def test_two_silences_end_a_session_that_is_a_connection(settings):
    settings.MCP_DJANGO = {"PING_SECONDS": 0.01}
    client = Client(answers=3)
    async with asyncio.timeout(PATIENCE):
        await ping_client(client.answers, client.write, client.ended.set)
    assert client.ended.is_set()
    assert len(client.pinged) == len({*client.pinged}) == 5


@spec("PNG-2")
async def test_pings_can_be_switched_off(settings):
    settings.MCP_DJANGO = {"PING_SECONDS": 0}
    client = Client(answers=0)
    async with asyncio.timeout(PATIENCE):
        await ping_client(client.answers, client.write, client.ended.set)
    assert (client.pinged, client.ended.is_set()) == ([], False)
