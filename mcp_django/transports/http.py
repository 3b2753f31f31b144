"""Streamable HTTP: the sync core shared by the sync and async HTTP mounts.

``check_request_head`` checks the head of a request and ``parse_request`` parses its body, without
database queries. ``serve_in_thread`` admits the caller and the request and may query the database;
``serve_on_loop`` does the same where nothing has to be asked. Neither runs the site's own
functions: the ``Outcome`` that they return does, where it belongs. ``BodyReader`` reads the request
body for the ASGI mounts.
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
from mcp_django.execution.pipeline import WORK_METHODS, admit, runs_on_loop
from mcp_django.execution.plan import access_to
from mcp_django.execution.policy import admit_caller
from mcp_django.execution.results import encode_response
from mcp_django.execution.threads import (
    count_job_for,
    get_pool,
    has_waited,
    run_with_request_signals,
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
    Notification,
    Request,
    Response,
    request_id_of,
)
from mcp_django.protocol.methods import LIST_METHODS
from mcp_django.protocol.revisions import LATEST_HANDSHAKE
from mcp_django.storage.sessions import SessionKey, StoredSession, session_cache
from mcp_django.tenants import thread_context
from mcp_django.transports import answer, legacy_sse, listen, request_checks, site_pages
from mcp_django.transports.exchange import (
    MAX_UNVERIFIED_BYTES,
    Exchange,
    Message,
    accepted,
    authenticate_exchange,
    challenge_reply,
    confirm_caller,
    credentials_of,
    error_reply,
    has_malformed_credential,
    internal_error_reply,
    is_caller_unverified,
    json_reply,
    jsonrpc_error_reply,
    record_step_up,
)
from mcp_django.transports.http_session import NeedsThread, SessionRequest
from mcp_django.transports.outcome import (
    BASE_HEADERS,
    SSE_HEADERS,
    HeaderList,
    Outcome,
    Reply,
    RequestRefused,
    Stream,
)
from mcp_django.transports.request_checks import (
    MAX_INLINE_BYTES,
    ClientDisconnected,
    Receive,
    Scope,
    Send,
    end_connection,
)

logger = logging.getLogger("mcp_django")
OutcomeT = TypeVar("OutcomeT", bound=Outcome)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ParsedRequest:
    """A request that is parsed but not yet authorized."""

    server: Server
    exchange: Exchange
    message: Message | None
    """The posted message; ``None`` for methods other than POST."""
    catalog: Catalog | None = None
    """The components, as of when the caller was authorized."""
    principal: Principal | None = None
    """The caller, once authenticated."""
    call: Call | None = None
    """The call, if it was found on the event loop and is to be admitted in a thread."""
    unknown: CallerKey | SessionKey | None = None
    """The key of the caller or session that has to be asked for first."""
    answers: dict[Any, Any] = field(default_factory=dict)
    """The callers and sessions that were asked for, by their keys."""
    refused: AccessRefused | None = None
    """The error of a call that was rejected on the event loop, and is to be answered in a thread,
    which may record it."""

    @property
    def pool(self) -> Literal["tool", "short"]:
        """The name of the thread pool that serves the request."""
        return pool_of(self.message, self.exchange)


def pool_of(message: Message | None, exchange: Exchange) -> Literal["tool", "short"]:
    """Return the name of the thread pool for a request, in which functions of the site may run."""
    if exchange.endpoint != "mcp":
        # What is posted to a stream of HTTP+SSE is only passed on.
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
    received = ParsedRequest(server=server, exchange=exchange, message=None)
    try:
        _authorize_caller(received)
    except SynchronousOnlyOperation:
        raise
    except Exception as exc:  # noqa: BLE001 - also from the site's own permission or backend
        return _with_cors(exchange, _refusal(received, exc))
    return None


def parse_request(server: Server, exchange: Exchange) -> ParsedRequest:
    """Check and parse a request.

    It depends only on its arguments and the settings, and runs no database query. For a POST, the
    mount has already checked the head with ``check_request_head``.

    Raises:
        RequestRefused: the request is rejected by its head or its body.
    """
    message, refused = None, None
    if exchange.verb != "POST":
        refused = check_request_head(server, exchange)
    elif not exchange.is_usual or len(exchange.body) > get_settings().max_body_bytes:
        refused = _refuse_body(exchange)
    if refused is not None:
        raise RequestRefused(refused)
    if exchange.verb == "POST":
        message = exchange.message or jsonrpc.decode(exchange.body)
    return ParsedRequest(server=server, exchange=exchange, message=message)


def serve_in_thread(received: ParsedRequest) -> Outcome:
    """Authorize the caller and admit the request; may query the database."""
    outcome: Outcome
    if received.exchange.endpoint == "health":
        return site_pages.health_reply(received.server, received.exchange)
    try:
        outcome = _admit_in_thread(received)
    except SynchronousOnlyOperation:
        raise
    except RequestRefused as exc:
        outcome = exc.reply
    except Exception as exc:  # noqa: BLE001 - also from the site's own permission or backend
        outcome = _refusal(received, exc)
    return _with_cors(received.exchange, outcome)


async def ask_and_serve(received: ParsedRequest) -> Outcome | None:
    """Ask for what ``serve_on_loop`` did not know, and serve the request after that.

    ``None`` if the request has to be served in a thread, unless something else is unknown now.
    """
    key, received.unknown = received.unknown, None
    found: Any
    try:
        if isinstance(key, SessionKey):
            found = await session_cache.afetch(key)
        else:
            assert key is not None
            found = await ask_for_caller(key, received.exchange.headers)
    except Exception as exc:  # noqa: BLE001 - of the database
        return _refusal(received, exc)
    if found is None:
        return None
    # It need not be in the cache, for example if this process is not registered yet.
    received.answers[key] = found
    return serve_on_loop(received)


async def ask_ahead(server: Server, exchange: Exchange) -> None:
    """Ask for caller and session of a request that waits for a thread, with those of others.

    The thread then knows them already, and reports what is wrong with them.
    """
    try:
        principal: Principal | None = anonymous_principal()
        if b"authorization" in exchange.headers.lines:
            key = caller_key(server.auth, credentials_of(server, exchange))
            if key is None:
                return
            principal = known_caller(key) or await ask_for_caller(key, exchange.headers)
        if principal is not None:
            session = SessionRequest(server, exchange, principal).session_key
            if session is not None:
                await session_cache.afetch(session)
    except Exception as exc:  # noqa: BLE001 - also of the database
        logger.debug("A caller could not be asked for ahead (%s).", type(exc).__name__)


def serve_on_loop(received: ParsedRequest) -> Outcome | None:
    """Authorize and admit a request on an event loop; ``None`` if it has to be done in a thread.

    Which of both is decided beforehand: on the loop if nothing has to be looked up. That is so if
    the catalog is current, the plan of the called component needs no thread, the session of the
    request is known, and the caller as well, or it has no credentials, the server is open to all
    and no component has a permission. ``received`` keeps what is known for the thread, and what
    has to be asked for.
    """
    server, exchange, message = received.server, received.exchange, received.message
    lines = exchange.headers.lines
    if (
        exchange.endpoint != "mcp"
        or exchange.query
        or len(exchange.body) > MAX_INLINE_BYTES
        or message is None
        # The database knows whose it is.
        or b"cookie" in lines
    ):
        return None
    is_list = isinstance(message, Request) and message.method in LIST_METHODS
    catalog = received.catalog = server.fresh_catalog(is_list=is_list)
    if catalog is None:
        return None
    try:
        received.principal = principal = _principal_on_loop(received, catalog)
        outcome = _outcome_on_loop(received, principal)
    except (NeedsThread, SynchronousOnlyOperation):
        # Or the site's own code used the database, for example to validate an argument.
        return None
    except AccessRefused as exc:
        received.refused = exc
        return None
    except RequestRefused as exc:
        outcome = exc.reply
    except Exception as exc:  # noqa: BLE001 - also from the site's own code
        outcome = _refusal(received, exc)
    return outcome if b"origin" not in lines else _with_cors(exchange, outcome)


def _principal_on_loop(received: ParsedRequest, catalog: Catalog) -> Principal:
    """Return the caller, if it is known and may connect.

    Raises:
        NeedsThread: that has to be decided in a thread, or the request is rejected.
    """
    server, exchange = received.server, received.exchange
    principal: Principal | None = None
    access = access_to(server, catalog)
    if b"authorization" not in exchange.headers.lines:
        if access.is_open:
            principal = anonymous_principal(may_sign_in=access.may_sign_in)
    elif access.needs_only_accounts:
        try:
            key = caller_key(access.backends, credentials_of(server, exchange))
            if key is not None:
                principal = received.answers.get(key) or known_caller(key)
            if principal is None or key is None:
                received.unknown = key
            else:
                access.authorize(server, key, principal)
        except AccessRefused:
            raise NeedsThread from None
    if principal is None:
        raise NeedsThread
    return principal


def _outcome_on_loop(received: ParsedRequest, principal: Principal) -> Outcome:
    """Return the outcome of a request whose caller is known.

    Raises:
        NeedsThread: it has to be served in a thread.
    """
    exchange, message = received.exchange, received.message
    has_session = b"mcp-session-id" in exchange.headers.lines
    if has_session and not isinstance(message, Request):
        raise NeedsThread
    found = _route(received)
    if isinstance(found, Call):
        if not runs_on_loop(found):
            received.call = found
            raise NeedsThread
        return _admitted(found, exchange)
    if not isinstance(found, Handshake):
        return found
    if not has_session or not isinstance(message, Request) or message.method == "initialize":
        raise NeedsThread
    request = SessionRequest(received.server, exchange, principal)
    received.unknown = key = request.session_key
    record = None
    if key is not None:
        record = received.answers.get(key) or session_cache.get(key)
    if record is None:
        raise NeedsThread
    received.unknown = None
    assert received.catalog is not None
    return request.post_on_loop(message, received.catalog, StoredSession(record))


def _refusal(received: ParsedRequest, exc: Exception) -> Reply:
    """Return the reply to a caller who is rejected, or to an unexpected exception."""
    try:
        if isinstance(exc, InsufficientScope) and received.principal is not None:
            record_step_up(received.server, received.exchange, received.principal, exc)
        if isinstance(exc, AccessRefused):
            return challenge_reply(exc, received.server, received.exchange)
        if isinstance(exc, (InterfaceError, OperationalError)):
            logger.warning("A request could not be authorized (%s).", exc)
            exc = Busy("The database is unavailable; try again in a moment.")
        if isinstance(exc, Busy):
            return error_reply(exc, request_id_of(received.message))
    except Exception as failure:  # noqa: BLE001 - logged below
        exc = failure
    logger.error("Authorizing a request failed.", exc_info=exc)
    return internal_error_reply(request_id_of(received.message))


def _refuse_body(exchange: Exchange) -> Reply | None:
    """Return the reply to a body that is rejected before it is decoded, else ``None``."""
    refused = request_checks.check_body(exchange)
    return None if refused is None else readable_reply(exchange, refused)


def readable_reply(exchange: Exchange, refused: Reply) -> Reply:
    """Add the CORS headers that let a page of an allowed origin read the error reply."""
    return replace(refused, headers=(*refused.headers, *request_checks.cors_headers(exchange)))


# Authorization and admission ----------------------------------------------------------------------


def _admit_in_thread(received: ParsedRequest) -> Outcome:
    server, exchange, call = received.server, received.exchange, received.call
    if received.refused is not None:
        raise received.refused
    # The caller may have lost its access while the request waited for this thread.
    if call is None or has_waited() or call.catalog is not server.fresh_catalog():
        _authorize_caller(received)
        assert received.principal is not None
        if exchange.carry_caller is not None:
            exchange.received_request = exchange.carry_caller(received.principal)
        found = _route(received)
        if isinstance(found, Handshake):
            assert isinstance(received.message, (Request, Notification, Response, Batch))
            return SessionRequest(server, exchange, received.principal).post(received.message)
        if not isinstance(found, Call):
            return found
        call = found
    return _admitted(call, exchange)


def _authorize_caller(received: ParsedRequest) -> None:
    """Authenticate the caller and check that it may connect.

    Raises:
        AccessRefused: the credentials are invalid, or the caller may not connect.
        Busy: the overrides or the caller cannot be looked up now.
    """
    server, exchange = received.server, received.exchange
    received.principal = None

    def find() -> Principal:
        received.principal = principal = authenticate_exchange(server, exchange)
        count_job_for(share_of(principal, exchange.find_source))
        return principal

    try:
        admit_caller(server, find)
        received.catalog = server.catalog
    except (AccessRefused, Busy) as exc:
        call_log.log_rejected(
            server, received.message, exc, transport="http", principal=received.principal
        )
        raise


def _route(received: ParsedRequest) -> Outcome | Handshake | Call:
    """Return the call of a request at a stateless revision, or the outcome of another message."""
    server, exchange, message = received.server, received.exchange, received.message
    principal = received.principal
    assert principal is not None
    if exchange.endpoint != "mcp":
        return _legacy(received, principal)
    if message is None:
        return _without_message(SessionRequest(server, exchange, principal))
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
        session_revision = SessionRequest(server, exchange, principal).revision()
        call_log.log_rejected(
            server,
            message,
            exc,
            transport="http",
            principal=principal,
            session_revision=session_revision,
        )
        return error_reply(
            exc, request_id_of(message), error_revision_of(message, session_revision)
        )
    if isinstance(route, Handshake):
        return route
    if isinstance(route, Drop) or not isinstance(message, Request):
        return accepted()
    return Call(
        server=server,
        request=message,
        envelope=route.envelope,
        principal=principal,
        raw_headers=exchange.headers,
        can_stream=exchange.can_stream,
        build_request=exchange.build_component_request,
        find_source=exchange.find_source,
        confirm_caller=partial(confirm_caller, server, exchange),
        transport="http",
        catalog=received.catalog,
        name=route.name or "",
        cancellation=exchange.cancellation,
    )


def _legacy(received: ParsedRequest, principal: Principal) -> Outcome:
    """Return the outcome of a request to one of the two endpoints of HTTP+SSE."""
    server, exchange = received.server, received.exchange
    if not legacy_sse.is_supported(server):
        return jsonrpc_error_reply(
            404, "This server does not support HTTP+SSE; use Streamable HTTP."
        )
    try:
        if exchange.endpoint == "sse":
            return legacy_sse.open_stream(server, exchange, principal)
        assert received.message is not None  # other methods were rejected before
        return legacy_sse.accept_post(server, exchange, received.message, principal)
    except MCPError as exc:
        return error_reply(exc, request_id_of(received.message))


def _without_message(call: SessionRequest) -> Outcome:
    try:
        return call.delete() if call.exchange.verb == "DELETE" else call.get()
    except MCPError as exc:
        # Only handshake revisions use these methods, and all of them have the same error codes.
        return error_reply(exc, None, LATEST_HANDSHAKE)


def _admitted(call: Call, exchange: Exchange) -> Outcome:
    """Admit a call, and return its answer or how it is answered."""
    try:
        admit(call)
        if call.result is None:
            component = call.component
            may_send = component.slow or component.function.context_parameter is not None
            if may_send and call.wants_stream and _can_stream(exchange):
                call.stream = ResponseStream()
                # A slow call would only wait longer for its first byte.
                may_wait = not component.slow and request_checks.accepts(exchange.headers, JSON)
                begin = partial(answer.stream_or_reply, call) if may_wait else None
                return Stream(headers=SSE_HEADERS, open=partial(answer.stream, call), begin=begin)
            return answer.Work(call=call, headers=BASE_HEADERS)
        if isinstance(call.result, Subscription):
            return _listen(call, exchange)
        # Only a request in a session waits for a task.
        assert isinstance(call.result, dict)
        return json_reply(200, encode_response(call, call.result))
    except MCPError as exc:
        return error_reply(exc, call.request.id, call.revision)


def _can_stream(exchange: Exchange) -> bool:
    return exchange.can_stream and request_checks.accepts(exchange.headers, EVENT_STREAM)


def _listen(call: Call, exchange: Exchange) -> Outcome:
    if not request_checks.accepts(exchange.headers, EVENT_STREAM):
        return jsonrpc_error_reply(
            406,
            f"subscriptions/listen answers with {EVENT_STREAM}; add it to the Accept header.",
            request_id=call.request.id,
        )
    # The stream keeps only what was selected from the parameters.
    call.request = Request(call.request.id, call.request.method)
    exchange.release_body()
    slot = listen.acquire_listen_slot(call)
    call.stream = ResponseStream(has_begun=True)
    return Stream(headers=SSE_HEADERS, open=partial(listen.subscription_events, call, slot))


def _with_cors(exchange: Exchange, outcome: OutcomeT) -> OutcomeT:
    """Add the CORS headers that a browser page of an allowed origin needs."""
    if "origin" not in exchange.headers:
        return outcome
    extra: HeaderList = request_checks.cors_headers(exchange)
    return outcome.with_headers(extra) if extra else outcome  # type: ignore[return-value]


# Reading a request over ASGI ----------------------------------------------------------------------

POST_ENDPOINTS = ("mcp", "messages")
# A header with a token that nothing is wrong with, as far as one can see without looking it up.
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
    _deadline: float | None = None
    _is_whole: bool = False
    _is_authorized: bool = False
    _is_late: bool = False

    @property
    def _may_ask(self) -> bool:
        """Whether the caller can be authorized here, outside of the site's middleware."""
        return not thread_context()

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
        if refused is None and not (exchange.is_usual and is_plain and not exchange.query):
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
            refused = self._late()
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
        """Return the timer of the whole body, which begins when a part is first waited for."""
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
        if self._may_ask and needs_authorization_first(self.server, exchange, size):
            return await self._authorize()
        return None

    async def _authorize(self) -> Reply | None:
        exchange = self.exchange
        # Before the body is complete, nothing may be read from it.
        head = replace(exchange, body=b"", django_request=None)
        work = partial(run_with_request_signals, partial(reject_unauthorized, self.server, head))
        try:
            refused = await get_pool("short").run(work, key=exchange.presumed_share())
        except Busy as exc:
            return error_reply(exc, None)
        self._is_authorized = refused is None
        return refused

    def _late(self) -> Reply:
        message = f"The body was not received within {get_settings().body_seconds:g} seconds."
        return readable_reply(self.exchange, jsonrpc_error_reply(408, message))

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
                await self._drop_rest()
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        return linger

    async def _drop_rest(self) -> None:
        with suppress(ClientDisconnected, TimeoutError):
            while not self._is_whole and not self._is_late:
                await self._part()
