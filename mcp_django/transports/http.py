"""Streamable HTTP (2026-07-28): from a request to an outcome, for the sync and the async mounts.

``look`` checks the head of a request and ``receive`` parses its body, without touching the
database; ``admit`` finds the caller and the outcome and may use the database, so an async mount
runs it in a thread. None of them runs the site's own functions: that is left to the mount
(``Work``, run by ``transports.answer``) or to a stream (``Stream``).
``Reading`` is for the mounts that read the body themselves, over ASGI.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

from django.core.exceptions import SynchronousOnlyOperation

from mcp_django.auth.credentials import SECRET_HEADERS, carrier
from mcp_django.auth.limits import presumed_caller
from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings
from mcp_django.core.catalog import Server
from mcp_django.exceptions import AccessRefused, Busy, InternalError, MCPError
from mcp_django.execution import call_log
from mcp_django.execution.call import Awaiting, Incoming, Invocation, Listening
from mcp_django.execution.pipeline import WORK_METHODS, dispatch, respond
from mcp_django.execution.policy import admit_connection
from mcp_django.execution.threads import count_for, pool, with_request_signals
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import Drop, Handshake, classify, revision_of
from mcp_django.protocol.jsonrpc import Batch, Failure, Request, request_id_of
from mcp_django.protocol.revisions import LATEST_HANDSHAKE
from mcp_django.transports import answer, legacy_sse, listen, request_checks, site_pages
from mcp_django.transports.exchange import (
    BASE_HEADERS,
    EVENT_STREAM,
    MAX_UNPROVEN_BYTES,
    SSE_HEADERS,
    Exchange,
    HeaderList,
    Message,
    Outcome,
    Reply,
    Stream,
    Work,
    accepted,
    caller_of,
    error_reply,
    is_malformed,
    is_unproven,
    json_reply,
    refusal,
    refused,
    step_up_noted,
)
from mcp_django.transports.http_session import Call
from mcp_django.transports.request_checks import ClientGone, Receive, Scope, Send

logger = logging.getLogger("mcp_django")
T = TypeVar("T")
OutcomeT = TypeVar("OutcomeT", bound=Outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request that was parsed and not yet admitted."""

    server: Server
    exchange: Exchange
    message: Message | None
    """What was posted; ``None`` for the other verbs."""

    @property
    def pool(self) -> Literal["work", "desk"]:
        """The pool of threads that it belongs to."""
        message = self.message
        works = isinstance(message, Batch) or (
            isinstance(message, Request) and message.method in WORK_METHODS
        )
        return "work" if works else "desk"


def look(server: Server, exchange: Exchange) -> Reply | None:
    """The answer to a request that is refused by its head; pure but for the settings."""
    if exchange.endpoint == "health":
        return request_checks.check_host(exchange.headers) or site_pages.check(exchange)
    refused = request_checks.check_head(exchange, server.protocol_versions)
    if refused is None:
        return None
    if exchange.verb == "GET" and refused.status == 405 and site_pages.is_wanted(exchange.headers):
        return site_pages.render_page(server, exchange)
    return _readable(exchange, refused)


def has_to_be_let_in(server: Server, exchange: Exchange, size: int) -> bool:
    """Whether ``refuse`` decides before so much of a body is read; pure but for the settings."""
    is_large = size > MAX_UNPROVEN_BYTES
    return is_malformed(server, exchange) or (is_large and is_unproven(server, exchange))


def refuse(server: Server, exchange: Exchange) -> Reply | None:
    """The answer to a caller who is not let in, whatever the body is; may use the database."""
    received = Received(server=server, exchange=exchange, message=None)
    refused = _answered(received, _let_in)
    return _with_cors(exchange, refused) if isinstance(refused, Reply) else None


def receive(server: Server, exchange: Exchange) -> Reply | Received:
    """Guard and parse a request; pure but for the settings.

    Whoever has read the body has had a ``look`` at the head before.
    """
    if exchange.verb != "POST":
        return look(server, exchange) or Received(server=server, exchange=exchange, message=None)
    refused = _refuse_body(exchange)
    if refused is not None:
        return refused
    message = exchange.message
    if message is None:
        message = jsonrpc.decode(exchange.body)
    return Received(server=server, exchange=exchange, message=message)


def admit(received: Received) -> Outcome:
    """Find out who is calling and what the request comes to; may use the database."""
    if received.exchange.endpoint == "health":
        return site_pages.reply(received.exchange)
    return _with_cors(received.exchange, _answered(received, _admit))


