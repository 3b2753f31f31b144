"""Streams that survive their connections: sent as they are written, and read again later.

Whoever comes back with the id of an event reads the rest from the database, in the process that
writes the stream or in any other. One that finds the writer dead closes the stream with an error.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import (
    AbstractContextManager,
    aclosing,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial

from mcp_django.conf import get_settings
from mcp_django.protocol import jsonrpc, sse
from mcp_django.protocol.errors import INTERNAL_ERROR
from mcp_django.protocol.revisions import Revision
from mcp_django.runtime.incoming import Awaiting, Invocation
from mcp_django.store import streams
from mcp_django.store.bell import poll_seconds
from mcp_django.store.hub import hub, ring_elsewhere
from mcp_django.transports import drain, event_ids
from mcp_django.transports.desk import insist_at_desk, on_loop
from mcp_django.transports.outgoing import Messages
from mcp_django.transports.owned import (
    DRAIN_RETRY_SECONDS,
    OwnedStream,
    elsewhere,
    encode,
    owned,
    written,
)

# How soon a client of 2025-11-25 comes back after a connection that broke.
RETRY_MILLISECONDS = 1000
# Even where the bell rings, nobody waits longer than this for a row.
MAX_PATIENCE_SECONDS = 1.0


Watched = Callable[[Callable[[], object]], AbstractContextManager[None]]


def _unwatched(end: Callable[[], object]) -> AbstractContextManager[None]:
    return nullcontext()


async def begin(
    session_pk: int, number: int, call: Invocation | Awaiting, messages: Messages
) -> AsyncGenerator[bytes, None]:
    """Run a call whose stream has its row already, and send its events as they come."""
    stream = OwnedStream(session_pk, number, call, messages)
    try:
        yield opening(event_ids.write(number, 0), call.incoming.revision)
        async with aclosing(stream.live()) as live:
            async for event in live:
                yield event
        if stream.is_slow:
            async with aclosing(tail(session_pk, number, stream.last_sent)) as rest:
                async for event in rest:
                    yield event
    finally:
        stream.detach()
        if stream.is_late:
            await stream.ended()


def opening(event_id: str, revision: Revision) -> bytes:
    """The first bytes of a stream: an id to come back with, where clients know that (RSM-5)."""
    if not revision.priming_event:
        return sse.COMMENT
    return sse.encode_event(b"", id=event_id, event=None, retry=RETRY_MILLISECONDS)


async def resume(
    session_pk: int, number: int, *, after_seq: int, watched: Watched = _unwatched
) -> AsyncGenerator[bytes, None]:
    """The rest of a stream; a connection that still sends it is let go (RSM-9).

    ``watched`` is told how to end the connection, should its caller be sent away.
    """
    here = owned(number)
    if here is not None:
        here.detach()
    # Whoever reads it in this process finds out in `tail`.
    ring_elsewhere(elsewhere(number))
    yield sse.COMMENT
    async with aclosing(tail(session_pk, number, after_seq, watched)) as events:
        async for event in events:
            yield event
    if drain.is_draining():
        yield sse.encode_event(None, event=None, retry=int(DRAIN_RETRY_SECONDS * 1000))


class _Reader:
    """A connection that reads a stream from the database, until a newer one does."""

    def __init__(self) -> None:
        self.rung = asyncio.Event()
        self._is_over = False
        self._wake = on_loop(self.rung.set)

    def end(self) -> None:
        """Read no more; for any thread."""
        self._is_over = True
        self._wake()

    def is_over(self) -> bool:
        """Whether a newer connection reads the stream."""
        return self._is_over


_readers: dict[int, _Reader] = {}


@contextmanager
def _reading(number: int) -> Iterator[_Reader]:
    """Be the one connection that reads a stream, and hear of what is written to it."""
    reader, older = _Reader(), _readers.get(number)
    if older is not None:
        older.end()
    _readers[number] = reader
    leave = hub().subscribe([written(number)], lambda _: reader.rung.set())
    leave_others = hub().subscribe([elsewhere(number)], lambda _: reader.end())
    try:
        # A process that stops has no part in a stream that it only reads.
        with drain.idle(reader.end):
            yield reader
    finally:
        leave()
        leave_others()
        if _readers.get(number) is reader:
            del _readers[number]


async def tail(
    session_pk: int, number: int, after_seq: int, watched: Watched = _unwatched
) -> AsyncGenerator[bytes, None]:
    """The events after one, from the database, until the last or until a newer connection."""
    last = after_seq
    loop = asyncio.get_running_loop()
    spoke = loop.time()
    # First listen, then look: what is stored between the two rings.
    with (
        _reading(number) as reader,
        watched(reader.end),
        suppress(streams.UnknownStream),
    ):
        while not reader.is_over():
            reader.rung.clear()
            glimpse = await insist_at_desk(
                partial(streams.look, session_pk, number, after_seq=last)
            )
            for last, payload in glimpse.events:
                if reader.is_over():
                    return
                yield encode(number, last, payload.encode())
                spoke = loop.time()
            if not glimpse.is_open and last >= glimpse.last_seq:
                return
            if glimpse.events:
                continue
            if await insist_at_desk(partial(_close_if_lost, number, glimpse)):
                continue
            if loop.time() - spoke >= get_settings().keepalive_seconds:
                spoke = loop.time()
                yield sse.COMMENT
            await _rung_or_later(reader.rung)


async def _rung_or_later(rung: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(min(poll_seconds(), MAX_PATIENCE_SECONDS)):
            await rung.wait()
    except TimeoutError:
        return


def _close_if_lost(number: int, glimpse: streams.Glimpse) -> bool:
    return glimpse.is_open and streams.mark_lost(
        number,
        glimpse.owner,
        payload=terminal_error(glimpse.request_id),
        retention=get_settings().retention.streams,
    )


def terminal_error(request_id: str) -> str:
    """The last message of a stream whose process died, for the request's id as JSON.

    The stream of a batch has several ids, and gets an error for each.
    """
    found = json.loads(request_id)
    error = {
        "code": INTERNAL_ERROR,
        "message": "The process that ran this was lost; call again.",
    }
    if isinstance(found, list):
        return jsonrpc.encode([jsonrpc.error_message(one, error) for one in found]).decode()
    return jsonrpc.encode(jsonrpc.error_message(found, error)).decode()
