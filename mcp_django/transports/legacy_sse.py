"""HTTP+SSE, the transport of 2024-11-05: one stream for all responses; POSTs are answered with 202.

The session lasts as long as the stream. If a POST reaches another process than the one with the
stream, its message is stored in the inbox, and the process with the stream serves it.

Messages that a client posts faster than they are served are queued up to a limit; more are
rejected as busy. A POST is answered when its message is queued, so queued messages and open
requests are limited in bytes too. A client that does not read its stream loses the stream.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from functools import partial
from urllib.parse import parse_qs

from django.db import DatabaseError

from mcp_django.auth.authentication import refresh_principal
from mcp_django.auth.limits import anonymous_network, share_of
from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Server
from mcp_django.conf import get_settings
from mcp_django.exceptions import AccessRefused, AuthenticationRequired, Busy
from mcp_django.execution.call import WHY_NO_STREAMS, Channel
from mcp_django.execution.policy import admit_caller
from mcp_django.execution.quotas import consume_session
from mcp_django.execution.threads import run_in_short_thread
from mcp_django.protocol import jsonrpc, sse
from mcp_django.protocol.headers import EVENT_STREAM
from mcp_django.protocol.jsonrpc import Batch, Decoded, DecodingFailure, Request
from mcp_django.protocol.revisions import V2024_11_05
from mcp_django.storage import inbox, sessions
from mcp_django.storage.pubsub import get_hub, notify
from mcp_django.storage.revocations import revocation_topics
from mcp_django.storage.versions import TopicKey
from mcp_django.transports import drain, request_checks
from mcp_django.transports.conversation import Conversation
from mcp_django.transports.exchange import (
    Exchange,
    Message,
    accepted,
    error_reply,
    jsonrpc_error_reply,
)
from mcp_django.transports.outcome import SSE_HEADERS, Outcome, Reply, Stream
from mcp_django.transports.stream_access import seconds_left, seconds_until_recheck
from mcp_django.transports.stream_slots import StreamSlot, acquire_stream_slot

logger = logging.getLogger("mcp_django")

SESSION = "session_id"
# How many messages are queued for a client that does not read; then the sender waits.
MAX_OUTGOING = 16
# How long the sender waits; then all open requests are cancelled, and the stream ends.
STALLED_SECONDS = 60


def is_supported(server: Server) -> bool:
    """Return whether the server supports 2024-11-05, the revision of this transport."""
    return V2024_11_05.version in server.protocol_versions


def open_stream(server: Server, exchange: Exchange, principal: Principal) -> Outcome:
    """Open a session and return its stream, whose first event is the URL to post to.

    Raises:
        TooManyRequests: too many sessions were opened from the caller's address.
        TooManySessions: all callers without credentials together reached their session limit.
        TooManyStreams: the caller has reached the limit of open streams.
    """
    if not exchange.can_stream:
        return jsonrpc_error_reply(405, WHY_NO_STREAMS)
    if not request_checks.accepts(exchange.headers, EVENT_STREAM):
        return jsonrpc_error_reply(
            406, f"GET answers with {EVENT_STREAM}; add it to the Accept header."
        )
    network = anonymous_network(principal, exchange.request)
    source = exchange.find_source()
    consume_session(network)
    slot = acquire_stream_slot(principal, exchange.request)
    row, plaintext = sessions.open_session(
        _namespace(server),
        principal.key,
        user_pk=principal.user_pk,
        protocol_version=V2024_11_05.version,
        client_info={},
        capabilities={},
        network=network,
    )
    # Relative to the URL of the stream, so proxy prefixes do not matter.
    mount, _, last = exchange.path.rpartition("/")
    target = f"{last}/messages" if last not in ("", "sse") else "messages"
    if not last and mount.endswith("/sse"):
        target = "../messages"
    endpoint = f"{target}?{SESSION}={plaintext}"
    return Stream(
        headers=SSE_HEADERS,
        open=lambda: _events(server, principal, source, row.pk, endpoint, slot),
    )


def accept_post(
    server: Server, exchange: Exchange, message: Message, principal: Principal
) -> Reply:
    """Accept a posted message and pass it to the process with the session's stream.

    Raises:
        Busy: too many messages of the session are waiting.
    """
    if isinstance(message, DecodingFailure):
        return error_reply(message.error, message.id)
    session_ids = parse_qs(exchange.query).get(SESSION, [""])
    row = sessions.find_session(session_ids[0], server=_namespace(server), principal=principal.key)
    if row is None:
        return jsonrpc_error_reply(
            404,
            "The session does not exist or has ended; open the stream again.",
            request_id=jsonrpc.request_id_of(message),
        )
    if not _connections.queue_message(row.pk, message, len(exchange.body)):
        # Another process has the stream of the session.
        if not inbox.has_room(row.pk, REF, size=len(exchange.body), keep=MAX_WAITING):
            raise _full()
        inbox.put_message(row.pk, REF, REF, exchange.body.decode())
        notify(TopicKey("", "session", str(row.pk)))
    return accepted()


def _namespace(server: Server) -> str:
    """Return the namespace that keeps session ids apart from those of Streamable HTTP."""
    return f"{server.name}/sse"


async def _events(
    server: Server,
    principal: Principal,
    source: str | None,
    pk: int,
    endpoint: str,
    slot: StreamSlot,
) -> AsyncGenerator[bytes, None]:
    """Yield all messages for the client until it disconnects or the session ends."""
    outgoing: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_OUTGOING)

    def end() -> None:
        # A client that does not read must not delay the end; it loses one queued message.
        if outgoing.full():
            outgoing.get_nowait()
        outgoing.put_nowait(None)

    async def send(body: bytes) -> None:
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                await outgoing.put(body)
        except TimeoutError:
            # The stream ends when the client reads it or disconnects, which may take long; until
            # then, no request that was open may keep its result in memory.
            conversation.cancel_all()
            connection.close()
            end()

    # Requests with an envelope are not defined for this transport.
    caller = _StreamCaller(principal)
    conversation = Conversation(
        *(server, caller),
        send=send,
        end=end,
        hold=slot.hold,
        is_stateless_spoken=False,
        channel=Channel(transport="sse", find_source=lambda: source),
        share_key=share_of(principal, lambda: source),
    )
    may_stay = partial(caller.may_stay, server)
    revoked_topics = revocation_topics(principal.credential, principal.user)
    connection = _Connection(
        pk, conversation, end, may_stay=may_stay, revoked_topics=revoked_topics
    )
    expiry = _at_expiry(principal, end)
    try:
        yield sse.encode_event(endpoint.encode(), event="endpoint")
        with drain.idle_stream(end):
            while (body := await _next(outgoing)) is not None:
                yield sse.encode_event(body.rstrip(b"\n")) if body else sse.KEEPALIVE_COMMENT
    finally:
        conversation.end_subscriptions()
        conversation.cancel_all()
        connection.close()
        if expiry is not None:
            expiry.cancel()
        slot.release()
        await asyncio.shield(run_in_short_thread(partial(sessions.end_sessions, [pk])))


class _StreamCaller:
    """The principal that opened the stream; it is checked again for each message."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal

    def may_stay(self, server: Server) -> bool:
        """Return whether the caller is still authorized."""
        try:
            admit_caller(server, self.principal)
        except AccessRefused:
            return False
        return True

    def principal(self) -> Principal:
        current = refresh_principal(self._principal)
        if current is None:
            raise AuthenticationRequired("The token is revoked.", error="invalid_token")
        return current


