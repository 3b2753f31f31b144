"""The messages of one answer, before a transport puts them into a form of its own.

They come from a running call through its ``StreamPort``, or from pub/sub, and wait in a bounded
``Mailbox`` for the stream that carries them.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncGenerator, Hashable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from mcp_django.exceptions import MCPError
from mcp_django.execution.call import Incoming
from mcp_django.protocol import envelope, jsonrpc, shapes, sse
from mcp_django.protocol.errors import error_object
from mcp_django.protocol.revisions import LOG_LEVELS, severity
from mcp_django.schema.values import jsonable


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message as JSON; after the response nothing of its request follows."""

    body: bytes
    is_response: bool = False
    hangs_up: float | None = None
    """After how many seconds the client is to come back; ``None``: it may stay."""


SILENCE = Outgoing(b"")
"""Nothing to say for a while: where others watch the connection, it is time for a sign of life."""

Messages = AsyncGenerator[Outgoing, None]
"""An answer. One that cannot be given, or no longer, raises an ``MCPError`` instead of ending."""


def failure(incoming: Incoming, exc: MCPError) -> bytes:
    """The response that says why there is no result."""
    error = error_object(exc, incoming.revision)
    return jsonrpc.encode(jsonrpc.error_message(incoming.request.id, error))


async def as_events(incoming: Incoming, messages: Messages) -> AsyncGenerator[bytes, None]:
    """An answer as server-sent events; after the first byte an error is an event too (ERR-4)."""
    try:
        async with aclosing(messages):
            async for message in messages:
                yield sse.encode_event(message.body) if message.body else sse.COMMENT
    except MCPError as exc:
        yield sse.encode_event(failure(incoming, exc))


# Mailbox: a bounded queue -------------------------------------------------------------------------

# Messages that one stream may have waiting; daphne has no back-pressure of its own.
SIZE = 256
# Stands where other messages have their serial number.
_ONCE = -1


class Mailbox:
    """Messages in the order they came, at most ``SIZE`` of them.

    When a reader is too slow, the oldest message of the same ``key`` gives way, else the oldest
    with any: they are progress or log messages, and a newer one of the kind says more. Belongs to
    one event loop; ``post`` alone may be called from any thread, and wakes the loop once for all
    that is posted until it looks, so that a chatty thread fills nothing but the box.
    """

    def __init__(self, size: int = SIZE) -> None:
        self._loop = asyncio.get_running_loop()
        self._size = size
        self._serial = count()
        self._waiting: dict[tuple[Hashable, int], Any] = {}
        self._filled = asyncio.Event()
        self._lock = threading.Lock()
        self._is_waking = False

    def post(self, message: Any, *, key: Hashable = None) -> None:
        """Queue a message from any thread; after the end of the loop it is dropped."""
        with self._lock:
            self._add(message, key)
            if self._is_waking:
                return
            self._is_waking = True
        try:
            self._loop.call_soon_threadsafe(self._filled.set)
        except RuntimeError:
            return

    def put(self, message: Any, key: Hashable = None) -> None:
        """Queue a message on the loop; in a full box an older one gives way."""
        with self._lock:
            self._add(message, key)
        self._filled.set()

    def _add(self, message: Any, key: Hashable) -> None:
        if len(self._waiting) >= self._size:
            self._make_room(key)
        self._waiting[(key, next(self._serial))] = message

    def _make_room(self, key: Hashable) -> None:
        waiting = list(self._waiting)
        alike = [entry for entry in waiting if key is not None and entry[0] == key]
        keyed = [entry for entry in waiting if entry[0] is not None]
        oldest = (alike or keyed or waiting)[0]
        del self._waiting[oldest]

    def put_once(self, message: Hashable) -> None:
        """Queue a message on the loop unless it waits already.

        Nothing gives way for it, so the caller bounds how many different ones there are.
        """
        with self._lock:
            self._waiting.setdefault((message, _ONCE), message)
        self._filled.set()

    async def wait(self, timeout: float) -> bool:
        """Whether a message came within so many seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._filled.wait()
        except TimeoutError:
            return False
        return True

    def take(self) -> list[Any]:
        """Everything that waits, in order."""
        with self._lock:
            taken = list(self._waiting.values())
            self._waiting.clear()
            self._is_waking = False
        self._filled.clear()
        return taken

    def wake(self) -> None:
        """Let ``wait`` return although no message came; for the loop's own thread."""
        self._filled.set()


# The client of a running call ---------------------------------------------------------------------


class Outbox(Protocol):
    """Where messages to the client are put; a ``Mailbox`` is one."""

    def post(self, message: Any, *, key: Hashable = None) -> None:
        """Take a message, from any thread."""


@dataclass(frozen=True, slots=True)
class HangUp:
    """Stands among messages where the connection is to be closed for so many seconds."""

    seconds: float


class StreamPort:
    """Puts progress and log messages that the client asked for into a mailbox."""

    def __init__(self, incoming: Incoming, mailbox: Outbox) -> None:
        self._incoming = incoming
        self._mailbox = mailbox
        self._lock = threading.Lock()
        self._progress = -math.inf

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send progress; a value that does not grow is dropped (PRG-2, PRG-5)."""
        token = self._incoming.envelope.progress_token
        if token is None or not math.isfinite(progress):
            return
        with self._lock:
            if progress <= self._progress:
                return
            self._progress = progress
        params: dict[str, Any] = {envelope.PROGRESS_TOKEN: token, "progress": progress}
        if total is not None and math.isfinite(total):
            params["total"] = total
        if message is not None:
            params["message"] = str(message)
        self._send("notifications/progress", params, key="progress")

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Send a log message of the level asked for, or a more severe one (LOG-4)."""
        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r} is no log level; use one of {', '.join(LOG_LEVELS)}.")
        threshold = self._incoming.envelope.log_level
        if threshold is None or severity(level) < severity(threshold):
            return
        params: dict[str, Any] = {"level": level, "data": jsonable(data)}
        if logger is not None:
            params["logger"] = str(logger)
        self._send("notifications/message", params, key="log")

    def hang_up(self, seconds: float) -> None:
        """Close the connection where the client knows how to come back."""
        if self._incoming.revision.priming_event and self._incoming.session is not None:
            self._mailbox.post(HangUp(seconds))

    def _send(self, method: str, params: dict[str, Any], *, key: str) -> None:
        projected = shapes.project_notification(method, params, self._incoming.revision)
        if projected is not None:
            self._mailbox.post(jsonrpc.notification(method, projected), key=key)
