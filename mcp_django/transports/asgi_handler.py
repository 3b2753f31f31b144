"""The fast ASGI handler, which runs Django's middleware in one thread, and the raw ASGI mount.

Django's own ASGI handler switches between a thread and the event loop at every synchronous
middleware, which costs ten times as much and uses a thread for every open stream. ``LaneHandler``
runs the whole middleware chain and the view in one pooled thread, releases the thread, and sends
streams from the event loop. Middleware sees every request, including one that is rejected before
its body was read; the body of such a request is empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.exceptions import SynchronousOnlyOperation
from django.core.handlers.asgi import ASGIRequest, get_script_prefix
from django.core.handlers.base import BaseHandler
from django.core.signals import request_finished, request_started
from django.http import HttpResponseBadRequest
from django.http.response import HttpResponseBase
from django.urls import ResolverMatch, set_script_prefix

from mcp_django.auth.backends import BEARER_ONLY
from mcp_django.auth.limits import presumed_caller
from mcp_django.core.catalog import Server
from mcp_django.core.context import Cancellation
from mcp_django.exceptions import Busy
from mcp_django.execution import call_log
from mcp_django.execution.pipeline import WORK_METHODS
from mcp_django.execution.policy import is_open
from mcp_django.execution.threads import pool, with_request_signals
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.headers import SESSION_ID, Headers
from mcp_django.protocol.jsonrpc import Request, request_id_of
from mcp_django.protocol.methods import LISTS
from mcp_django.transports.answer import Ticket, afinish, finish, in_time
from mcp_django.transports.exchange import (
    Endpoint,
    Exchange,
    HeaderList,
    Message,
    Outcome,
    Reply,
    Stream,
    Work,
    error_reply,
)
from mcp_django.transports.http import Reading, Received, admit, receive
from mcp_django.transports.request_checks import (
    MAX_INLINE_BYTES,
    ClientGone,
    Receive,
    Scope,
    Send,
    send_at_once,
    until_gone,
)
from mcp_django.transports.view import DeferredResponse, EventStreamResponse


class LaneHandler(BaseHandler):
    """Serves the requests that the URLconf routes to an MCP endpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.load_middleware(is_async=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send, view: Any) -> None:
        """Serve one request; ``view`` is the view that the URLconf resolved for it."""
        ticket = Ticket(view=view)
        head = exchange_of(scope, ticket.cancellation, view)
        reading = Reading(view.mcp_server, scope, head, receive)
        caller = presumed_caller(head.headers)
        try:
            body = await reading.body()
            if isinstance(body, Reply):
                ticket.refusal = body
                await self._answer(scope, b"", caller, ticket, reading.lingering(send))
            else:
                answer = self._answer(scope, body, caller, ticket, send)
                await until_gone(receive, answer, ticket.cancellation)
        except ClientGone:
            ticket.cancellation.cancel()
        finally:
            # The request references its `Ticket`, and `work` references the request. Break this
            # reference cycle, so that neither has to wait for the garbage collector.
            ticket.work = None

    async def _answer(
        self, scope: Scope, body: bytes, caller: str, ticket: Ticket, send: Send
    ) -> None:
        message = await _decoded(body)
        ticket.body, ticket.message = body, message
        running = pool(_pool_of(message)).run(
            partial(self._respond, scope, body, ticket), key=caller
        )
        try:
            response = await in_time(ticket, running)
        except Busy as exc:
            # The server is not known here: middleware may change the URLconf.
            call_log.turned_away(None, message, exc, transport="http")
            response = error_reply(exc, request_id_of(message))
        if isinstance(response, Reply):
            await send_reply(response, send)
        elif isinstance(response, DeferredResponse):
            await self._send_deferred(response, send)
        elif isinstance(response, EventStreamResponse):
            await self._send_events(response, send)
        else:
            await send_reply(_reply(response), send)

    def _respond(self, scope: Scope, body: bytes, ticket: Ticket) -> HttpResponseBase:
        """Run Django's middleware and the view in this thread, with the request signals."""
        request_started.send(sender=type(self), scope=scope)
        end: Callable[[], object] = partial(request_finished.send, sender=type(self))
        try:
            response = self._response(scope, body, ticket)
            if not isinstance(response, (DeferredResponse, EventStreamResponse)):
                # `close` sends `request_finished`.
                end = response.close
        finally:
            end()
        return response

    def _response(self, scope: Scope, body: bytes, ticket: Ticket) -> HttpResponseBase:
        set_script_prefix(get_script_prefix(scope))
        try:
            request: Any = ASGIRequest(dict(scope), BytesIO(body))
        except UnicodeDecodeError:
            return HttpResponseBadRequest()
        request.mcp_ticket = ticket
        response = self.get_response(request)
        # The sender of `request_finished`, as in Django's own handlers; not in the stubs.
        response._handler_class = type(self)  # type: ignore[attr-defined]
        return response

    async def _send_deferred(self, response: DeferredResponse, send: Send) -> None:
        """Run the async function and send its reply with the headers that middleware added."""
        answer = await afinish(response.work)
        names = {name.lower() for name, _ in answer.headers}
        added = [pair for pair in _header_list(response) if pair[0].lower() not in names]
        answer = replace(answer, headers=(*answer.headers, *added))
        if isinstance(answer, Stream):
            await _send_stream(answer, send)
        else:
            await send_reply(answer, send)

    async def _send_events(self, response: EventStreamResponse, send: Send) -> None:
        """Send the stream's own events; an iterator that middleware put around them is unused."""
        stream = response.stream
        await _send_stream(Stream(headers=tuple(_header_list(response)), open=stream.open), send)


