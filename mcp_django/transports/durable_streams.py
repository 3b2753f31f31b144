"""Resumable event streams of calls in sessions, stored in the database.

A client that reconnects with ``Last-Event-ID`` reads the remaining events from the database, in
the process that writes the stream or in any other. A process that detects that the writer's lease
is lost closes the stream with an error.

The writer numbers the messages in memory, passes them to the connection immediately and stores
them at most ``FLUSH_SECONDS`` later, in one transaction that fails if another process has closed
the stream as lost. The call continues when its connection drops.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    aclosing,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from typing import Any, NamedTuple

from django.db import DatabaseError

from mcp_django.conf import get_settings
from mcp_django.exceptions import InternalError, MCPError
from mcp_django.execution.call import Call
from mcp_django.execution.threads import (
    call_on_loop,
    run_in_short_thread,
    run_with_retry,
    write_row,
)
from mcp_django.protocol import jsonrpc, sse
from mcp_django.protocol.errors import INTERNAL_ERROR
from mcp_django.protocol.revisions import Revision
from mcp_django.storage import sessions, streams
from mcp_django.storage.pubsub import get_hub, notify, notify_other_processes, poll_seconds
from mcp_django.storage.versions import TopicKey
from mcp_django.transports import cancellation, drain
from mcp_django.transports.outgoing import Messages, failure

logger = logging.getLogger("mcp_django")

# How soon a client of 2025-11-25 reconnects after its connection broke.
RETRY_MILLISECONDS = 1000
# How soon a client reconnects when its process is stopping.
DRAIN_RETRY_SECONDS = 0.2
# Rows are polled at least this often, even with working pub/sub.
MAX_POLL_SECONDS = 1.0

AccessWatch = Callable[[Callable[[], object]], AbstractContextManager[None]]


def _unwatched(end: Callable[[], object]) -> AbstractContextManager[None]:
    return nullcontext()


async def run_stream(
    session_pk: int, number: int, call: Call, messages: Messages
) -> AsyncGenerator[bytes, None]:
    """Run a call whose stream row already exists, and yield its events as they are produced."""
    stream = OwnedStream(session_pk, number, call, messages)
    try:
        yield priming_event(encode_event_id(number, 0), call.revision)
        async with aclosing(stream.live()) as live:
            async for event in live:
                yield event
        if stream.is_slow:
            async with aclosing(read_stored_events(session_pk, number, stream.last_sent)) as rest:
                async for event in rest:
                    yield event
    finally:
        stream.detach()
        if stream.is_late:
            await stream.ended()


def priming_event(event_id: str, revision: Revision) -> bytes:
    """Return the first bytes of a stream: an event id to resume from, or a comment.

    Only 2025-11-25 defines this priming event.
    """
    if not revision.priming_event:
        return sse.KEEPALIVE_COMMENT
    return sse.encode_event(b"", id=event_id, event=None, retry=RETRY_MILLISECONDS)


async def resume_stream(
    session_pk: int, number: int, *, after_seq: int, watched: AccessWatch = _unwatched
) -> AsyncGenerator[bytes, None]:
    """Yield the rest of a stream; an older connection to the same stream is closed.

    ``watched`` takes a function that ends the connection, and returns a context manager that calls
    this function if the caller loses its authorization.
    """
    here = find_owned_stream(number)
    if here is not None:
        here.detach()
    # An older reader in this process is ended by `read_stored_events`.
    notify_other_processes(_elsewhere(number))
    yield sse.KEEPALIVE_COMMENT
    async with aclosing(read_stored_events(session_pk, number, after_seq, watched)) as events:
        async for event in events:
            yield event
    if drain.is_draining():
        yield sse.encode_event(None, event=None, retry=int(DRAIN_RETRY_SECONDS * 1000))


async def read_stored_events(
    session_pk: int, number: int, after_seq: int, watched: AccessWatch = _unwatched
) -> AsyncGenerator[bytes, None]:
    """Yield the stored events after ``after_seq`` until the last one or a newer connection."""
    last = after_seq
    loop = asyncio.get_running_loop()
    last_sent = loop.time()
    # Subscribe before reading: an event stored between the two is then notified.
    with (
        _registered_reader(number) as reader,
        watched(reader.end),
        suppress(streams.UnknownStream),
    ):
        while not reader.is_over():
            reader.notified.clear()
            snapshot = await run_with_retry(
                partial(streams.read_stream, session_pk, number, after_seq=last)
            )
            for last, payload in snapshot.events:
                if reader.is_over():
                    return
                yield sse.encode_event(payload.encode(), id=encode_event_id(number, last))
                last_sent = loop.time()
            if not snapshot.is_open and last >= snapshot.last_seq:
                return
            if snapshot.events:
                continue
            if await run_with_retry(partial(_close_if_lost, number, snapshot)):
                continue
            if loop.time() - last_sent >= get_settings().keepalive_seconds:
                last_sent = loop.time()
                yield sse.KEEPALIVE_COMMENT
            with suppress(TimeoutError):
                async with asyncio.timeout(min(poll_seconds(), MAX_POLL_SECONDS)):
                    await reader.notified.wait()


@contextmanager
def _registered_reader(number: int) -> Iterator[_StoredStreamReader]:
    """Replace an older reader of a stream and subscribe to its new events."""
    reader, older = _StoredStreamReader(), _readers.get(number)
    if older is not None:
        older.end()
    _readers[number] = reader
    leave = get_hub().subscribe([_written(number)], lambda _: reader.notified.set())
    leave_others = get_hub().subscribe([_elsewhere(number)], lambda _: reader.end())
    try:
        # A process that stops ends its readers; another process can serve the stream.
        with drain.idle_stream(reader.end):
            yield reader
    finally:
        leave()
        leave_others()
        if _readers.get(number) is reader:
            del _readers[number]


class _StoredStreamReader:
    """A connection that reads a stream from the database until a newer one replaces it."""

    def __init__(self) -> None:
        self.notified = asyncio.Event()
        self._is_over = False
        self._wake = call_on_loop(self.notified.set)

    def end(self) -> None:
        """Stop reading; thread-safe."""
        self._is_over = True
        self._wake()

    def is_over(self) -> bool:
        """Return whether reading has to end, for example because a newer connection reads."""
        return self._is_over


_readers: dict[int, _StoredStreamReader] = {}


def _close_if_lost(number: int, snapshot: streams.StreamSnapshot) -> bool:
    """Close a stream whose process died, with an error; return whether this call did it."""
    if not snapshot.is_open:
        return False
    request_id = json.loads(snapshot.request_id)
    error = {
        "code": INTERNAL_ERROR,
        "message": "The server process that ran this call has died; send the request again.",
    }
    if isinstance(request_id, list):
        # The stream of a batch gets an error for each request.
        response: Any = [jsonrpc.build_error(member_id, error) for member_id in request_id]
    else:
        response = jsonrpc.build_error(request_id, error)
    return streams.mark_lost(
        number,
        snapshot.owner,
        payload=jsonrpc.encode(response).decode(),
        retention=get_settings().retention.streams,
    )


# Event ids ----------------------------------------------------------------------------------------

_ID = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16})(?:-([0-9a-f]{1,16}))?")
# The database stores signed 64-bit integers.
_TOO_LARGE = 1 << 63


class EventId(NamedTuple):
    """The id of an event: its stream and the position in it.

    On the stream of a call, ``position`` is the event's sequence number and ``beyond`` is ``None``.
    On a GET stream, ``position`` is the number of the last change that had been reported completely
    by then (``storage.versions``), and ``beyond`` is the number of events sent since.
    """

    stream: int
    position: int
    beyond: int | None = None

    @property
    def is_of_get_stream(self) -> bool:
        """Whether the id has the format of a GET stream."""
        return self.beyond is not None


def encode_event_id(stream: int, position: int, beyond: int | None = None) -> str:
    """Format the id of an event."""
    return f"{stream:x}-{position:x}" if beyond is None else f"{stream:x}-{position:x}-{beyond:x}"


def decode_event_id(text: str) -> EventId | None:
    """Parse an event id; return ``None`` for one that this server did not issue."""
    match = _ID.fullmatch(text)
    if match is None:
        return None
    stream, position, beyond = (None if part is None else int(part, 16) for part in match.groups())
    assert stream is not None
    assert position is not None
    return (
        EventId(stream, position, beyond)
        if max(stream, position, beyond or 0) < _TOO_LARGE
        else None
    )


FLUSH_SECONDS = 0.01
FLUSH_EVENTS = 64
# How many events one connection may have queued; a slower one reads from the database.
MAX_WAITING = 256


class OwnedStream:
    """The stream of a call in a session, written by this process, and the call's asyncio task."""

    def __init__(self, session_pk: int, number: int, call: Call, messages: Messages) -> None:
        self.number = number
        self.is_slow = False
        """Whether the connection could not keep up and has to continue from the database."""
        self.last_sent = 0
        self._session_pk = session_pk
        self._call = call
        self._cancellation = call.cancellation
        self._messages = messages
        self._seq = 0
        self._buffer: list[streams.NumberedEvent] = []
        self._flushing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._live: deque[tuple[int, bytes]] | None = deque()
        self._changed = asyncio.Event()
        self._is_closing = False
        # Hold the process before checking whether it stops: a signal between the two would
        # otherwise find nothing to wait for.
        holding = ExitStack()
        holding.enter_context(drain.hold_process())
        self.is_late = drain.is_draining()
        """Whether the server is already stopping, so that it waits only for connections."""
        self._is_final = False
        self._tasks: set[asyncio.Task[Any]] = set()
        topics = [_elsewhere(number), TopicKey("", "session", str(session_pk))]
        self._unsubscribe = get_hub().subscribe(topics, self._on_notification)
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(lambda _: holding.close())
        call.cancellation.add_callback(call_on_loop(self.cancel))
        _owned[number] = self

    async def _run(self) -> None:
        try:
            with drain.idle_stream(self._close_for_drain):
                await self._write_all()
                await self._flush()
                if not self._is_final:
                    # The last members of a batch were cancelled: no message is the final one.
                    await run_with_retry(partial(streams.close_streams, self.number))
        except streams.LeaseLost:
            logger.warning("The lease of stream %x was lost; its call was cancelled.", self.number)
        finally:
            self._end()

    async def _write_all(self) -> None:
        try:
            async with aclosing(self._messages) as messages:
                async for message in messages:
                    if message.is_response and self._cancellation.requested_by_client:
                        # The function noticed the cancellation before this task was cancelled.
                        return
                    if message.body:
                        self._emit(message.body, final=message.is_response)
                    elif message.reconnect_seconds is not None:
                        self.close_stream(message.reconnect_seconds)
                    # The call may produce messages faster than the database stores them.
                    if len(self._buffer) > MAX_WAITING:
                        await self._flush()
        except MCPError as exc:
            if not self._cancellation.requested_by_client:
                self._emit(failure(self._call, exc), final=True)
        except streams.LeaseLost:
            raise
        except Exception:
            logger.exception("A call in a session failed.")
            neutral = InternalError("The request failed because of a server error.")
            self._emit(failure(self._call, neutral), final=True)

    def _close_for_drain(self) -> None:
        """Close the connection when the process stops, so the client reconnects to another one.

        Only for revisions with resumption, and not for a call that started during the shutdown:
        its connection is what keeps the process alive.
        """
        if self._call.revision.priming_event and not self.is_late:
            self.close_stream(DRAIN_RETRY_SECONDS)

    async def ended(self) -> None:
        """Wait until the call is finished and its messages are stored."""
        await asyncio.wait([self._task])

    def cancel(self) -> None:
        """Cancel the call; nothing more is sent for it.

        Does nothing if the call has already been answered.
        """
        if self._is_final:
            return
        self._buffer.clear()
        self._task.cancel()
        self._spawn(run_with_retry(partial(streams.close_streams, self.number)))

    def _on_notification(self, topic: TopicKey) -> None:
        if topic.kind == "session":
            self._spawn(self._check_for_cancellation())
        else:
            self.detach()

    async def _check_for_cancellation(self) -> None:
        """Cancel the call if another process cancelled it or ended its session."""

        def is_session_over() -> bool:
            # The calls of a batch are cancelled one by one, by their own flags.
            cancellation.apply_stored_cancellations(self._session_pk)
            return not sessions.mark_seen(self._session_pk)

        # The pub/sub hub polls again, so a failure only delays this.
        with suppress(DatabaseError):
            if await run_in_short_thread(is_session_over):
                self.cancel()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._unsubscribe()
        _owned.pop(self.number, None)
        self._is_final = True
        self._changed.set()
        notify(_written(self.number))

    def _emit(self, body: bytes, *, final: bool) -> None:
        self._seq += 1
        self._buffer.append((self._seq, body.decode()))
        self._is_final = final
        if self._live is not None and not self._is_closing:
            event_id = encode_event_id(self.number, self._seq)
            self._live.append((self._seq, sse.encode_event(body, id=event_id)))
            if len(self._live) > MAX_WAITING:
                self._live, self.is_slow = None, True
        self._changed.set()
        if final:
            return
        if len(self._buffer) >= FLUSH_EVENTS:
            self._flush_now()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(FLUSH_SECONDS, self._flush_now)

    def _flush_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

        async def flush() -> None:
            try:
                await self._flush()
            except streams.LeaseLost:
                self._task.cancel()

        self._spawn(flush())

    async def _flush(self) -> None:
        async with self._flushing:
            events, self._buffer = self._buffer, []
            if not events:
                return
            new = streams.NewEvents(
                self.number,
                events,
                is_final=self._is_final and events[-1][0] == self._seq,
                retention=get_settings().retention.streams,
            )
            # Retried: an event that is not stored would be missing for a resuming client.
            await write_row(streams.EVENTS, new)
        if self._live is None or self._is_closing:
            notify(_written(self.number))

    def close_stream(self, seconds: float) -> None:
        """Close the connection; the client reconnects with the id of its last event.

        Later messages are stored for the client, even if the connection takes a while to close.
        """
        if self._live is not None and not self._is_closing:
            retry = sse.encode_event(None, event=None, retry=int(seconds * 1000))
            self._live.append((self._seq, retry))
            self._is_closing = True
            self._changed.set()

    def detach(self) -> None:
        """Detach the connection: it is closed, or a newer one reads from the database."""
        self._live, self.is_slow = None, False
        self._changed.set()

    async def live(self) -> AsyncGenerator[bytes, None]:
        """Yield the events as they are produced, until the last or until ``detach``."""
        keepalive = get_settings().keepalive_seconds
        while True:
            self._changed.clear()
            while self._live:
                self.last_sent, event = self._live.popleft()
                yield event
            if self._is_closing:
                self.detach()
            if self._live is None or self._is_final:
                return
            try:
                async with asyncio.timeout(keepalive):
                    await self._changed.wait()
            except TimeoutError:
                yield sse.KEEPALIVE_COMMENT


_owned: dict[int, OwnedStream] = {}


def find_owned_stream(number: int) -> OwnedStream | None:
    """Return the stream with this number, if this process writes it."""
    return _owned.get(number)


def _written(number: int) -> TopicKey:
    """Return the topic that is notified when a stream has new events."""
    return TopicKey("", "stream", f"{number:x}")


def _elsewhere(number: int) -> TopicKey:
    """Return the topic that is notified when another connection takes over a stream."""
    return TopicKey("", "stream", f"{number:x} elsewhere")
