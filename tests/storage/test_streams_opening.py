"""Streams that begin, continue and end at the same time are stored together."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError

from mcp_django.execution.threads import write_row
from mcp_django.models import Event, Session, Stream
from mcp_django.storage.streams import (
    EVENTS,
    GET_STREAM_ENDS,
    NEW_GET_STREAMS,
    NEW_STREAMS,
    LeaseLost,
    NewEvents,
)
from tests.kit.drivers import PATIENCE
from tests.kit.gates import Gate
from tests.spec import spec
from tests.storage.test_sessions_opening import _serving  # noqa: F401 - a fixture
from tests.transports.http_session.handshakes import Peer, call, opened
from tests.transports.http_session.reading import Reader
from tests.transports.http_session.stored import open_stream
from tests.transports.mounts import in_thread

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("_stage", "_serving"),
]

LOOPS = ["raw", "lane"]
PARLOR = "/parlor/mcp"


def gated(monkeypatch: pytest.MonkeyPatch, kind: Any) -> Gate:
    """Make rows of this type wait for a gate, and return the gate."""
    gate = Gate(kind)
    monkeypatch.setattr(kind, "write", gate.write)
    return gate


async def count(peer: Peer) -> Any:
    """Call a tool that reports progress; return the error status or the messages' methods."""
    answer = await peer.send(call("count", n=2, progress="t"))
    if answer.status != 200:
        return answer.status
    return [message.get("method", "response") for message in answer.messages()]


async def delete_session(peer: Peer) -> None:
    """Delete the row of a session, as pruning does."""
    await in_thread(lambda: Session.objects.latest("pk").delete())


COUNTED = ["notifications/progress", "notifications/progress", "response"]


@spec("RSM-7")
@pytest.mark.parametrize("mount", LOOPS)
async def test_streams_that_begin_together_are_stored_together(mount, monkeypatch):
    peers = [await opened(mount, PARLOR) for _ in range(5)]
    gate = gated(monkeypatch, NEW_STREAMS)
    calls = await gate.gather(*map(count, peers))
    gate.may_write.set()
    assert await asyncio.gather(*calls) == [COUNTED] * 5
    assert gate.batches == [1, 4]
    # A message is sent before it is stored.
    async with asyncio.timeout(PATIENCE):
        while await Stream.objects.filter(state="done", last_seq=3).acount() < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("mount", LOOPS)
async def test_a_session_that_is_deleted_meanwhile_costs_no_other_a_stream(mount, monkeypatch):
    peers = [await opened(mount, PARLOR) for _ in range(5)]
    gate = gated(monkeypatch, NEW_STREAMS)
    calls = await gate.gather(*map(count, peers))
    await delete_session(peers[-1])
    gate.may_write.set()
    assert await asyncio.gather(*calls) == [*[COUNTED] * 4, 404]


async def test_a_stream_that_is_deleted_meanwhile_costs_no_other_its_events(monkeypatch):
    peers = [await opened("raw", PARLOR) for _ in range(5)]
    pks = [row.pk async for row in Session.objects.order_by("pk")]
    numbers = [await in_thread(partial(open_stream, pk)) for pk in pks]
    gate = gated(monkeypatch, EVENTS)
    events = [(1, "1"), (2, "2")]
    storing = await gate.gather(
        *(
            write_row(EVENTS, NewEvents(number, events, is_final=True, retention=300))
            for number in numbers
        )
    )
    await delete_session(peers[-1])
    gate.may_write.set()
    *others, mine = await asyncio.gather(*storing, return_exceptions=True)
    assert others == [None] * 4
    assert isinstance(mine, LeaseLost)
    assert gate.batches == [1, 4]
    assert await Event.objects.acount() == 4 * 2
    assert await Stream.objects.filter(state="done", last_seq=2).acount() == 4


async def begin(stack: AsyncExitStack, peer: Peer) -> Reader:
    """Open a GET stream."""
    reader = Reader(await stack.enter_async_context(peer.standing()))
    await reader.comment()
    return reader


async def until_ended(readers: list[Reader]) -> None:
    """Close ended streams, and wait until their last rows are written."""
    await asyncio.gather(*(reader.connection.close() for reader in readers))


@spec("RSM-9")
@pytest.mark.parametrize("mount", LOOPS)
async def test_get_streams_begin_and_end_together(mount, monkeypatch):
    """Several streams may belong to one session; then one of them is the newest."""
    peers = [await opened(mount, PARLOR) for _ in range(4)]
    ended = await opened(mount, PARLOR)
    gate = gated(monkeypatch, NEW_GET_STREAMS)
    async with AsyncExitStack() as stack:
        begun = await gate.gather(
            *(begin(stack, peer) for peer in [*peers, *[peers[0]] * 4, ended]),
        )
        await delete_session(ended)
        gate.may_write.set()
        readers = await asyncio.gather(*begun)
        assert gate.batches == [1, 8]
        # Two of the five streams of the first session are too many, and one stream has no session.
        over = [*(asyncio.create_task(reader.rest()) for reader in readers[4:8])]
        assert [await readers[index].rest() for index in (0, -1)] == [[], []]
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
        assert [task.done() for task in over].count(True) == 1
        assert await Stream.objects.filter(state="open").acount() == 6
        still_open = [
            *readers[1:4],
            *(reader for reader, task in zip(readers[4:8], over, strict=True) if not task.done()),
        ]
        await until_ended([reader for reader in readers if reader not in still_open])
        gate = gated(monkeypatch, GET_STREAM_ENDS)
        leaving = await gate.gather(*(reader.connection.close() for reader in still_open))
        gate.may_write.set()
        await asyncio.gather(*leaving)
        await asyncio.gather(*over, return_exceptions=True)
    assert gate.batches == [1, 5]
    assert not await Stream.objects.filter(state="open").aexists()


@pytest.mark.parametrize("mount", LOOPS)
async def test_a_stream_that_cannot_be_stored_is_answered_with_a_time_to_come_back(
    mount, monkeypatch
):
    peer = await opened(mount, PARLOR)

    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("away")

    with monkeypatch.context() as patch:
        patch.setattr(NEW_STREAMS, "write", away)
        answer = await peer.send(call("count", n=2, progress="t"))
    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["id"] == 1
    assert "stream could not be stored" in answer.json()["error"]["message"]
    assert await count(peer) == COUNTED
