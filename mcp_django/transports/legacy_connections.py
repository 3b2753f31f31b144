"""The connections of HTTP+SSE that this process has, and what is posted to those of others.

What a client posts faster than it is served waits, so much of it and no more (SSE-7).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from django.db import DatabaseError

from mcp_django.exceptions import Busy
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.jsonrpc import Decoded
from mcp_django.store import inbox, sessions
from mcp_django.store.hub import hub, ring
from mcp_django.store.topics import Topic
from mcp_django.transports.conversation import Conversation
from mcp_django.transports.desk import at_desk
from mcp_django.transports.listen import until_recheck

logger = logging.getLogger("mcp_django")

REF = "message"
# Messages of one client that are not served yet; beyond, it is told to wait.
MAX_WAITING = 256
# Of those that other processes took, so many at once.
FETCHED = 16
# How often the session's row is told that its stream is still there.
LIVE_SECONDS = 30


def send_elsewhere(session_pk: int, body: bytes) -> None:
    """Put a message down for the process that has the session's stream.

    Raises:
        Busy: too many are there already.
    """
    if not inbox.has_room(session_pk, REF, size=len(body), keep=MAX_WAITING):
        raise _full()
    inbox.put(session_pk, REF, REF, body.decode())
    ring(Topic("", "session", str(session_pk)))


def _full() -> Busy:
    wait = {"retryAfter": 1}
    return Busy(
        "Too many messages of this session are waiting; post the next one later.", data=wait
    )


class Connection:
    """A session whose stream is in this process.

    ``end`` closes the stream. It is called when the session is over, when ``may_stay`` denies it,
    which is asked at once when one of ``departures`` is rung, and when nobody serves the messages
    any more.
    """

    def __init__(
        self,
        pk: int,
        conversation: Conversation,
        end: Callable[[], object],
        *,
        may_stay: Callable[[], bool],
        departures: Iterable[Topic] = (),
    ) -> None:
        self._pk = pk
        self._may_stay = may_stay
        self._conversation = conversation
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(MAX_WAITING)
        # Bounded by the room.
        self._waiting: asyncio.Queue[Decoded] = asyncio.Queue()
        self._rung = asyncio.Event()
        self._topics = [Topic("", "session", str(pk)), *departures]
        self._unsubscribe = hub().subscribe(self._topics, lambda _: self._rung.set())
        self._tasks = [
            self._loop.create_task(self._serve()),
            self._loop.create_task(self._collect()),
        ]
        for task in self._tasks:
            task.add_done_callback(self._observe)
        connections.add(pk, self)

    def give(self, message: Decoded) -> None:
        """Take a message from any thread.

        Raises:
            Busy: too many are waiting already.
        """
        if not self._room.acquire(blocking=False):
            raise _full()
        self._loop.call_soon_threadsafe(self._waiting.put_nowait, message)

    def close(self) -> None:
        """Serve no more."""
        connections.remove(self._pk)
        self._unsubscribe()
        for task in self._tasks:
            task.cancel()

    def _observe(self, task: asyncio.Task[None]) -> None:
        exc = None if task.cancelled() else task.exception()
        if exc is not None:
            logger.error("A connection of HTTP+SSE can be served no more.", exc_info=exc)
            self._end()

    async def _serve(self) -> None:
        while True:
            message = await self._waiting.get()
            await self._conversation.take(message)
            self._room.release()

    async def _collect(self) -> None:
        """Fetch what other processes have put down, and see that the session is to go on."""
        await hub().ready(self._topics)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LIVE_SECONDS, until_recheck())):
                    await self._rung.wait()
            self._rung.clear()
            try:
                await self._fetch()
                if not await at_desk(self._goes_on):
                    self._end()
            except DatabaseError:
                # What is there still rings again.
                logger.warning("A session could not be looked at.", exc_info=True)

    async def _fetch(self) -> None:
        room = 0
        while room < FETCHED and self._room.acquire(blocking=False):
            room += 1
        if not room:
            return
        try:
            letters = await at_desk(partial(inbox.take, self._pk, [REF], limit=room))
            for letter in letters:
                self._waiting.put_nowait(jsonrpc.decode(letter.payload.encode()))
                room -= 1
            if letters and not room:
                self._rung.set()
        finally:
            if room:
                self._room.release(room)

    def _goes_on(self) -> bool:
        return sessions.is_live(self._pk) and self._may_stay()


class Connections:
    """The sessions whose streams are in this process."""

    def __init__(self) -> None:
        self._by_pk: dict[int, Connection] = {}
        self._lock = threading.Lock()

    def add(self, pk: int, connection: Connection) -> None:
        """Serve a session here from now on."""
        with self._lock:
            self._by_pk[pk] = connection

    def remove(self, pk: int) -> None:
        """Serve it no more."""
        with self._lock:
            self._by_pk.pop(pk, None)

    def give(self, pk: int, message: Decoded) -> bool:
        """Whether the session is served here, and so took the message.

        Raises:
            Busy: it has too many.
        """
        with self._lock:
            connection = self._by_pk.get(pk)
        if connection is None:
            return False
        connection.give(message)
        return True


connections = Connections()
