"""``OwnedStream``: the stream of a call in a session, written by this process.

It numbers the messages in memory, hands them to the connection at once and stores them at most
``FLUSH_SECONDS`` later, in one transaction that the database refuses if the stream was given up for
lost meanwhile. The call goes on when its connection drops (HTTP-16).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Coroutine
from contextlib import ExitStack, aclosing, suppress
from functools import partial
from typing import Any

from django.db import DatabaseError

from mcp_django.conf import get_settings
from mcp_django.exceptions import InternalError, MCPError
from mcp_django.protocol import sse
from mcp_django.runtime.incoming import Awaiting, Invocation
from mcp_django.store import sessions, streams
from mcp_django.store.hub import hub, ring
from mcp_django.store.topics import Topic
from mcp_django.transports import cancellations, drain, event_ids
from mcp_django.transports.desk import at_desk, insist_at_desk, on_loop
from mcp_django.transports.outgoing import Messages, failure

logger = logging.getLogger("mcp_django")

FLUSH_SECONDS = 0.01
FLUSH_EVENTS = 64
# What one connection may have waiting; a slower one reads the rest from the database.
MAX_WAITING = 256
# How soon a client comes back that was asked to leave a process that stops.
DRAIN_RETRY_SECONDS = 0.2


class OwnedStream:
    """A stream that this process writes, with the task that runs its call."""

    def __init__(
        self, session_pk: int, number: int, call: Invocation | Awaiting, messages: Messages
    ) -> None:
        self.number = number
        self.is_slow = False
        """Whether the connection could not keep up, and has to read on from the database."""
        self.last_sent = 0
        self._session_pk = session_pk
        self._incoming = call.incoming
        self._cancellation = call.cancellation
        self._messages = messages
        self._seq = 0
        self._buffer: list[streams.Numbered] = []
        self._flushing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._live: deque[tuple[int, bytes]] | None = deque()
        self._changed = asyncio.Event()
        self._is_closing = False
        # Before it is asked whether the process stops, or a signal between the two would find
        # nothing that has to be waited for.
        holding = ExitStack()
        holding.enter_context(drain.hold())
        self.is_late = drain.is_draining()
        """Whether the server was told to stop before, and so waits for connections alone."""
        self._is_final = False
        self._tasks: set[asyncio.Task[Any]] = set()
        topics = [elsewhere(number), Topic("", "session", str(session_pk))]
        self._unsubscribe = hub().subscribe(topics, self._rung)
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(lambda _: holding.close())
        call.cancellation.then(on_loop(self.cancel))
        _owned[number] = self

    # The call ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            with drain.idle(self._let_go):
                await self._write_all()
                await self._flush()
                if not self._is_final:
                    # The last members of a batch were cancelled, and nothing more comes.
                    await insist_at_desk(partial(streams.close, self.number))
        except streams.Fenced:
            logger.warning("Stream %x was taken for lost; its call was stopped.", self.number)
        finally:
            self._end()

    async def _write_all(self) -> None:
        try:
            async with aclosing(self._messages) as messages:
                async for message in messages:
                    if message.is_response and self._cancellation.is_wish:
                        # Its function saw that it was cancelled before this task was.
                        return
                    if message.body:
                        self._emit(message.body, final=message.is_response)
                        await self._keep_pace()
                    elif message.hangs_up is not None:
                        self.hang_up(message.hangs_up)
        except MCPError as exc:
            if not self._cancellation.is_wish:
                self._emit(failure(self._incoming, exc), final=True)
        except streams.Fenced:
            raise
        except Exception:
            logger.exception("A call in a session failed.")
            neutral = InternalError("The request failed for a reason that is no fault of its own.")
            self._emit(failure(self._incoming, neutral), final=True)

    def _let_go(self) -> None:
        """The process stops: clients that know how come back at once, to another one.

        Not those of a call that begins only now, which nothing else would keep alive.
        """
        if self._incoming.revision.priming_event and not self.is_late:
            self.hang_up(DRAIN_RETRY_SECONDS)

    async def ended(self) -> None:
        """Wait until the call is over and what it said is stored."""
        await asyncio.wait([self._task])

    def cancel(self) -> None:
        """Stop the call; nothing more is sent for it (CAN-1).

        One that has been answered is over (CAN-2).
        """
        if self._is_final:
            return
        self._buffer.clear()
        self._task.cancel()
        self._spawn(insist_at_desk(partial(streams.close, self.number)))

    def _rung(self, topic: Topic) -> None:
        if topic.kind == "session":
            self._spawn(self._look_for_the_end())
        else:
            self.detach()

    async def _look_for_the_end(self) -> None:
        """Another process may have cancelled the call, or ended its session."""
        # The hub looks again for whoever did not find out.
        with suppress(DatabaseError):
            if await at_desk(self._is_called_off):
                self.cancel()

    def _is_called_off(self) -> bool:
        # A batch has several calls, of which each may be cancelled; their flags tell.
        cancellations.collect(self._session_pk)
        return not sessions.is_live(self._session_pk)

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
        ring(written(self.number))

    # Writing ----------------------------------------------------------------------------------

    def _emit(self, body: bytes, *, final: bool) -> None:
        self._seq += 1
        self._buffer.append((self._seq, body.decode()))
        self._is_final = final
        if self._live is not None and not self._is_closing:
            self._live.append((self._seq, encode(self.number, self._seq, body)))
            if len(self._live) > MAX_WAITING:
                self._live, self.is_slow = None, True
        self._changed.set()
        if not final:
            self._flush_later()

    async def _keep_pace(self) -> None:
        """Let a call that says more than the database takes wait for it."""
        if len(self._buffer) > MAX_WAITING:
            await self._flush()

    def _flush_later(self) -> None:
        if len(self._buffer) >= FLUSH_EVENTS:
            self._flush_now()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(FLUSH_SECONDS, self._flush_now)

    def _flush_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._spawn(self._flush_or_stop())

    async def _flush_or_stop(self) -> None:
        try:
            await self._flush()
        except streams.Fenced:
            self._task.cancel()

    async def _flush(self) -> None:
        async with self._flushing:
            events, self._buffer = self._buffer, []
            if not events:
                return
            append = partial(
                streams.append,
                self.number,
                events,
                final=self._is_final and events[-1][0] == self._seq,
                retention=get_settings().retention.streams,
            )
            # What is not stored would be a hole for whoever comes back.
            await insist_at_desk(append)
        if self._live is None or self._is_closing:
            ring(written(self.number))

    # The connection ---------------------------------------------------------------------------

    def hang_up(self, seconds: float) -> None:
        """Close the connection; the client comes back with the id of its last event.

        What is said from now on waits for it, even if the connection takes a while to close.
        """
        if self._live is not None and not self._is_closing:
            retry = sse.encode_event(None, event=None, retry=int(seconds * 1000))
            self._live.append((self._seq, retry))
            self._is_closing = True
            self._changed.set()

    def detach(self) -> None:
        """Let go of the connection: it has gone, or a newer one reads from the database."""
        self._live, self.is_slow = None, False
        self._changed.set()

    async def live(self) -> AsyncGenerator[bytes, None]:
        """The events as they come, until the last, or until the connection is let go."""
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
                yield sse.COMMENT


_owned: dict[int, OwnedStream] = {}


def owned(number: int) -> OwnedStream | None:
    """The stream of this number, if this process writes it."""
    return _owned.get(number)


def all_owned() -> list[OwnedStream]:
    """Every stream that this process writes."""
    return list(_owned.values())


def written(number: int) -> Topic:
    """Rung when a stream has something new."""
    return Topic("", "stream", f"{number:x}")


def elsewhere(number: int) -> Topic:
    """Rung when another connection sends a stream from now on."""
    return Topic("", "stream", f"{number:x} elsewhere")


def encode(number: int, seq: int, body: bytes) -> bytes:
    """An event with its id."""
    return sse.encode_event(body, id=event_ids.write(number, seq))