def _at_expiry(principal: Principal, end: Callable[[], None]) -> asyncio.TimerHandle | None:
    """Schedule ``end`` for when the credential expires; return ``None`` if it never does."""
    seconds = seconds_left(principal)
    return None if seconds is None else asyncio.get_running_loop().call_later(seconds, end)


async def _next(queue: asyncio.Queue[bytes | None]) -> bytes | None:
    """Return the next message, ``b""`` if a keep-alive is due, or ``None`` at the end."""
    try:
        async with asyncio.timeout(get_settings().keepalive_seconds):
            return await queue.get()
    except TimeoutError:
        return b""


# Connections of this process ----------------------------------------------------------------------

REF = "message"
# Queued messages of one client; more are rejected as busy, and so are more bytes than two bodies of
# the maximum size.
MAX_WAITING = 256
# How many messages stored by other processes are fetched at a time.
FETCHED = 16
# How often, at least, the session is checked and its `seen_at` updated while the stream is open.
LIVE_SECONDS = 30


def _full() -> Busy:
    wait = {"retryAfter": 1}
    return Busy(
        "Too many messages of this session are waiting; post the next one later.", data=wait
    )


class _Room:
    """The room for the queued messages of one client; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = self._size = 0

    def take(self, size: int = 0) -> bool:
        """Reserve room for a message of so many bytes; return whether there was enough."""
        with self._lock:
            if self._count >= MAX_WAITING or self._size + size > _max_size():
                return False
            self._count += 1
            self._size += size
            return True

    def add(self, size: int) -> None:
        """Count the bytes of a message whose room was reserved before its size was known."""
        with self._lock:
            self._size += size

    def give(self, size: int = 0) -> None:
        """Release the room of a message."""
        with self._lock:
            self._count -= 1
            self._size -= size


def _max_size() -> int:
    """Return the limit in bytes of a client's queued messages, and of its open requests."""
    most: int = 2 * get_settings().max_body_bytes
    return most


