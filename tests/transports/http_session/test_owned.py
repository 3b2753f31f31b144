"""The stream of a call in this process: what is sent immediately, and what has to be stored.

The tests are below the transport, because they test what happens without the database.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError

from mcp_django.components.context import Cancellation
from mcp_django.execution.threads import SHORT_TASK_THREADS, get_pool, run_in_short_thread
from mcp_django.models import Event, Session, Stream
from mcp_django.protocol import sse
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.storage import streams
from mcp_django.storage.writer import RowKind, row_writer
from mcp_django.transports import durable_streams
from mcp_django.transports.drain import _drain as drain
from mcp_django.transports.durable_streams import OwnedStream, read_stored_events, run_stream
from mcp_django.transports.outgoing import Messages, Outgoing
from tests.spec import spec
from tests.transports.http_session.stored import open_stream

PATIENCE = 5


class Script:
    """A call that sends the messages of a test."""

    def __init__(self) -> None:
        self.cancellation = Cancellation()
        self.request = SimpleNamespace(id=7)
        self.revision = REVISIONS["2025-11-25"]
        self.said: asyncio.Queue[Outgoing] = asyncio.Queue()
        self.is_over = False

    def say(self, *texts: str, final: bool = False) -> None:
        for text in texts:
            self.said.put_nowait(Outgoing(json.dumps(text).encode(), is_response=final))

    async def messages(self) -> Messages:
        """Yield the messages of the test, up to the response."""
        try:
            while True:
                message = await self.said.get()
                yield message
                if message.is_response:
                    return
        finally:
            self.is_over = True


@pytest.fixture
async def script():
    return Script()


@pytest.fixture
async def number(session):
    return await run_in_short_thread(lambda: open_stream(session.pk))


@asynccontextmanager
async def owning(session: Session, number: int, script: Script) -> AsyncIterator[OwnedStream]:
    """Open a stream with its call; wait for the end of both after the block."""
    call: Any = script
    stream = OwnedStream(session.pk, number, call, script.messages())
    try:
        yield stream
        await ended(stream)
    finally:
        stream._task.cancel()


async def ended(stream: OwnedStream) -> None:
    async with asyncio.timeout(PATIENCE):
        with suppress(asyncio.CancelledError):
            await asyncio.shield(stream._task)
        while stream._tasks:
            await asyncio.wait(list(stream._tasks))


async def state_of(number: int) -> str:
    return await run_in_short_thread(lambda: Stream.objects.get(pk=number).state)


async def texts_of(number: int) -> list[str]:
    """Return the stored messages."""
    rows = Event.objects.filter(stream=number).order_by("seq")
    payloads = await run_in_short_thread(lambda: list(rows.values_list("payload", flat=True)))
    return [json.loads(payload) for payload in payloads]


async def read(source: Any) -> list[str]:
    """Return the messages that a client gets, to the end of the stream."""
    decoder = sse.EventDecoder()
    async with asyncio.timeout(PATIENCE), aclosing(source) as parts:
        events = [event async for part in parts for event in decoder.feed(part)]
    return [json.loads(event.data) for event in events if event.data]


@asynccontextmanager
async def busy_desk() -> AsyncIterator[None]:
    """Keep every short-task thread busy within the block."""
    leave = threading.Event()
    working = [
        get_pool("short").submit(lambda: leave.wait(PATIENCE)) for _ in range(SHORT_TASK_THREADS)
    ]
    try:
        yield
    finally:
        leave.set()
        await asyncio.gather(*map(asyncio.wrap_future, working))


async def test_messages_are_stored_and_sent(session, number, script):
    async with owning(session, number, script) as stream:
        script.say("one", "two")
        script.say("last", final=True)
        assert await read(stream.live()) == ["one", "two", "last"]
    assert await texts_of(number) == ["one", "two", "last"]
    assert await state_of(number) == "done"


@spec("CAN-2")
async def test_a_cancellation_that_comes_after_the_answer_takes_nothing_back(
    session, number, script
):
    async with owning(session, number, script) as stream, busy_desk():
        script.say("one")
        script.say("last", final=True)
        assert await read(stream.live()) == ["one", "last"]
        # The answer still waits for a short-task thread.
        script.cancellation.cancel()
        await asyncio.sleep(0)
    assert await texts_of(number) == ["one", "last"]
    assert await state_of(number) == "done"


@spec("CAN-1")
async def test_a_cancelled_call_sends_nothing_more(session, number, script):
    async with owning(session, number, script) as stream:
        script.cancellation.cancel()
        assert await read(stream.live()) == []
    assert await texts_of(number) == []
    assert await state_of(number) == "done"


@pytest.mark.parametrize("commits", [False, True])
async def test_a_database_that_was_away_leaves_no_hole(
    session, number, script, monkeypatch, caplog, commits
):
    """The first attempt is stored and only its answer is lost, or it is not stored at all."""
    monkeypatch.setattr("mcp_django.execution.threads.RETRY_SECONDS", 0.001)
    write, failures = row_writer.write, []

    def fragile(kind: RowKind, row: Any, *, seconds: float) -> None:
        if len(failures) % 3:
            failures.append("went well")
            return write(kind, row, seconds=seconds)
        failures.append("went wrong")
        if commits:
            write(kind, row, seconds=seconds)
        raise OperationalError("the connection is closed")

    monkeypatch.setattr(row_writer, "write", fragile)
    async with owning(session, number, script):
        # Each message in a flush of its own.
        for count, text in enumerate(("one", "two", "three"), 1):
            script.say(text)
            async with asyncio.timeout(PATIENCE):
                while len(await texts_of(number)) < count:  # noqa: ASYNC110
                    await asyncio.sleep(0)
        script.say("last", final=True)
    assert await texts_of(number) == ["one", "two", "three", "last"]
    assert await state_of(number) == "done"
    assert "went wrong" in failures
    assert "The database could not be written to" in caplog.text


async def test_a_call_that_says_too_much_waits_for_the_database(session, number, script):
    texts = [str(index) for index in range(3 * durable_streams.MAX_WAITING)]
    async with owning(session, number, script) as stream, busy_desk():
        script.say(*texts)
        script.say("last", final=True)
        async with asyncio.timeout(PATIENCE):
            while not stream._flushing.locked():  # noqa: ASYNC110
                await asyncio.sleep(0)
        # The stream has not read the messages that are still in the queue.
        assert script.said.qsize() > durable_streams.MAX_WAITING
    assert await texts_of(number) == [*texts, "last"]


async def test_a_slow_reader_reads_the_rest_from_the_database(session, number, script):
    texts = [str(index) for index in range(2 * durable_streams.MAX_WAITING)]
    call: Any = script
    sending = run_stream(session.pk, number, call, script.messages())
    assert (await anext(sending)).startswith(b"id: ")
    stream = durable_streams.find_owned_stream(number)
    assert stream is not None
    script.say(*texts)
    script.say("last", final=True)
    await ended(stream)
    assert stream.is_slow
    assert await read(sending) == [*texts, "last"]


async def test_a_fenced_call_is_stopped_and_its_connection_closed(session, number, script, caplog):
    async with owning(session, number, script) as stream:
        script.say("one")
        reading = asyncio.create_task(read(stream.live()))
        async with asyncio.timeout(PATIENCE):
            while await texts_of(number) != ["one"]:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await run_in_short_thread(lambda: Stream.objects.filter(pk=number).update(state="lost"))
        script.say("two")
        assert await reading == ["one", "two"]
    assert script.is_over
    assert await texts_of(number) == ["one"]


async def test_a_reader_waits_for_a_database_that_is_away(session, number, script, monkeypatch):
    monkeypatch.setattr("mcp_django.execution.threads.RETRY_SECONDS", 0.001)
    look, attempts = streams.read_stream, []

    def fragile(*args: Any, **kwargs: Any) -> Any:
        attempts.append(args)
        if len(attempts) == 1:
            raise OperationalError("the connection is closed")
        return look(*args, **kwargs)

    async with owning(session, number, script):
        script.say("one")
        script.say("last", final=True)
    monkeypatch.setattr(streams, "read_stream", fragile)
    assert await read(read_stored_events(session.pk, number, 0)) == ["one", "last"]
    assert len(attempts) == 2


@spec("SES-8")
async def test_a_call_that_has_not_begun_to_run_holds_the_process_already(session, number, script):
    """A signal may come before the event loop has run once."""
    async with owning(session, number, script) as stream:
        assert drain.call_when_released(lambda: None)
        script.say("done", final=True)
        await ended(stream)
        assert not drain.call_when_released(lambda: None)
