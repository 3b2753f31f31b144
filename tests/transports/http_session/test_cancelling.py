"""Cancellation of a call by its id (CAN)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from mcp_django.models import Inbox, Session
from mcp_django.protocol.errors import REQUEST_CANCELLED
from mcp_django.protocol.jsonrpc import Notification
from mcp_django.storage.databases import seconds_ago
from mcp_django.transports import cancellation, durable_streams, http_session
from tests.kit.drivers import Answer
from tests.kit.servers import token_for
from tests.spec import spec
from tests.transports.http_session.asking import PARLOR, accept, answer, asking, ready
from tests.transports.http_session.handshakes import (
    VERSIONS,
    B,
    C,
    D,
    Peer,
    call,
    initialize,
    notification,
    opened,
)
from tests.transports.http_session.reading import Reader
from tests.transports.stage import PATIENCE, gates, reached

STREAMABLE = [B, C, D]


async def cancel(peer: Peer, *, expected: int = 202, headers: Any = None, **params: Any) -> None:
    """Post a cancellation, which is never answered."""
    taken = await peer.send(notification("notifications/cancelled", **params), **(headers or {}))
    assert taken.status == expected
    assert taken.body == b"" or expected != 202


def assert_cancelled(sent: Answer, *request_ids: Any) -> None:
    """Assert that a document reports each of these requests as cancelled."""
    assert (sent.status, sent.headers["content-type"]) == (200, "application/json")
    error = {"code": REQUEST_CANCELLED, "message": "The request was cancelled."}
    document = sent.json()
    assert (document if isinstance(document, list) else [document]) == [
        {"jsonrpc": "2.0", "id": request_id, "error": error} for request_id in request_ids
    ]


@spec("CAN-1", "CAN-8", "CAN-9")
@pytest.mark.parametrize("request_id", [7, 0, -1, "7", "é", ""])
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_stream_ends_without_a_response(version, request_id, streaming, gate):
    peer = await opened(streaming, PARLOR, version=version)
    async with peer.stream(call("stay", id=request_id, progress=1, gate=gate)) as connection:
        await reached(gates[gate].entered)
        await cancel(peer, requestId=request_id, reason="enough")
        assert await Reader(connection).rest() == []
    await reached(gates[gate].left)
    assert gates[gate].outcome == "cancelled"


@spec("CAN-1", "CAN-8", "CAN-9", "HTTP-33", "HTTP-5")
@pytest.mark.parametrize("tool", ["stay", "stay_later"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_document_says_that_the_call_was_cancelled(version, tool, mount, gate):
    peer = await opened(mount, PARLOR, version=version)
    calling = asyncio.create_task(peer.send(call(tool, id="doomed", gate=gate)))
    await reached(gates[gate].entered)
    await cancel(peer, requestId="doomed")
    assert_cancelled(await calling, "doomed")
    await reached(gates[gate].left)
    assert gates[gate].outcome == "cancelled"


@spec("CAN-1", "BAT-4")
@pytest.mark.parametrize("is_batch", [False, True])
async def test_a_function_that_ends_before_its_task_is_stopped_is_not_answered(
    is_batch, streaming, gate, monkeypatch
):
    for module in (durable_streams, http_session):
        monkeypatch.setattr(module, "call_on_loop", lambda work: lambda: None)
    peer = await opened(streaming, PARLOR, version=B if is_batch else D)
    doomed = call("stay", id=7, progress=1, gate=gate)
    async with peer.stream([doomed] if is_batch else doomed) as connection:
        await reached(gates[gate].entered)
        await cancel(peer, requestId=7)
        assert await Reader(connection).rest() == []


@spec("CAN-1", "PRG-2")
async def test_a_cancelled_call_says_nothing_more(streaming, gate):
    peer = await opened(streaming, PARLOR)
    async with peer.stream(call("walk", id=7, progress=1, gate=gate)) as connection:
        reader = Reader(connection)
        assert (await reader.message())["method"] == "notifications/progress"
        assert (await reader.message())["method"] == "notifications/message"
        await reached(gates[gate].entered)
        await cancel(peer, requestId=7)
        gates[gate].opened.set()
        assert await reader.rest() == []
    # A client that resumes the stream gets nothing more, either.
    async with peer.standing(last_event_id=reader.ids[-1]) as connection:
        assert await Reader(connection).rest() == []


NOTHING: list[dict[str, Any]] = [
    {},
    {"requestId": None},
    {"requestId": "7"},
    {"requestId": 8},
    {"requestId": 7.5},
    {"requestId": [7]},
    {"requestId": {"id": 7}},
    {"requestId": True},
    {"requestId": "x" * 10_000},
]


@spec("CAN-2", "CAN-4")
@pytest.mark.parametrize("version", VERSIONS)
async def test_what_names_no_call_is_ignored(version, streaming, gate):
    peer = await opened(streaming, PARLOR, version=version)
    async with peer.stream(call("stay", id=7, progress=1, gate=gate)) as connection:
        await reached(gates[gate].entered)
        for params in NOTHING:
            await cancel(peer, **params)
        gates[gate].opened.set()
        (response,) = await Reader(connection).rest()
    assert response["id"] == 7
    # A late cancellation, twice.
    await cancel(peer, requestId=7)
    await cancel(peer, requestId=7)
    assert await peer.result("ping") == {}
    # Each id that could belong to a call of another process is stored once.
    waiting = [row.ref async for row in Inbox.objects.all()]
    assert len(waiting) == len(set(waiting)) <= 4


@spec("CAN-2")
async def test_a_whole_number_is_the_same_in_both_spellings(streaming, gate):
    peer = await opened(streaming, PARLOR)
    async with peer.stream(call("stay", id=7, progress=1, gate=gate)) as connection:
        await reached(gates[gate].entered)
        await cancel(peer, requestId=7.0)
        assert await Reader(connection).rest() == []


@spec("CAN-3")
@pytest.mark.parametrize("version", VERSIONS)
async def test_initialize_cannot_be_taken_back(version, mount):
    peer = Peer(mount, PARLOR, version=version)
    begun = await peer.send(initialize(version, id="first"))
    peer.headers["mcp_session_id"] = begun.headers["mcp-session-id"]
    await cancel(peer, requestId="first")
    assert await peer.result("ping") == {}


@spec("CAN-4", "SES-6")
@pytest.mark.parametrize("version", STREAMABLE)
async def test_nobody_else_cancels_a_call(version, streaming, gate):
    tokens = []
    for username in ("ada", "ben"):
        user = await sync_to_async(User.objects.create_user)(username)
        tokens.append(f"Bearer {(await sync_to_async(token_for)(user))[1]}")
    peer = await opened(streaming, PARLOR, version=version, token=tokens[0])
    other = await opened(streaming, PARLOR, version=version, token=tokens[0])
    async with peer.stream(call("stay", id=7, progress=1, gate=gate)) as connection:
        await reached(gates[gate].entered)
        await cancel(other, requestId=7)
        for thief in (tokens[1], None):
            await cancel(peer, expected=404, headers={"authorization": thief}, requestId=7)
        gates[gate].opened.set()
        (response,) = await Reader(connection).rest()
    assert response["id"] == 7


@spec("CAN-1", "ASK-5")
@pytest.mark.parametrize("tool", ["name", "name_later"])
async def test_a_call_that_waits_for_an_answer_is_cancelled(tool, streaming):
    peer = await ready(streaming)
    async with asking(peer, call(tool, id=7)) as reader:
        question = await reader.message()
        await cancel(peer, requestId=7)
        assert await reader.rest() == []
    await answer(peer, question, accept("Ada"))
    assert await Inbox.objects.acount() == 0


@spec("CAN-1", "BAT-4")
async def test_one_member_of_a_batch_is_cancelled_and_the_other_answered(streaming, gate):
    peer = await opened(streaming, PARLOR, version=B)
    both = [call("stay", id=1, progress=1, gate=gate), call("count", id=2, progress=2, n=1)]
    async with peer.stream(both) as connection:
        reader = Reader(connection)
        await reached(gates[gate].entered)
        while (await reader.message()).get("id") != 2:
            pass
        await cancel(peer, requestId=1)
        assert [message["id"] for message in await reader.rest()] in ([], [1])
    await reached(gates[gate].left)
    assert gates[gate].outcome == "cancelled"


@spec("SES-7")
async def test_the_end_of_the_session_cancels_its_calls(streaming, gate):
    peer = await opened(streaming, PARLOR)
    async with peer.stream(call("stay", id=7, progress=1, gate=gate)) as connection:
        await reached(gates[gate].entered)
        assert (await peer.delete()).status == 204
        assert await Reader(connection).rest() == []
    await reached(gates[gate].left)
    assert gates[gate].outcome == "cancelled"


def elsewhere(request_id: Any) -> None:
    """Cancel a request as another process, which does not run the call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cancellation, "running_calls", cancellation._RunningCalls())
        params = json.dumps({"requestId": request_id}).encode()
        message = Notification("notifications/cancelled", params)
        cancellation.cancel_request(Session.objects.get().pk, message)