class _Connection:
    """A session whose stream is in this process.

    ``end`` closes the stream. It is called when the session has ended, when ``may_stay`` returns
    false, and when serving messages has failed. ``may_stay`` is called regularly, and immediately
    when one of ``revoked_topics`` is notified.
    """

    def __init__(
        self,
        pk: int,
        conversation: Conversation,
        end: Callable[[], object],
        *,
        may_stay: Callable[[], bool],
        revoked_topics: Iterable[TopicKey] = (),
    ) -> None:
        self._pk = pk
        self._may_stay = may_stay
        self._conversation = conversation
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._room = _Room()
        # Messages with their sizes, bounded by `_room`.
        self._waiting: asyncio.Queue[tuple[Decoded, int]] = asyncio.Queue()
        self._notified = asyncio.Event()
        self._topics = [TopicKey("", "session", str(pk)), *revoked_topics]
        self._unsubscribe = get_hub().subscribe(self._topics, lambda _: self._notified.set())
        self._tasks = [
            self._loop.create_task(self._serve()),
            self._loop.create_task(self._collect()),
        ]
        for task in self._tasks:
            task.add_done_callback(self._observe)
        _connections.add(pk, self)

    def queue_message(self, message: Decoded, size: int) -> None:
        """Queue a message of so many bytes; thread-safe.

        Raises:
            Busy: too many messages are waiting, or open requests have too many bytes.
        """
        # Notifications and answers always pass, since an open request may wait for them.
        opens = isinstance(message, Request | Batch)
        if opens and self._conversation.open_size + size > _max_size():
            raise _full()
        if not self._room.take(size):
            raise _full()
        self._loop.call_soon_threadsafe(self._waiting.put_nowait, (message, size))

    def close(self) -> None:
        """Stop serving the session."""
        _connections.remove(self._pk)
        self._unsubscribe()
        for task in self._tasks:
            task.cancel()

    def _observe(self, task: asyncio.Task[None]) -> None:
        exc = None if task.cancelled() else task.exception()
        if exc is not None:
            logger.error("Serving an HTTP+SSE connection failed; its stream ends.", exc_info=exc)
            self._end()

    async def _serve(self) -> None:
        while True:
            message, size = await self._waiting.get()
            await self._conversation.process_message(message)
            self._room.give(size)

    async def _collect(self) -> None:
        """Fetch messages that other processes stored, and check that the session may continue."""
        await get_hub().prepare(self._topics)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LIVE_SECONDS, seconds_until_recheck())):
                    await self._notified.wait()
            self._notified.clear()
            try:
                await self._fetch()
                if not await run_in_short_thread(
                    lambda: sessions.mark_seen(self._pk) and self._may_stay()
                ):
                    self._end()
            except DatabaseError:
                # The next notification triggers another attempt.
                logger.warning("Could not check an HTTP+SSE session.", exc_info=True)

    async def _fetch(self) -> None:
        room = 0
        while room < FETCHED and self._room.take():
            room += 1
        if not room:
            return
        try:
            messages = await run_in_short_thread(
                partial(inbox.take_messages, self._pk, [REF], limit=room)
            )
            for message in messages:
                payload = message.payload.encode()
                self._room.add(len(payload))
                self._waiting.put_nowait((jsonrpc.decode(payload), len(payload)))
                room -= 1
            if messages and not room:
                self._notified.set()
        finally:
            for _ in range(room):
                self._room.give()


class _Connections:
    """Connections of this process by the primary key of their session."""

    def __init__(self) -> None:
        self._by_pk: dict[int, _Connection] = {}
        self._lock = threading.Lock()

    def add(self, pk: int, connection: _Connection) -> None:
        """Register the connection of a session."""
        with self._lock:
            self._by_pk[pk] = connection

    def remove(self, pk: int) -> None:
        """Remove the connection of a session."""
        with self._lock:
            self._by_pk.pop(pk, None)

    def queue_message(self, pk: int, message: Decoded, size: int) -> bool:
        """Queue a message if the session's stream is in this process; return whether it is.

        Raises:
            Busy: too many messages are waiting, or open requests have too many bytes.
        """
        with self._lock:
            connection = self._by_pk.get(pk)
        if connection is None:
            return False
        connection.queue_message(message, size)
        return True


_connections = _Connections()
