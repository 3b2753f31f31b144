"""HTTP+SSE, the transport of 2024-11-05: one stream for all answers, and POSTs that only say 202.

The stream is the session. A POST may reach another process than the one that has the stream; then
it is put into the inbox, and the process of the stream serves it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from urllib.parse import parse_qs

from mcp_django.auth.authentication import refresh
from mcp_django.auth.limits import network_of
from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings
from mcp_django.core.catalog import Server
from mcp_django.exceptions import AccessRefused, AuthenticationRequired
from mcp_django.protocol import jsonrpc, sse
from mcp_django.protocol.jsonrpc import Failure
from mcp_django.protocol.revisions import V2024_11_05
from mcp_django.runtime.policy import admit_connection
from mcp_django.runtime.throttling import spend_session
from mcp_django.store import sessions
from mcp_django.store.revocations import topics_of
from mcp_django.transports import drain, guards, legacy_connections, watch
from mcp_django.transports.conversation import Conversation
from mcp_django.transports.desk import at_desk
from mcp_django.transports.exchange import (
    EVENT_STREAM,
    Exchange,
    Message,
    Outcome,
    Reply,
    Stream,
)
from mcp_django.transports.legacy_connections import Connection, connections
from mcp_django.transports.listen import Place, take_place
from mcp_django.transports.replies import SSE_HEADERS, accepted, error_reply, refusal

SESSION = "session_id"
# What is said to a client that does not read, before whoever says it has to wait.
MAX_SAID = 256


def is_spoken(server: Server) -> bool:
    """Whether the server speaks a revision that this transport carries."""
    return V2024_11_05.version in server.protocol_versions


def open_stream(server: Server, exchange: Exchange, principal: Principal) -> Outcome:
    """The stream of a new session, which begins with the address to post to (SSE-2).

    Raises:
        TooManyRequests: too many sessions were opened from the caller's address.
        TooManySessions: callers without credentials have as many together as they may.
        TooManyStreams: the caller has as many open as one may.
    """
    if not exchange.can_stream:
        return refusal(405, "There are no streams here; this site is served over WSGI.")
    if not guards.accepts(exchange.headers, EVENT_STREAM):
        return refusal(406, f"This answers with {EVENT_STREAM}; accept it.")
    network = network_of(principal, exchange.request)
    spend_session(network)
    place = take_place(principal, exchange.request)
    row, plaintext = sessions.begin(
        _namespace(server),
        principal.key,
        user=principal.user if principal.is_authenticated else None,
        protocol_version=V2024_11_05.version,
        client_info={},
        capabilities={},
        network=network,
    )
    endpoint = f"{_relative(exchange.path)}?{SESSION}={plaintext}"
    return Stream(
        headers=SSE_HEADERS,
        open=lambda: _events(server, principal, row.pk, endpoint, place),
    )


def post(server: Server, exchange: Exchange, message: Message, principal: Principal) -> Reply:
    """Take a message for the process that has the session's stream (SSE-3, SSE-5, SSE-7).

    Raises:
        Busy: too many are waiting already.
    """
    if isinstance(message, Failure):
        return error_reply(message.error, message.id)
    named = parse_qs(exchange.query).get(SESSION, [""])
    row = sessions.find(named[0], server=_namespace(server), principal=principal.key)
    if row is None:
        return refusal(
            404,
            "There is no such session; open the stream again.",
            request_id=jsonrpc.request_id_of(message),
        )
    if not connections.give(row.pk, message):
        legacy_connections.send_elsewhere(row.pk, exchange.body)
    return accepted()


def _namespace(server: Server) -> str:
    """Ids of these sessions mean nothing to Streamable HTTP, and the other way round."""
    return f"{server.name}/sse"


def _relative(path: str) -> str:
    """The address to post to, as seen from the stream's own: prefixes of proxies do not matter."""
    mount, _, last = path.rpartition("/")
    if last == "sse":
        return "messages"
    if not last and mount.endswith("/sse"):
        return "../messages"
    return f"{last}/messages" if last else "messages"


class _Caller:
    """The caller as the stream was opened, looked at anew for each message."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal

    def may_stay(self, server: Server) -> bool:
        """Whether the caller would be let in again (SUB-16)."""
        # Its owner may have switched the server off.
        server.refresh()
        try:
            admit_connection(server, self.principal())
        except AccessRefused:
            return False
        return True

    def principal(self) -> Principal:
        current = refresh(self._principal)
        if current is None:
            raise AuthenticationRequired("The token is revoked.", error="invalid_token")
        return current


async def _events(
    server: Server, principal: Principal, pk: int, endpoint: str, place: Place
) -> AsyncGenerator[bytes, None]:
    """All messages for the client, until it leaves or the session ends (SSE-9)."""
    said: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_SAID)

    def end() -> None:
        # A client that does not read is not to stay for that; it misses what was said last to it.
        if said.full():
            said.get_nowait()
        said.put_nowait(None)

    # Requests with an envelope are not defined here (SSE-6).
    caller = _Caller(principal)
    conversation = Conversation(
        server, caller, send=said.put, end=end, is_stateless_spoken=False, transport="sse"
    )
    may_stay = partial(caller.may_stay, server)
    departures = topics_of(principal.credential, principal.user)
    connection = Connection(pk, conversation, end, may_stay=may_stay, departures=departures)
    expiry = _at_expiry(principal, end)
    try:
        yield sse.encode_event(endpoint.encode(), event="endpoint")
        with drain.idle(end):
            while (body := await _next(said)) is not None:
                yield sse.encode_event(body.rstrip(b"\n")) if body else sse.COMMENT
    finally:
        conversation.end_subscriptions()
        conversation.cancel_all()
        connection.close()
        if expiry is not None:
            expiry.cancel()
        place.give_back()
        await asyncio.shield(at_desk(partial(sessions.end_all, [pk])))


def _at_expiry(principal: Principal, end: Callable[[], None]) -> asyncio.TimerHandle | None:
    """What ends the stream with its credential, if that ever ends."""
    left = watch.seconds_left(principal)
    return None if left is None else asyncio.get_running_loop().call_later(left, end)


async def _next(said: asyncio.Queue[bytes | None]) -> bytes | None:
    """The next message; nothing for a sign of life, ``None`` for the end."""
    try:
        async with asyncio.timeout(get_settings().keepalive_seconds):
            return await said.get()
    except TimeoutError:
        return b""
