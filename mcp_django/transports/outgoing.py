"""The messages of one response stream, before a transport encodes them.

They come from a running call through its ``StreamPort``, or from pub/sub, and are queued in a
bounded ``Mailbox`` until the stream sends them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import AsyncGenerator, Hashable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from mcp_django.conf import get_settings
from mcp_django.exceptions import InternalError, MCPError
from mcp_django.execution.call import Call
from mcp_django.execution.results import is_too_large
from mcp_django.protocol import envelope, jsonrpc, projection, sse
from mcp_django.protocol.revisions import LOG_LEVELS, severity
from mcp_django.schema.values import jsonable

logger = logging.getLogger("mcp_django")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message as JSON; the response is the last message of its request."""

    body: bytes
    is_response: bool = False
    reconnect_seconds: float | None = None
    """Close the connection; the client reconnects after this many seconds. ``None``: keep it."""


KEEPALIVE = Outgoing(b"")
"""No message for a while: a transport with idle timeouts sends a keep-alive."""

Messages = AsyncGenerator[Outgoing, None]
"""The messages of a response. The generator raises an ``MCPError`` if the request fails."""


def encode_message(call: Call, message: dict[str, Any]) -> Outgoing:
    """Encode a message that precedes the response; a notification that is too large is left out.

    Raises:
        InternalError: a request to the client is too large for an event.
    """
    body = jsonrpc.encode(message)
    if not is_too_large(call, len(body)):
        return Outgoing(body)
    problem = (
        f"{message['method']} has {len(body)} bytes; an event has at most "
        f"{get_settings().max_event_bytes} (MAX_EVENT_BYTES)"
    )
    if "id" in message:
        raise InternalError(f"{problem}.")
    logger.warning("%s, so it was not sent.", problem)
    return KEEPALIVE


def failure(call: Call, exc: MCPError) -> bytes:
    """Return the encoded error response to a request."""
    return jsonrpc.encode_failure(call.request.id, exc, call.revision)


async def encode_events(call: Call, messages: Messages) -> AsyncGenerator[bytes, None]:
    """Encode messages as server-sent events; an error after the start is an event too."""
    try:
        async with aclosing(messages):
            async for message in messages:
                yield sse.encode_event(message.body) if message.body else sse.KEEPALIVE_COMMENT
    except MCPError as exc:
        yield sse.encode_event(failure(call, exc))


# How many messages one stream may have queued; daphne has no back-pressure.
SIZE = 256
# The serial number in the keys of messages that are queued only once.
_ONCE = -1


class Mailbox:
    """A bounded queue of messages, at most ``SIZE`` of them.

    If the reader is too slow, the oldest message with the same ``key`` is dropped, else the
    oldest with any key: these are progress or log messages, which newer ones supersede. A mailbox
    belongs to one event loop. Only ``post`` may be called from other threads; it wakes the loop
    once for all messages until they are taken, so that a thread with many messages does not flood
    the loop with callbacks.
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
        """Queue a message; thread-safe. After the loop is closed it is never delivered."""
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
        """Queue a message, on the event loop; if the mailbox is full, an older one is dropped."""
        with self._lock:
            self._add(message, key)
        self._filled.set()

    def _add(self, message: Any, key: Hashable) -> None:
        if len(self._waiting) >= self._size:
            waiting = list(self._waiting)
            alike = [place for place in waiting if key is not None and place[0] == key]
            keyed = [place for place in waiting if place[0] is not None]
            oldest = (alike or keyed or waiting)[0]
            del self._waiting[oldest]
        self._waiting[(key, next(self._serial))] = message

    def put_once(self, message: Hashable) -> None:
        """Queue a message, on the event loop, unless it is already queued.

        No message is dropped for it, so the caller has to bound the number of different messages.
        """
        with self._lock:
            self._waiting.setdefault((message, _ONCE), message)
        self._filled.set()

    async def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for a message; return whether one was queued."""
        try:
            async with asyncio.timeout(timeout):
                await self._filled.wait()
        except TimeoutError:
            return False
        return True

    def take(self) -> list[Any]:
        """Remove and return all queued messages, in order."""
        with self._lock:
            taken = list(self._waiting.values())
            self._waiting.clear()
            self._is_waking = False
        self._filled.clear()
        return taken

    def wake(self) -> None:
        """Make ``wait`` return without a message; on the event loop."""
        self._filled.set()


class Outbox(Protocol):
    """A receiver of messages for the client; ``Mailbox`` implements it."""

    def post(self, message: Any, *, key: Hashable = None) -> None:
        """Queue a message; thread-safe."""


@dataclass(frozen=True, slots=True)
class CloseStream:
    """A queue item: close the connection; the client reconnects after ``seconds``."""

    seconds: float


class StreamPort:
    """Queues the progress and log messages that the client requested."""

    def __init__(self, call: Call, mailbox: Outbox) -> None:
        # Not the call, which may hold the port: a cycle would delay the record of a lost call.
        self._revision, self._envelope = call.revision, call.envelope
        self._can_close = call.revision.priming_event and call.session is not None
        self._mailbox, self._stream = mailbox, call.stream
        self._lock = threading.Lock()
        self._progress = -math.inf

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send progress; a value that does not increase is dropped."""
        token = self._envelope.progress_token
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
        """Send a log message if it has at least the level that the client requested."""
        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r} is not a log level; use one of {', '.join(LOG_LEVELS)}.")
        threshold = self._envelope.log_level
        if threshold is None or severity(level) < severity(threshold):
            return
        params: dict[str, Any] = {"level": level, "data": jsonable(data)}
        if logger is not None:
            params["logger"] = str(logger)
        self._send("notifications/message", params, key="log")

    def close_stream(self, seconds: float) -> None:
        """Close the connection if the client can resume the stream later."""
        if self._can_close:
            self._mailbox.post(CloseStream(seconds))

    def _send(self, method: str, params: dict[str, Any], *, key: str) -> None:
        projected = projection.project_notification(method, params, self._revision)
        if projected is not None:
            if self._stream is not None:
                self._stream.has_begun = True
            self._mailbox.post(jsonrpc.build_notification(method, projected), key=key)
