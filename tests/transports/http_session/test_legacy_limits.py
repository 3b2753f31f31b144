"""HTTP+SSE under load, side by side with Streamable HTTP, and when a stream ends."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError

from mcp_django.models import Inbox, Session
from mcp_django.protocol.errors import BUSY, INVALID_REQUEST
from mcp_django.storage import inbox, pubsub, sessions
from mcp_django.storage.pubsub import notify
from mcp_django.storage.versions import TopicKey
from mcp_django.transports import legacy_sse
from mcp_django.transports.legacy_sse import REF
from mcp_django.transports.local_session import LocalSession
from tests.kit.drivers import Answer, send
from tests.spec import spec
from tests.storage.test_revocations import read_all
from tests.transports.http_session.asking import EVERYTHING, accept
from tests.transports.http_session.handshakes import (
    INITIALIZED,
    A,
    B,
    C,
    D,
    Peer,
    call,
    code_of,
    encoded,
    initialize,
    request,
)
from tests.transports.http_session.legacy import PLAIN, opened
from tests.transports.stage import PATIENCE, gates, reached, until

PARLOR_SSE = "/parlor/mcp/sse"


def assert_full(answer: Answer) -> None:
    """Assert that the client is asked to wait, under the id of its request."""
    assert "id" in answer.json()
    assert (answer.status, code_of(answer)) == (503, BUSY)
    assert answer.headers["retry-after"] == "1"


@spec("SSE-5", "SSE-7")
async def test_what_waits_to_be_served_is_bounded(app, monkeypatch):
    monkeypatch.setattr(legacy_sse, "MAX_WAITING", 3)
    begun, go_on = threading.Event(), threading.Event()
    agree = LocalSession.initialize

    def slowly(self: LocalSession, message: Any) -> bytes:
        begun.set()
        assert go_on.wait(PATIENCE)
        return agree(self, message)

    monkeypatch.setattr(LocalSession, "initialize", slowly)
    async with opened(app) as stream:
        try:
            # Messages that are posted after `initialize` wait until it is answered.
            assert (await stream.post(initialize(A, id=0))).status == 202
            assert await asyncio.to_thread(begun.wait, PATIENCE)
            for number in (1, 2):
                assert (await stream.post(request("ping", id=number))).status == 202
            for number in (3, 4):
                assert_full(await stream.post(request("ping", id=number)))
        finally:
            go_on.set()
        # Messages that waited begin in their order, and may end in another order.
        first, *others = [(await stream.said())["id"] for _ in range(3)]
        assert first == 0
        assert sorted(others) == [1, 2]
        assert (await stream.ask(request("ping", id=5)))["id"] == 5


@spec("SSE-5", "SSE-7")
async def test_the_bytes_that_wait_to_be_served_are_bounded(app, settings, monkeypatch):
    settings.MCP_DJANGO = {"MAX_BODY_BYTES": 2000}
    begun, go_on = threading.Event(), threading.Event()
    agree = LocalSession.initialize

    def slowly(self: LocalSession, message: Any) -> bytes:
        begun.set()
        assert go_on.wait(PATIENCE)
        return agree(self, message)

    monkeypatch.setattr(LocalSession, "initialize", slowly)
    large = {"jsonrpc": "2.0", "method": "notifications/odd", "params": {"text": "x" * 1700}}
    async with opened(app) as stream:
        try:
            assert (await stream.post(initialize(A, id=0))).status == 202
            assert await asyncio.to_thread(begun.wait, PATIENCE)
            assert [(await stream.post(large)).status for _ in range(3)] == [202, 202, 503]
            # A small message still fits.
            assert (await stream.post(request("ping", id=1))).status == 202
        finally:
            go_on.set()
        assert [(await stream.said())["id"] for _ in range(2)] == [0, 1]
        assert (await stream.post(large)).status == 202


@spec("SSE-5", "SSE-7")
async def test_the_bytes_of_open_requests_are_bounded(app, settings, gate):
    settings.MCP_DJANGO = {"MAX_BODY_BYTES": 2000}

    async with opened(app, PARLOR_SSE) as stream:
        await stream.ask(initialize(A))
        waiting = request("tools/call", {"name": "stay_later", "arguments": {"gate": gate}}, id=1)
        waiting["params"]["_meta"] = {"odd": "x" * 1700}
        for n in (1, 2):
            assert (await stream.post({**waiting, "id": n})).status == 202
        await reached(gates[gate].entered)
        await until(lambda: open_requests() == 2)
        assert_full(await stream.post({**waiting, "id": 3}))
        # A message that an open request may wait for is not refused.
        cancelled = {"requestId": 1, "reason": "x" * 1700}
        notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}
        assert (await stream.post(notice)).status == 202
        await until(lambda: open_requests() == 1)
        assert (await stream.post({**waiting, "id": 3})).status == 202
        gates[gate].opened.set()
        assert sorted([(await stream.said())["id"] for _ in range(2)]) == [2, 3]


def open_requests() -> int:
    """Return the number of open requests of the only connection."""
    (connection,) = legacy_sse._connections._by_pk.values()
    return len(connection._conversation._tasks)


@spec("SSE-5", "SSE-9")
async def test_a_client_that_does_not_read_loses_its_stream(app, monkeypatch):
    monkeypatch.setattr(legacy_sse, "MAX_OUTGOING", 1)
    monkeypatch.setattr(legacy_sse, "STALLED_SECONDS", 0.01)
    async with opened(app) as stream:
        await stream.ask(initialize(A))
        stream.connection.stall()
        async with asyncio.timeout(PATIENCE):
            while legacy_sse._connections._by_pk:
                await stream.post(request("ping"))
        with pytest.raises(EOFError):
            await read_all(stream)


@spec("SSE-5", "SSE-7")
async def test_what_waits_for_another_process_is_bounded(app, monkeypatch):
    monkeypatch.setattr(legacy_sse, "MAX_WAITING", 3)
    begin = sync_to_async(sessions.open_session)
    rows = [
        await begin(
            "open/sse",
            "anonymous",
            user_pk=None,
            protocol_version=A,
            client_info={},
            capabilities={},
        )
        for _ in range(2)
    ]
    path, other = (f"/open/mcp/messages?session_id={plaintext}" for _, plaintext in rows)
    body = encoded(request("ping"))
    for _ in range(3):
        assert (await send(app, path, body, **PLAIN)).status == 202
    assert_full(await send(app, path, body, **PLAIN))
    assert await Inbox.objects.filter(session=rows[0][0]).acount() == 3
    # Other sessions are not affected.
    assert (await send(app, other, body, **PLAIN)).status == 202


@spec("SSE-7")
async def test_messages_from_other_processes_are_all_served(app, monkeypatch):
    monkeypatch.setattr(legacy_sse, "FETCHED", 2)
    async with opened(app) as stream:
        await stream.ask(initialize(A, id="i"))
        session = await Session.objects.aget()
        for number in range(7):
            body = stream.expect(request("ping", id=number))
            await sync_to_async(inbox.put_message)(session.pk, REF, REF, body)
        notify(TopicKey("", "session", str(session.pk)))
        assert {(await stream.said())["id"] for _ in range(7)} == {*range(7)}
    assert not await Inbox.objects.aexists()


@spec("SSE-7")
async def test_a_database_that_was_away_takes_no_connection_along(app, monkeypatch):
    monkeypatch.setattr(pubsub, "poll_seconds", lambda: 0.02)
    take, failures = inbox.take_messages, iter([OperationalError("away"), OperationalError("away")])

    def away(*args: Any, **kwargs: Any) -> Any:
        for failure in failures:
            raise failure
        return take(*args, **kwargs)

    async with opened(app) as stream:
        await stream.ask(initialize(A, id="i"))
        session = await Session.objects.aget()
        monkeypatch.setattr(inbox, "take_messages", away)
        body = stream.expect(request("ping", id="late"))
        await sync_to_async(inbox.put_message)(session.pk, REF, REF, body)
        # The hub notifies the connection again of messages that are still stored.
        assert (await stream.said())["id"] == "late"
    assert next(failures, None) is None


@spec("SSE-8", "HTTP-12")
async def test_both_transports_are_served_side_by_side(app, streaming):
    peer = Peer(streaming, version=D)
    await peer.open()
    async with opened(app) as stream, peer.standing() as standing:
        await standing.start()
        assert (await stream.ask(initialize(A)))["result"]["protocolVersion"] == A
        assert (await stream.ask(request("tools/list")))["result"]["tools"]
        assert (await peer.result("tools/list"))["tools"]
    # The old transport has an address of its own: a bare GET here lacks a session.
    bare = Peer(streaming)
    answer = await bare.get()
    assert (answer.status, code_of(answer)) == (405, INVALID_REQUEST)


@spec("SSE-9", "ASK-5")
@pytest.mark.parametrize("version", [C, D])
async def test_leaving_ends_what_was_asked_and_subscribed_to(version, app):
    async with opened(app, PARLOR_SSE) as stream:
        await stream.ask(initialize(version, capabilities=EVERYTHING))
        await stream.post(INITIALIZED)
        subscribe = request("resources/subscribe", {"uri": "parlor://table"})
        assert (await stream.ask(subscribe))["result"] == {}
        question = await stream.ask(call("name"))
        assert question["method"] == "elicitation/create"
    result = {"jsonrpc": "2.0", "id": question["id"], "result": accept("Ada")}
    assert (await stream.post(result)).status == 404
    # No task of the call is left running, and none waits for changes.
    names = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}
    assert not {name for name in names if "Conversation" in name or "tell_changes" in name}


@spec("SSE-10", "HTTP-7")
async def test_an_idle_stream_gives_signs_of_life(app, settings):
    settings.MCP_DJANGO = {"KEEPALIVE_SECONDS": 0.01}
    async with opened(app) as stream:
        for _ in range(3):
            assert (await stream.connection.part())["body"].startswith(b":")
        assert (await stream.ask(request("ping")))["result"] == {}


@spec("SSE-6", "BAT-4", "RPC-3", "ASK-1")
async def test_a_batch_is_answered_at_once_and_asks_meanwhile(app):
    async with opened(app, PARLOR_SSE) as stream:
        await stream.ask(initialize(B, capabilities=EVERYTHING))
        members = [call("places", id="server-1"), request("ping", id=2), request("x/y", id=3)]
        question = await stream.ask(members)
        assert question["method"] == "roots/list"
        # The ids of the server and those of the client are independent.
        assert question["id"] == "server-1"
        roots = {"roots": [{"uri": "file:///home", "name": "home"}]}
        responses = await stream.ask({"jsonrpc": "2.0", "id": question["id"], "result": roots})
        by_id = {response["id"]: response for response in responses}
        assert {*by_id} == {"server-1", 2, 3}
        assert by_id["server-1"]["result"]["content"][0]["text"] == "home=file:///home"
        assert by_id[2]["result"] == {}
        assert by_id[3]["error"]["code"] == -32601