async def _decoded(body: bytes) -> Message:
    if len(body) > MAX_INLINE_BYTES:
        return await asyncio.to_thread(jsonrpc.decode, body)
    return jsonrpc.decode(body)


def _pool_of(message: Message) -> Any:
    """Return the name of the thread pool for a message."""
    works = isinstance(message, Request) and message.method in WORK_METHODS
    return "work" if works else "desk"


def _header_list(response: HttpResponseBase) -> list[tuple[str, str]]:
    """Return the headers and cookies, but no length or encoding that may not match the body."""
    cookies = [("Set-Cookie", cookie.OutputString()) for cookie in response.cookies.values()]
    dropped = {"content-length"} | ({"content-encoding"} if response.streaming else set())
    kept = [(name, value) for name, value in response.items() if name.lower() not in dropped]
    return [*kept, *cookies]


def _reply(response: HttpResponseBase) -> Reply:
    body = b"".join(response) if isinstance(response, Iterable) else b""
    return Reply(status=response.status_code, headers=tuple(_header_list(response)), body=body)


# The raw ASGI mount -------------------------------------------------------------------------------


class RawMount:
    """One server as an ASGI application for a ``URLRouter``, without Django's middleware.

    The HTTP core checks host, origin, size and authentication, as for every mount. A request that
    needs the database, or whose function is synchronous, is run in a pooled thread; an anonymous
    call of an async function needs no thread.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise ValueError(
                f"An MCP endpoint serves only ASGI scopes of type 'http', not {scope['type']!r}."
            )
        ticket = Ticket()
        send_at_once(send)
        try:
            found = await read(self._server, scope, receive, send, ticket)
            if found is not None:
                answer = respond(self._server, found, ticket, send)
                await until_gone(receive, answer, ticket.cancellation)
        except ClientGone:
            ticket.cancellation.cancel()


async def read(
    server: Server, scope: Scope, receive: Receive, send: Send, ticket: Ticket
) -> Exchange | None:
    """Return the request with its body, or ``None`` if it was answered without the body.

    Raises:
        ClientGone: the client disconnected before the body was complete.
    """
    head = exchange_of(scope, ticket.cancellation)
    reading = Reading(server, scope, head, receive)
    body = await reading.body()
    if isinstance(body, Reply):
        await send_reply(body, reading.lingering(send))
        return None
    return replace(head, body=body, request=_once(scope, body))


def exchange_of(scope: Scope, cancellation: Cancellation, view: Any = None) -> Exchange:
    """Convert an ASGI request, without its body, to an ``Exchange``.

    ``view`` is the view that the URLconf resolved, or ``None`` if there is no URLconf.
    """
    headers = Headers(scope["headers"])
    return Exchange(
        verb=scope["method"],
        scheme=_scheme_of(scope, headers),
        headers=headers,
        body=b"",
        query=scope.get("query_string", b"").decode("latin-1"),
        path=scope["path"],
        endpoint=view.endpoint if view else _endpoint_of(scope["path"]),
        request=_once(scope, b"", view),
        can_stream=True,
        cancellation=cancellation,
    )


def _scheme_of(scope: Scope, headers: Headers) -> str:
    """Return the scheme that ``HttpRequest.scheme`` would, without building a request."""
    trusted: tuple[str, str] | None = settings.SECURE_PROXY_SSL_HEADER
    if trusted is not None:
        name, secure = trusted
        said = headers.get(name.removeprefix("HTTP_").replace("_", "-").lower())
        if said is not None:
            return "https" if said.partition(",")[0].strip() == secure else "http"
    return str(scope.get("scheme", "http"))


def _endpoint_of(path: str) -> Endpoint:
    """Return the endpoint that a path names on a mount without a URLconf."""
    last = path.rstrip("/").rpartition("/")[2]
    return last if last in ("sse", "messages", "health") else "mcp"  # type: ignore[return-value]


def _once(scope: Scope, body: bytes, view: Any = None) -> Callable[[], ASGIRequest]:
    built: list[ASGIRequest] = []

    def get() -> ASGIRequest:
        if not built:
            built.append(ASGIRequest(scope, BytesIO(body)))
            # The endpoint derives the URL that tokens are issued for from the resolved view.
            built[0].resolver_match = ResolverMatch(view, (), {}) if view else None
        return built[0]

    return get


async def respond(server: Server, exchange: Exchange, ticket: Ticket, send: Send) -> None:
    """Process one request and send its answer over ASGI."""
    outcome = await _outcome_of(server, exchange, ticket)
    if isinstance(outcome, Stream):
        await _send_stream(outcome, send)
    else:
        assert isinstance(outcome, Reply)
        await send_reply(outcome, send)


async def _outcome_of(server: Server, exchange: Exchange, ticket: Ticket) -> Reply | Stream:
    """Process a request, partly on the event loop and partly in a thread; return its outcome."""
    if len(exchange.body) > MAX_INLINE_BYTES:
        received = await asyncio.to_thread(receive, server, exchange)
    else:
        received = receive(server, exchange)
    if isinstance(received, Reply):
        return received
    try:
        outcome = _admit_here(received)
        if outcome is None:
            work = partial(_admit_and_finish, received, ticket)
            caller = presumed_caller(exchange.headers)
            running = pool(received.pool).run(partial(with_request_signals, work), key=caller)
            outcome = await in_time(ticket, running)
    except Busy as exc:
        call_log.turned_away(server, received.message, exc, transport="http")
        return error_reply(exc, request_id_of(received.message))
    return await afinish(outcome) if isinstance(outcome, Work) else outcome


def needs_thread(received: Received) -> bool:
    """Return whether authorizing the request may use the database.

    It does not for an anonymous request to a server that is open to anonymous callers.
    """
    server, message = received.server, received.message
    if received.exchange.endpoint == "health" or len(received.exchange.body) > MAX_INLINE_BYTES:
        return True
    if isinstance(message, Request) and message.method in LISTS:
        # Each list request checks for overrides from the admin.
        return True
    headers = received.exchange.headers
    if any(name in headers for name in ("authorization", "cookie", SESSION_ID)):
        return True
    return (
        server.offered.is_guarded or not is_open(server) or not BEARER_ONLY.issuperset(server.auth)
    )


def _admit_here(received: Received) -> Outcome | None:
    """Authorize a request on the event loop; return ``None`` if that needs the database."""
    try:
        return None if needs_thread(received) else admit(received)
    except SynchronousOnlyOperation:
        return None


def _admit_and_finish(received: Received, ticket: Ticket) -> Outcome:
    """Authorize a request and, if its function is synchronous, run it in the same thread."""
    outcome = admit(received)
    if isinstance(outcome, Work) and not outcome.is_async:
        ticket.start(outcome)
        return finish(outcome)
    return outcome


async def send_reply(reply: Reply, send: Send) -> None:
    """Send a complete reply."""
    headers = (*reply.headers, ("Content-Length", str(len(reply.body))))
    await _start(reply.status, headers, send)
    await send({"type": "http.response.body", "body": reply.body})


async def _send_stream(stream: Stream, send: Send) -> None:
    """Send a stream's events as they are produced."""
    await _start(200, stream.headers, send)
    async with aclosing(stream.open()) as events:
        async for event in events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _start(status: int, headers: HeaderList, send: Send) -> Awaitable[None]:
    encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    return send({"type": "http.response.start", "status": status, "headers": encoded})
