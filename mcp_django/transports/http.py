"""Streamable HTTP: what all HTTP mounts have in common.

``check_request_head`` checks the head of a request and ``parse_request`` parses its body, without
database queries. ``IncomingHTTPRequest`` serves it in a thread, which may query the database, and
``IncomingOnLoop`` serves it on an event loop, without queries. Neither runs the site's own
functions: the ``Outcome`` that they return runs them, in a thread or on an event loop.
``BodyReader`` reads the request body for the ASGI mounts.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar

from django.core.exceptions import SynchronousOnlyOperation
from django.db import InterfaceError, OperationalError

from mcp_django.auth.authentication import ask_for_caller, caller_key, known_caller
from mcp_django.auth.backends import CallerKey
from mcp_django.auth.credentials import MAX_BEARER
from mcp_django.auth.limits import share_of
from mcp_django.auth.principal import Principal, anonymous_principal
from mcp_django.components.catalog import Catalog, Server
from mcp_django.conf import get_settings
from mcp_django.exceptions import AccessRefused, Busy, InsufficientScope, MCPError
from mcp_django.execution import call_log
from mcp_django.execution.call import Call, ResponseStream
from mcp_django.execution.handlers.subscribed_resources import Subscription
from mcp_django.execution.invoke import run_stepped
from mcp_django.execution.pipeline import WORK_METHODS, IncomingRequest, NeedsThread
from mcp_django.execution.plan import access_to
from mcp_django.execution.policy import admit_caller
from mcp_django.execution.results import encode_response
from mcp_django.execution.threads import (
    count_job_for,
    get_pool,
    has_waited,
)
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import (
    Drop,
    Handshake,
    Route,
    classify,
    classify_request,
    error_revision_of,
)
from mcp_django.protocol.headers import EVENT_STREAM, JSON
from mcp_django.protocol.jsonrpc import (
    Batch,
    DecodingFailure,
    Request,
    request_id_of,
)
from mcp_django.protocol.methods import LIST_METHODS
from mcp_django.protocol.revisions import LATEST_HANDSHAKE
from mcp_django.storage.sessions import SessionKey, SessionRecord, session_cache
from mcp_django.tenants import TenantUnavailable
from mcp_django.transports import answer, legacy_sse, request_checks, site_pages, subscriptions
from mcp_django.transports.exchange import (
    MAX_UNVERIFIED_BYTES,
    Exchange,
    Message,
    accepted,
    authenticate_exchange,
    challenge_reply,
    credentials_of,
    error_reply,
    has_malformed_credential,
    internal_error_reply,
    is_caller_unverified,
    json_reply,
    jsonrpc_error_reply,
    record_step_up,
)
from mcp_django.transports.http_session import (
    SessionRequest,
    answer_in_session,
    named_session,
)
from mcp_django.transports.outcome import (
    BASE_HEADERS,
    SSE_HEADERS,
    HeaderList,
    Outcome,
    Reply,
    RequestRefused,
    Send,
    Stream,
)
from mcp_django.transports.request_checks import (
    MAX_INLINE_BYTES,
    ClientDisconnected,
    Receive,
    Scope,
    end_connection,
)

logger = logging.getLogger("mcp_django")
OutcomeT = TypeVar("OutcomeT", bound=Outcome)


def pool_of(message: Message | None, exchange: Exchange) -> Literal["tool", "short"]:
    """Return the pool for a request: "tool" if functions of the site may run, else "short"."""
    if exchange.endpoint != "mcp":
        # A message that is posted for an HTTP+SSE stream is only passed on to the stream.
        return "short"
    works = isinstance(message, Batch) or (
        isinstance(message, Request) and message.method in WORK_METHODS
    )
    return "tool" if works else "short"


def check_request_head(server: Server, exchange: Exchange) -> Reply | None:
    """Return the reply to a request that is rejected by its head, else ``None``.

    It depends only on its arguments and the settings, and runs no database query.
    """
    if exchange.endpoint == "health":
        return request_checks.check_host(exchange.headers) or site_pages.check_health_request(
            exchange
        )
    refused = request_checks.check_head(exchange, server.protocol_versions)
    if refused is None:
        return None
    if (
        exchange.verb == "GET"
        and refused.status == 405
        and site_pages.is_browser_request(exchange.headers)
    ):
        return site_pages.render_page(server, exchange)
    return readable_reply(exchange, refused)


def needs_authorization_first(server: Server, exchange: Exchange, size: int) -> bool:
    """Return whether the caller has to be authorized before ``size`` bytes of the body are read.

    It depends only on its arguments and the settings, and runs no database query.
    """
    is_large = size > MAX_UNVERIFIED_BYTES
    if not is_large and "authorization" not in exchange.headers and not exchange.query:
        return False
    return has_malformed_credential(server, exchange) or (
        is_large and is_caller_unverified(server, exchange)
    )


def reject_unauthorized(server: Server, exchange: Exchange) -> Reply | None:
    """Return the reply to an unauthorized caller, whatever the body; may query the database."""
    request = IncomingHTTPRequest(server, exchange, None)
    try:
        request.authorize()
    except SynchronousOnlyOperation:
        raise
    except Exception as exc:  # noqa: BLE001 - also from the site's own permission or backend
        return request.reject(exc)
    return None


def parse_request(server: Server, exchange: Exchange) -> Message | None:
    """Check a request and return its message, ``None`` for methods other than POST.

    It depends only on its arguments and the settings, and runs no database query. For a POST, the
    mount has already checked the head with ``check_request_head``.

    Raises:
        RequestRefused: the request is rejected by its head or its body.
    """
    refused = None
    if exchange.verb != "POST":
        refused = check_request_head(server, exchange)
    elif not exchange.is_usual or len(exchange.body) > get_settings().max_body_bytes:
        refused = _refuse_body(exchange)
    if refused is not None:
        raise RequestRefused(refused)
    if exchange.verb != "POST":
        return None
    return exchange.message or jsonrpc.decode(exchange.body)


def _refuse_body(exchange: Exchange) -> Reply | None:
    """Return the reply to a body that is rejected before it is decoded, else ``None``."""
    refused = request_checks.check_body(exchange)
    return None if refused is None else readable_reply(exchange, refused)


def readable_reply(exchange: Exchange, refused: Reply) -> Reply:
    """Add the CORS headers that let a page of an allowed origin read the error reply."""
    return replace(refused, headers=(*refused.headers, *request_checks.cors_headers(exchange)))


# Serving a request --------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class IncomingHTTPRequest(IncomingRequest[Outcome]):
    """A request over HTTP, served in a thread, which may query the database.

    ``message`` is what was posted, ``None`` for methods other than POST.
    """

    server: Server
    exchange: Exchange
    message: Message | None
    catalog: Catalog | None = None
    principal: Principal | None = None
    """The caller, once authenticated."""

    def serve_in_thread(self, prepared: Call | None = None) -> Outcome:
        """Serve the request in this thread; a page of an allowed origin may read the answer."""
        exchange = self.exchange
        if exchange.endpoint == "health":
            return site_pages.health_reply(self.server, exchange)
        if prepared is not None and (
            has_waited() or prepared.catalog is not self.server.fresh_catalog()
        ):
            # The caller may have lost its access while the request waited for this thread.
            prepared = None
        return with_cors(exchange, self.serve(prepared))

    def authorize(self) -> Principal:
        """Authenticate the caller and check that it may connect.

        Raises:
            AccessRefused: the credentials are invalid, or the caller may not connect.
            Busy: the overrides or the caller cannot be looked up now.
        """
        self.principal = None

        def find() -> Principal:
            self.principal = principal = authenticate_exchange(self.server, self.exchange)
            count_job_for(share_of(principal, self.exchange.find_source))
            return principal

        try:
            principal = admit_caller(self.server, find)
        except (AccessRefused, Busy) as exc:
            call_log.log_rejected(
                self.server, self.message, exc, transport="http", principal=self.principal
            )
            raise
        self.catalog = self.server.catalog
        return principal

    def open(self, principal: Principal) -> Call | Outcome:
        """Return the call of a request, or the outcome of another message."""
        exchange, message = self.exchange, self.message
        if exchange.carry_caller is not None:
            exchange.received_request = exchange.carry_caller(principal)
        if exchange.endpoint != "mcp":
            return _legacy(self.server, exchange, message, principal)
        if message is None:
            return _without_message(self._session_request(principal))
        if isinstance(message, DecodingFailure):
            return error_reply(message.error, message.id)
        try:
            versions = get_settings().protocol_versions
            route: Route
            if isinstance(message, Request):
                route = classify_request(message, exchange.headers, enabled=versions)
            else:
                route = classify(message, exchange.headers, enabled=versions)
        except MCPError as exc:
            session_revision = self._session_request(principal).revision()
            call_log.log_rejected(
                self.server,
                message,
                exc,
                transport="http",
                principal=principal,
                session_revision=session_revision,
            )
            revision = error_revision_of(message, session_revision)
            return error_reply(exc, request_id_of(message), revision)
        if isinstance(route, Handshake):
            is_call = isinstance(message, Request) and message.method != "initialize"
            if self.is_on_loop and not is_call:
                # It may change the session.
                raise NeedsThread
            return self._session_request(principal).open(message)
        if isinstance(route, Drop) or not isinstance(message, Request):
            return accepted()
        call = self.call(exchange, message, route.envelope, principal)
        call.name, call.cancellation = route.name or "", exchange.cancellation
        return call

    def _session_request(self, principal: Principal) -> SessionRequest:
        return SessionRequest(self.server, self.exchange, principal, self.call, self.fetch)

    def fetch(self, key: SessionKey) -> SessionRecord | None:
        """Return a session, or ``None`` if there is none."""
        return session_cache.fetch(key)

    def answer(self, call: Call) -> Outcome:
        """Return the answer to an admitted call, or the outcome that produces it."""
        if call.session is not None:
            return answer_in_session(call)
        if isinstance(call.result, Subscription):
            if not request_checks.accepts(self.exchange.headers, EVENT_STREAM):
                return jsonrpc_error_reply(
                    406,
                    f"subscriptions/listen answers with {EVENT_STREAM}; add it to the Accept "
                    "header.",
                    request_id=call.request.id,
                )
            # The stream keeps only what was selected from the parameters.
            call.request = Request(call.request.id, call.request.method)
            self.exchange.release_body()
            slot = subscriptions.acquire_listen_slot(call)
            call.stream = ResponseStream(has_begun=True)
            return Stream(
                headers=SSE_HEADERS, open=partial(subscriptions.subscription_events, call, slot)
            )
        if call.result is not None:
            # Only a request in a session waits for a task.
            assert isinstance(call.result, dict)
            return json_reply(200, encode_response(call, call.result))
        component, exchange = call.component, self.exchange
        may_send = component.slow or component.function.context_parameter is not None
        can_stream = may_send and call.wants_stream and exchange.can_stream
        if can_stream and request_checks.accepts(exchange.headers, EVENT_STREAM):
            call.stream = ResponseStream()
            # A slow call would only wait longer for its first byte.
            may_wait = not component.slow and request_checks.accepts(exchange.headers, JSON)
            begin = partial(answer.stream_or_reply, call) if may_wait else None
            return Stream(headers=SSE_HEADERS, open=partial(answer.stream, call), begin=begin)
        return answer.Work(call=call, headers=BASE_HEADERS)

    def reject(self, exc: Exception) -> Reply:
        """Return the reply to a request that was rejected elsewhere, or before it was served."""
        return with_cors(self.exchange, self._refusal(exc, None))

    def refuse(self, exc: Exception, call: Call | None) -> Reply | None:
        """Return the reply to a caller who is rejected, or to an unexpected exception."""
        if isinstance(exc, (NeedsThread, SynchronousOnlyOperation)):
            return None
        return exc.reply if isinstance(exc, RequestRefused) else self._refusal(exc, call)

    def _refusal(self, exc: Exception, call: Call | None) -> Reply:
        if call is not None and isinstance(exc, MCPError):
            return error_reply(exc, call.request.id, call.revision)
        principal = self.principal if call is None else call.principal
        try:
            if isinstance(exc, InsufficientScope) and principal is not None:
                record_step_up(self.server, self.exchange, principal, exc)
            if isinstance(exc, AccessRefused):
                return challenge_reply(exc, self.server, self.exchange)
            if isinstance(exc, (InterfaceError, OperationalError)):
                logger.warning("A request could not be authorized (%s).", exc)
                exc = Busy("The database is unavailable; try again in a moment.")
            if isinstance(exc, Busy):
                return error_reply(exc, request_id_of(self.message))
        except Exception as failure:  # noqa: BLE001 - logged below
            exc = failure
        logger.error("Authorizing a request failed.", exc_info=exc)
        return internal_error_reply(request_id_of(self.message))


@dataclass(eq=False, repr=False)
class IncomingOnLoop(IncomingHTTPRequest):
    """A request over HTTP, served on an event loop, without database queries and without a thread.

    That is possible if the catalog is current, the plan of the called component needs no thread,
    and the session and the caller of the request are known. A request without credentials has a
    known caller if the server is open to all and no component has a permission. Otherwise ``serve``
    raises ``NeedsThread``.
    """

    is_on_loop = True
    answers: dict[Any, Any] = field(default_factory=dict)
    """The callers and sessions that were looked up, by their keys. They may be missing in the
    caches, for example if this process is not registered yet."""

    async def ask(self, key: CallerKey | SessionKey) -> bool:
        """Look up a caller or session, together with those of other requests.

        Return whether it is known now.

        Raises:
            Exception: the query failed.
        """
        if isinstance(key, SessionKey):
            self.answers[key] = await session_cache.afetch(key)
        else:
            self.answers[key] = await ask_for_caller(key, self.exchange.headers)
        return self.answers[key] is not None

    def authorize(self) -> Principal:
        """Return the caller, if it is known and may connect.

        Raises:
            NeedsThread: the caller may not connect, or has to be looked up first.
        """
        server, exchange, message = self.server, self.exchange, self.message
        lines = exchange.headers.lines
        if (
            exchange.endpoint != "mcp"
            or exchange.query
            or len(exchange.body) > MAX_INLINE_BYTES
            or message is None
            # The user of a session cookie is in the database.
            or b"cookie" in lines
        ):
            raise NeedsThread
        is_list = isinstance(message, Request) and message.method in LIST_METHODS
        self.catalog = catalog = server.fresh_catalog(is_list=is_list)
        if catalog is None:
            raise NeedsThread
        access = access_to(server, catalog)
        if b"authorization" not in lines:
            if not access.is_open:
                raise NeedsThread
            self.principal = anonymous_principal(may_sign_in=access.may_sign_in)
            return self.principal
        if not access.needs_only_accounts:
            raise NeedsThread
        try:
            key = caller_key(access.backends, credentials_of(server, exchange))
            principal = None
            if key is not None:
                principal = self.answers.get(key) or known_caller(key)
            if key is None or principal is None:
                raise NeedsThread(unknown=key)
            access.authorize(server, key, principal)
        except AccessRefused:
            raise NeedsThread from None
        self.principal = principal
        return principal

    def fetch(self, key: SessionKey) -> SessionRecord | None:
        """Return a session that is known."""
        record = self.answers.get(key) or session_cache.get(key)
        if record is None:
            raise NeedsThread(unknown=key)
        return record

    def refuse(self, exc: Exception, call: Call | None) -> Reply | None:
        """Return the reply to an unexpected exception; a rejected caller needs a thread."""
        if isinstance(exc, AccessRefused):
            raise NeedsThread(refused=exc) from exc
        return super().refuse(exc, call)


async def ask_ahead(server: Server, exchange: Exchange) -> None:
    """Look up caller and session of a request that waits for a thread, with those of others.

    The thread then finds both in the caches. If this lookup fails, the thread repeats it and
    reports the error.
    """
    try:
        principal: Principal | None = anonymous_principal()
        if b"authorization" in exchange.headers.lines:
            key = caller_key(server.auth, credentials_of(server, exchange))
            if key is None:
                return
            principal = known_caller(key) or await ask_for_caller(key, exchange.headers)
        if principal is not None:
            session = named_session(server, exchange, principal)
            if session is not None:
                await session_cache.afetch(session)
    except Exception as exc:  # noqa: BLE001 - also of the database
        logger.debug("A caller could not be asked for ahead (%s).", type(exc).__name__)


def _legacy(
    server: Server, exchange: Exchange, message: Message | None, principal: Principal
) -> Outcome:
    """Return the outcome of a request to one of the two endpoints of HTTP+SSE."""
    if not legacy_sse.is_supported(server):
        return jsonrpc_error_reply(
            404, "This server does not support HTTP+SSE; use Streamable HTTP."
        )
    try:
        if exchange.endpoint == "sse":
            return legacy_sse.open_stream(server, exchange, principal)
        assert message is not None  # other methods were rejected before
        return legacy_sse.accept_post(server, exchange, message, principal)
    except MCPError as exc:
        return error_reply(exc, request_id_of(message))


def _without_message(call: SessionRequest) -> Outcome:
    try:
        return call.delete() if call.exchange.verb == "DELETE" else call.get()
    except MCPError as exc:
        # Only handshake revisions use these methods, and all of them have the same error codes.
        return error_reply(exc, None, LATEST_HANDSHAKE)


def with_cors(exchange: Exchange, outcome: OutcomeT) -> OutcomeT:
    """Add the CORS headers that a browser page of an allowed origin needs."""
    if b"origin" not in exchange.headers.lines:
        return outcome
    extra: HeaderList = request_checks.cors_headers(exchange)
    return outcome.with_headers(extra) if extra else outcome  # type: ignore[return-value]


# Reading a request over ASGI ----------------------------------------------------------------------

POST_ENDPOINTS = ("mcp", "messages")
# A header whose token is well-formed, as far as that can be checked without a lookup.
PLAIN_BEARER = re.compile(rb"Bearer [\x21-\x7e]{1,%d}" % MAX_BEARER)


@dataclass(slots=True, eq=False, repr=False)
class BodyReader:
    """Reads the body of one request, and no more than needed.

    A request that is rejected by its head is answered without reading the body. More than 64 KiB
    are read only from authorized callers, if the head identifies the caller. A body that does not
    arrive in time is answered with 408. daphne is an exception: it reads the whole body before it
    calls the application.
    """

    server: Server
    scope: Scope
    exchange: Exchange
    receive: Receive
    may_ask: bool = True
    """Whether the caller can be authorized here, although the site's middleware has not run."""
    _deadline: float | None = None
    _is_whole: bool = False
    _is_authorized: bool = False
    _is_late: bool = False

    async def read(self) -> Reply | None:
        """Read the body of a POST; return the reply to a request that is rejected without it.

        Raises:
            ClientDisconnected: the client disconnected before the body was complete.
        """
        exchange, headers = self.exchange, self.exchange.headers
        if exchange.verb != "POST":
            return None
        most = min(get_settings().max_body_bytes, MAX_UNVERIFIED_BYTES)
        refused = None
        if exchange.endpoint in POST_ENDPOINTS:
            exchange.is_usual = request_checks.has_usual_head(headers, most)
        if not exchange.is_usual:
            refused = check_request_head(self.server, exchange)
        presented = headers.lines.get(b"authorization", b"")
        is_plain = presented == b"" or (
            isinstance(presented, bytes) and PLAIN_BEARER.fullmatch(presented) is not None
        )
        is_known = exchange.is_usual and is_plain and not exchange.query
        if refused is None and self.may_ask and not is_known:
            length = request_checks.declared_length(headers)
            if needs_authorization_first(self.server, exchange, length):
                refused = await self._authorize()
        parts: list[bytes] = []
        size = 0
        try:
            while refused is None and not self._is_whole:
                parts.append(await self._part())
                size += len(parts[-1])
                if size > most:
                    refused = await self._rejection(parts, size)
        except TimeoutError:
            self._is_late = True
            seconds = get_settings().body_seconds
            late = f"The body was not received within {seconds:g} seconds."
            refused = readable_reply(exchange, jsonrpc_error_reply(408, late))
        exchange.body, exchange.django_request = b"".join(parts), None
        return refused

    async def _part(self) -> bytes:
        message = await run_stepped(self.receive(), self._until_deadline)
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        self._is_whole = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part

    def _until_deadline(self) -> asyncio.Timeout:
        """Return the timer of the whole body, which starts when the first part is awaited."""
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + get_settings().body_seconds
        return asyncio.timeout_at(self._deadline)

    async def _rejection(self, parts: Sequence[bytes], size: int) -> Reply | None:
        """Return the reply if what was read so far is enough to reject the request."""
        exchange = self.exchange
        is_large = size > MAX_UNVERIFIED_BYTES
        is_form = is_large and request_checks.is_form(exchange.headers)
        if is_form or size > get_settings().max_body_bytes:
            # Joined only here: a body may come in very many parts.
            exchange.body = b"".join(parts)
            refused = _refuse_body(exchange)
            if refused is not None:
                return refused
        if not is_large or self._is_whole or self._is_authorized:
            return None
        if self.may_ask and needs_authorization_first(self.server, exchange, size):
            return await self._authorize()
        return None

    async def _authorize(self) -> Reply | None:
        exchange = self.exchange
        # Before the body is complete, nothing may be read from it.
        head = replace(exchange, body=b"", django_request=None)
        work = partial(reject_unauthorized, self.server, head)
        try:
            refused = await get_pool("short").run(work, key=exchange.presumed_share())
        except Busy as exc:
            return error_reply(exc, None)
        except TenantUnavailable:
            return internal_error_reply(None)
        self._is_authorized = refused is None
        return refused

    def wrap_send(self, send: Send) -> Send:
        """Wrap ``send`` so that the reply ends only when the rest of the body was read and dropped.

        The reply itself is sent immediately. Servers close a connection whose body was not read,
        and a client that is still sending may see a reset instead of the reply (RFC 9112, section
        9.6). After a timeout the rest is not read and the connection is closed (RFC 9110, section
        15.5.9). It is also closed if it is unclear where the body ends (RFC 9112, section 6.1).
        """

        async def linger(message: MutableMapping[str, Any]) -> None:
            is_closing = self._is_late or request_checks.has_two_lengths(self.exchange.headers)
            if message["type"] == "http.response.start" and is_closing:
                message = end_connection(self.scope, message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                await send({**message, "more_body": True})
                with suppress(ClientDisconnected, TimeoutError):
                    while not self._is_whole and not self._is_late:
                        await self._part()
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        return linger