async def staying(peer: Peer, tool: str, gate: str, *, is_batch: bool = False) -> asyncio.Task[Any]:
    """Start a call that runs until its gate is opened or it is cancelled."""
    doomed = call(tool, id=7, gate=gate)
    document = {"accept": "application/json"}
    calling = asyncio.create_task(peer.send([doomed] if is_batch else doomed, **document))
    await reached(gates[gate].entered)
    return calling


@spec("CAN-4", "CAN-1", "CAN-8")
@pytest.mark.parametrize("tool", ["stay", "stay_later"])
@pytest.mark.parametrize("version", [D, pytest.param(B, id="batch")])
async def test_a_document_is_cancelled_from_another_process(version, tool, mount, gate):
    peer = await opened(mount, PARLOR, version=version)
    calling = await staying(peer, tool, gate, is_batch=version == B)
    await sync_to_async(elsewhere)(7)
    assert_cancelled(await calling, 7)
    await reached(gates[gate].left)
    assert gates[gate].outcome == "cancelled"


# Django's own handler keeps such a request until its view has returned.
@spec("CAN-4", "HTTP-16")
@pytest.mark.parametrize("streaming", ["raw", "lane", "consumer"], indirect=True)
async def test_a_call_whose_client_has_left_is_cancelled_from_another_process(streaming, gate):
    peer = await opened(streaming, PARLOR)
    async with peer.stream(call("stay_later", id=7, gate=gate)):
        await reached(gates[gate].entered)
    await sync_to_async(elsewhere)(7)
    await reached(gates[gate].left)
    assert gates[gate].outcome == "cancelled"