def _refuse_body(exchange: Exchange) -> Reply | None:
    """The answer to a body that is not worth decoding; pure but for the settings."""
    refused = request_checks.check_body(exchange)
    return None if refused is None else _readable(exchange, refused)


def _readable(exchange: Exchange, refused: Reply) -> Reply:
    """A refusal that a page of an allowed origin can read."""
    return replace(refused, headers=(*refused.headers, *request_checks.cors(exchange)))


def _answered(received: Received, work: Callable[[Received], T]) -> T | Reply:
    """What the work comes to, or the answer to what it raised."""
    try:
        return _challenged(received, work)
    except SynchronousOnlyOperation:  # the raw mount then asks again in a thread
        raise
    except Exception:  # a permission or backend of the site's own
        logger.exception("A request could not be admitted.")
        return _broken(received.message)


def _challenged(received: Received, work: Callable[[Received], T]) -> T | Reply:
    try:
        return work(received)
    except AccessRefused as exc:
        return refused(exc, received.server, received.exchange)
    except Busy as exc:
        return error_reply(exc, request_id_of(received.message))


def _broken(message: Message | None) -> Reply:
    """The answer to a bug of ours or the site's: JSON, since a page of HTML would look to a
    client like a server of another revision (VER-21).
    """
    error = InternalError("The request failed for a reason that is no fault of its own.")
    return replace(error_reply(error, request_id_of(message)), status=500)


def _admit(received: Received) -> Outcome:
    principal = _let_in(received)
    with step_up_noted(received.server, received.exchange, principal):
        return _served(received, principal)


def _let_in(received: Received) -> Principal:
    server, exchange = received.server, received.exchange
    with call_log.watched(server, received.message, transport="http") as known:
        server.refresh()
        principal = caller_of(server, exchange)
        known.append(principal)
        count_for(principal.user_key)
        with step_up_noted(server, exchange, principal):
            admit_connection(server, principal)
    return principal


def _served(received: Received, principal: Principal) -> Outcome:
    server, exchange, message = received.server, received.exchange, received.message
    if exchange.endpoint != "mcp":
        return _legacy(received, principal)
    if message is None:
        return _without_message(Call(server, exchange, principal))
    if isinstance(message, Failure):
        return error_reply(message.error, message.id)
    try:
        route = classify(message, exchange.headers, enabled=server.protocol_versions)
    except MCPError as exc:
        agreed = Call(server, exchange, principal).revision()
        call_log.turned_away(
            server, message, exc, transport="http", principal=principal, session=agreed
        )
        return error_reply(exc, request_id_of(message), revision_of(message, agreed))
    if isinstance(route, Handshake):
        return Call(server, exchange, principal).post(message)
    if isinstance(route, Drop) or not isinstance(message, Request):
        return accepted()
    incoming = Incoming(
        server=server,
        request=message,
        envelope=route.envelope,
        principal=principal,
        headers=exchange.headers.without(*SECRET_HEADERS),
        can_stream=exchange.can_stream,
        http_request=carrier(exchange.request, principal),
        transport="http",
        was_let_in=True,
    )
    try:
        return _outcome(incoming, exchange)
    except MCPError as exc:
        return error_reply(exc, incoming.request.id, incoming.revision)


def _legacy(received: Received, principal: Principal) -> Outcome:
    """One of the two endpoints of HTTP+SSE."""
    server, exchange = received.server, received.exchange
    if not legacy_sse.is_spoken(server):
        return refusal(404, "There is no such endpoint here.")
    try:
        if exchange.endpoint == "sse":
            return legacy_sse.open_stream(server, exchange, principal)
        assert received.message is not None  # no other verb came so far
        return legacy_sse.post(server, exchange, received.message, principal)
    except MCPError as exc:
        return error_reply(exc, request_id_of(received.message))


def _without_message(call: Call) -> Outcome:
    try:
        return call.delete() if call.exchange.verb == "DELETE" else call.get()
    except MCPError as exc:
        # Handshake revisions alone have these verbs, and all of them have the same codes here.
        return error_reply(exc, None, LATEST_HANDSHAKE)


def _outcome(incoming: Incoming, exchange: Exchange) -> Outcome:
    outcome = dispatch(incoming)
    if isinstance(outcome, Listening):
        return _listen(outcome, exchange)
    # What is waited for belongs to a session.
    assert not isinstance(outcome, Awaiting)
    if not isinstance(outcome, Invocation):
        return json_reply(200, respond(incoming, outcome))
    call = replace(outcome, cancellation=exchange.cancellation)
    wants_stream = call.wants_stream and exchange.can_stream
    if wants_stream and request_checks.accepts(exchange.headers, EVENT_STREAM):
        return Stream(headers=SSE_HEADERS, open=partial(answer.stream, call))
    return Work(invocation=call, headers=BASE_HEADERS)