@spec("CAN-4", "CAN-2")
async def test_an_old_cancellation_means_an_old_call(mount, gate, monkeypatch):
    peer = await opened(mount, PARLOR)
    await sync_to_async(elsewhere)(7)
    await Inbox.objects.aupdate(created_at=seconds_ago(cancellation.OVERTAKING_SECONDS + 1))
    calling = await staying(peer, "stay", gate)
    looked = threading.Event()
    monkeypatch.setattr(
        cancellation.cancellation_poller,
        "poll_now",
        _then(cancellation.cancellation_poller.poll_now, looked.set),
    )
    assert await asyncio.to_thread(looked.wait, PATIENCE)
    gates[gate].opened.set()
    assert (await calling).status == 200


def _then(work: Callable[[Any], None], what: Callable[[], None]) -> Callable[[Any], None]:
    def both(given: Any) -> None:
        work(given)
        what()

    return both


@spec("SES-7", "CAN-8")
async def test_the_end_of_the_session_cancels_what_is_answered_with_a_document(mount, gate):
    peer = await opened(mount, PARLOR)
    calling = await staying(peer, "stay", gate)
    assert (await peer.delete()).status == 204
    assert_cancelled(await calling, 7)
    await reached(gates[gate].left)
    assert gates[gate].outcome == "cancelled"