def _listen(listening: Listening, exchange: Exchange) -> Outcome:
    if not request_checks.accepts(exchange.headers, EVENT_STREAM):
        return refusal(
            406,
            f"subscriptions/listen answers with {EVENT_STREAM}; accept it.",
            request_id=listening.incoming.request.id,
        )
    place = listen.take_place(listening.incoming.principal, listening.incoming.http_request)
    return Stream(headers=SSE_HEADERS, open=partial(listen.stream, listening, place))


def _with_cors(exchange: Exchange, outcome: OutcomeT) -> OutcomeT:
    """The outcome with the headers that an allowed browser needs."""
    extra: HeaderList = request_checks.cors(exchange)
    if not extra:
        return outcome
    named = {name for name, _ in outcome.headers}
    added = tuple(pair for pair in extra if pair[0] not in named)
    return replace(outcome, headers=(*outcome.headers, *added))


# Reading a request over ASGI ----------------------------------------------------------------------


class Reading:
    """One request, whose ``head`` is the exchange without its body; no more is read than needed.

    A request that is refused by its head is answered with the body unread. More than 64 KiB are
    read only from callers who are authorized, where the head says who they are. A body that does
    not come in time is given up. daphne is the exception: it reads a body whole before it calls an
    application.
    """

    def __init__(self, server: Server, scope: Scope, head: Exchange, receive: Receive) -> None:
        self._server = server
        self._head = head
        self._receive = receive
        # Later versions of HTTP have no such header, and can end a stream alone.
        self._can_close = scope.get("http_version", "1.1").startswith("1")
        self._seconds = get_settings().body_seconds
        self._deadline = asyncio.get_running_loop().time() + self._seconds
        self._parts: list[bytes] = []
        self._size = 0
        self._is_whole = self._is_let_in = self._is_late = False

    async def body(self) -> bytes | Reply:
        """The body of a POST, or the answer to a request that needs no more of it.

        Raises:
            ClientGone: the client closed before the end.
        """
        if self._head.verb != "POST":
            return b""
        refused = look(self._server, self._head)
        if refused is None and self._has_to_be_let_in(request_checks.length_of(self._head.headers)):
            refused = await self._ask()
        try:
            while refused is None and not self._is_whole:
                part = await self._part()
                self._parts.append(part)
                self._size += len(part)
                refused = await self._refused()
        except TimeoutError:
            self._is_late = True
            refused = self._late()
        parts, self._parts = self._parts, []
        return b"".join(parts) if refused is None else refused

    async def _part(self) -> bytes:
        async with asyncio.timeout_at(self._deadline):
            message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        self._is_whole = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part

    async def _refused(self) -> Reply | None:
        """The refusal that what has come is enough for."""
        is_large = self._size > MAX_UNPROVEN_BYTES
        is_form = is_large and request_checks.is_form(self._head.headers)
        if is_form or self._size > get_settings().max_body_bytes:
            refused = _refuse_body(replace(self._head, body=b"".join(self._parts)))
            if refused is not None:
                return refused
        if is_large and not self._is_whole and self._has_to_be_let_in(self._size):
            return await self._ask()
        return None

    def _has_to_be_let_in(self, size: int) -> bool:
        return not self._is_let_in and has_to_be_let_in(self._server, self._head, size)

    async def _ask(self) -> Reply | None:
        work = partial(with_request_signals, partial(refuse, self._server, self._head))
        try:
            refused = await pool("desk").run(work, key=presumed_caller(self._head.headers))
        except Busy as exc:
            return error_reply(exc, None)
        self._is_let_in = refused is None
        return refused

    def _late(self) -> Reply:
        message = f"The body did not come within {self._seconds:g} seconds."
        return _readable(self._head, refusal(408, message))

    def lingering(self, send: Send) -> Send:
        """Send an answer at once, and end it when the client has sent the rest, which is dropped.

        Servers close a connection whose body was not read, and a client that still sends may see a
        reset in place of the answer (RFC 9112, section 9.6). Who was late is not waited for, and
        the connection is closed (RFC 9110, section 15.5.9).
        """

        async def linger(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and self._is_late and self._can_close:
                close = (b"connection", b"close")
                message = {**message, "headers": [*message.get("headers", ()), close]}
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await self._drop_rest()
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        return linger

    async def _drop_rest(self) -> None:
        with suppress(ClientGone, TimeoutError):
            while not self._is_whole and not self._is_late:
                await self._part()
