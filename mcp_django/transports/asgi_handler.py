"""The fast ASGI handler, which runs Django's middleware in one thread, and the raw ASGI mount.

Django's own ASGI handler switches between a thread and the event loop at every synchronous
middleware, which costs ten times as much and uses a thread for every open stream.
``FastASGIHandler`` runs the whole middleware chain and the view in one pooled thread, releases the
thread, and sends streams from the event loop. Middleware sees every request, including one that is
rejected before its body was read; the body of such a request is empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from functools import lru_cache, partial
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

from mcp_django.auth.limits import Member, share_of, source_of_headers
from mcp_django.components.catalog import Server
from mcp_django.components.context import Cancellation
from mcp_django.conf import get_settings
from mcp_django.exceptions import Busy
from mcp_django.execution import call_log
from mcp_django.execution.pipeline import NeedsThread
from mcp_django.execution.threads import get_pool
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.jsonrpc import request_id_of
from mcp_django.storage.cache import receive_forgotten
from mcp_django.tenants import TenantUnavailable, as_tenant, capture_tenant, thread_context
from mcp_django.transports.answer import InFlight, wait_until_deadline
from mcp_django.transports.drain import is_draining
from mcp_django.transports.exchange import (
    Endpoint,
    Exchange,
    Message,
    error_reply,
    internal_error_reply,
    tenant_refusal,
)
from mcp_django.transports.http import (
    BodyReader,
    IncomingHTTPRequest,
    IncomingOnLoop,
    ask_ahead,
    parse_request,
    pool_of,
    with_cors,
)
from mcp_django.transports.outcome import (
    Outcome,
    RequestRefused,
    Send,
    is_unfinished,
    outcome_of,
)
from mcp_django.transports.request_checks import (
    MAX_INLINE_BYTES,
    ClientDisconnected,
    Receive,
    Scope,
    end_connection,
    run_until_disconnect,
    set_no_delay,
)


class FastASGIHandler(BaseHandler):
    """Serves the requests that the URLconf routes to an MCP endpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.load_middleware(is_async=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send, view: Any) -> None:
        """Serve one request; ``view`` is the view that the URLconf resolved for it."""
        receive_forgotten()
        send = end_connections_of(scope, send)
        exchange = exchange_of(scope, view)
        in_flight = InFlight(view=view, cancellation=exchange.cancellation)
        reader = BodyReader(
            view.mcp_server, scope, exchange, receive, may_ask=thread_context() is None
        )
        caller = exchange.presumed_share()
        try:
            in_flight.refusal = await reader.read()
            if exchange.is_usual:
                # A copy, since middleware may change the list.
                in_flight.usual_head = [*scope["headers"]]
            if in_flight.refusal is not None:
                await self._answer(scope, exchange, caller, in_flight, reader.wrap_send(send))
            else:
                answer = self._answer(scope, exchange, caller, in_flight, send)
                await run_until_disconnect(receive, answer, in_flight.cancellation)
        except ClientDisconnected:
            in_flight.cancellation.cancel()
        finally:
            # The request references its `InFlight`, and `work` references the request. Break this
            # reference cycle, so that neither has to wait for the garbage collector.
            in_flight.work = None

    async def _answer(
        self,
        scope: Scope,
        exchange: Exchange,
        caller: str | Member,
        in_flight: InFlight,
        send: Send,
    ) -> None:
        outcome = await self._outcome_in_thread(scope, exchange, caller, in_flight)
        # A stream may last for hours, and the body may be megabytes.
        exchange.body, in_flight.body, in_flight.message = b"", b"", None
        with as_tenant(in_flight.tenant):
            answer = await outcome.afinish()
            await answer.send(send)

    async def _outcome_in_thread(
        self, scope: Scope, exchange: Exchange, caller: str | Member, in_flight: InFlight
    ) -> Outcome:
        body = exchange.body if in_flight.refusal is None else b""
        if len(body) > MAX_INLINE_BYTES:
            message: Message = await asyncio.to_thread(jsonrpc.decode, body)
        else:
            message = jsonrpc.decode(body)
        in_flight.body, in_flight.message = body, message
        work = partial(self._respond, scope, body, in_flight)
        pool = get_pool(pool_of(message, exchange))
        if pool.is_crowded:
            await ask_ahead(in_flight.view.mcp_server, exchange)
        try:
            job = pool.begin(work, key=caller, sends_signals=True)
            return await wait_until_deadline(in_flight, job)
        except Busy as exc:
            # The server is not known here, since middleware may change the URLconf. The tenant is
            # not known either, and the row would belong in the admin of the tenant.
            if thread_context() is None:
                call_log.log_rejected(None, message, exc, transport="http")
            return error_reply(exc, request_id_of(message))

    def _respond(self, scope: Scope, body: bytes, in_flight: InFlight) -> Outcome:
        """Run Django's middleware and the view in this thread, with the request signals."""
        request_started.send(sender=type(self), scope=scope)
        end: Callable[[], object] = partial(request_finished.send, sender=type(self))
        try:
            response = self._response(scope, body, in_flight)
            if not is_unfinished(response):
                # `close` sends `request_finished`.
                end = response.close
            return outcome_of(response)
        finally:
            end()

    def _response(self, scope: Scope, body: bytes, in_flight: InFlight) -> HttpResponseBase:
        set_script_prefix(get_script_prefix(scope))
        try:
            request: Any = ASGIRequest(dict(scope), BytesIO(body))
        except UnicodeDecodeError:
            return HttpResponseBadRequest()
        request.mcp_in_flight = in_flight
        response = self.get_response(request)
        # The sender of `request_finished`, as in Django's own handlers; not in the stubs.
        response._handler_class = type(self)  # type: ignore[attr-defined]
        return response


class RawASGIMount:
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
        if hasattr(send, "__self__"):
            set_no_delay(send)
        receive_forgotten()
        send = end_connections_of(scope, send)
        exchange = exchange_of(scope)
        reader = BodyReader(self._server, scope, exchange, receive)
        try:
            if not needs_tenant(exchange):
                await self._serve(exchange, reader, receive, send)
            elif (tenant := await tenant_of(exchange, reader, send)) is not None:
                with as_tenant(tenant):
                    await self._serve(exchange, reader, receive, send)
        except ClientDisconnected:
            exchange.cancellation.cancel()

    async def _serve(
        self, exchange: Exchange, reader: BodyReader, receive: Receive, send: Send
    ) -> None:
        refused = await reader.read()
        if refused is not None:
            await refused.send(reader.wrap_send(send))
            return
        answer = send_response(self._server, exchange, send)
        await run_until_disconnect(receive, answer, exchange.cancellation)


def needs_tenant(exchange: Exchange) -> bool:
    """Return whether the answer to a request depends on its tenant."""
    return thread_context() is not None and exchange.endpoint != "health"


async def tenant_of(exchange: Exchange, reader: BodyReader, send: Send) -> str | None:
    """Return the tenant of a request to a mount without the site's middleware.

    ``None`` if the request has no tenant, or if the tenant cannot be determined; the request is
    then already answered with an error.
    """

    def capture() -> str:
        return capture_tenant(exchange.request())

    try:
        async with asyncio.timeout(get_settings().queue_seconds):
            return await get_pool("short").run(capture, key=exchange.presumed_share())
    except Exception as exc:  # noqa: BLE001 - of the site's own class
        refused = error_reply(exc, None) if isinstance(exc, Busy) else tenant_refusal(exc)
        await refused.send(reader.wrap_send(send))
        return None
    finally:
        # It was built without the body, which is not read yet.
        exchange.django_request = None


def end_connections_of(scope: Scope, send: Send) -> Send:
    """Return ``send``, which closes the connection after the reply if the process has to stop.

    The client then opens another connection, which another process accepts.
    """
    if not is_draining():
        return send

    async def close(message: MutableMapping[str, Any]) -> None:
        is_start = message["type"] == "http.response.start"
        await send(end_connection(scope, message) if is_start else message)

    return close


def exchange_of(scope: Scope, view: Any = None) -> Exchange:
    """Convert an ASGI request, without its body, to an ``Exchange``.

    ``view`` is the view that the URLconf resolved, or ``None`` if there is no URLconf.
    """
    headers = Headers(scope["headers"])
    scheme = ""
    if b"origin" in headers.lines or b"authorization" in headers.lines:
        # What ``HttpRequest.scheme`` would return, without building a request.
        scheme = str(scope.get("scheme", "http"))
        trusted: tuple[str, str] | None = settings.SECURE_PROXY_SSL_HEADER
        if trusted is not None:
            name, secure = trusted
            header = headers.get(name.removeprefix("HTTP_").replace("_", "-").lower())
            if header is not None:
                scheme = "https" if header.partition(",")[0].strip() == secure else "http"
    return Exchange(
        verb=scope["method"],
        scheme=scheme,
        headers=headers,
        query=scope.get("query_string", b"").decode("latin-1"),
        path=scope["path"],
        endpoint=view.endpoint if view else _endpoint_of(scope["path"]),
        build_request=partial(_build_request, scope, view),
        # As Django derives REMOTE_ADDR; a socket without addresses has none.
        find_source=lambda: source_of_headers(headers, (scope.get("client") or ("",))[0]),
        can_stream=True,
        cancellation=Cancellation(),
    )


@lru_cache(maxsize=256)
def _endpoint_of(path: str) -> Endpoint:
    """Return the endpoint that a path names on a mount without a URLconf."""
    last = path.rstrip("/").rpartition("/")[2]
    return last if last in ("sse", "messages", "health") else "mcp"  # type: ignore[return-value]


def _build_request(scope: Scope, view: Any, body: bytes) -> ASGIRequest:
    request = ASGIRequest(scope, BytesIO(body))
    # The endpoint uses the resolved view to derive the URL that tokens are issued for.
    request.resolver_match = ResolverMatch(view, (), {}) if view else None
    return request


async def send_response(server: Server, exchange: Exchange, send: Send) -> None:
    """Process one request, on the event loop or in a thread, and send its answer over ASGI."""
    outcome = await _outcome_of(server, exchange)
    answer = await outcome.afinish()
    await answer.send(send)


async def _outcome_of(server: Server, exchange: Exchange) -> Outcome:
    """Serve a request on this event loop, or in a thread if that is not possible here."""
    try:
        if len(exchange.body) > MAX_INLINE_BYTES:
            message = await asyncio.to_thread(parse_request, server, exchange)
        else:
            message = parse_request(server, exchange)
    except RequestRefused as exc:
        return exc.reply
    if thread_context() is not None:
        # The caller and all rows are queried in a thread, which enters the tenant.
        in_thread = IncomingHTTPRequest(server, exchange, message)
        return await _serve_in_thread(in_thread, in_thread.serve_in_thread)
    request = IncomingOnLoop(server, exchange, message)
    while True:
        prepared, refused, unknown = None, None, None
        try:
            return with_cors(exchange, request.serve())
        except SynchronousOnlyOperation:
            # The site's own code used the database, for example to validate an argument.
            pass
        except NeedsThread as exc:
            prepared, refused, unknown = exc.prepared, exc.refused, exc.unknown
        if unknown is None:
            break
        try:
            if not await request.ask(unknown):
                break
        except Exception as exc:  # noqa: BLE001 - of the database
            return IncomingHTTPRequest(server, exchange, message).reject(exc)
    in_thread = IncomingHTTPRequest(server, exchange, message)
    in_thread.principal = request.principal
    if refused is not None:
        return await _serve_in_thread(in_thread, partial(in_thread.reject, refused))
    return await _serve_in_thread(in_thread, partial(in_thread.serve_in_thread, prepared))


async def _serve_in_thread(request: IncomingHTTPRequest, serve: Callable[[], Outcome]) -> Outcome:
    """Serve a request in a pooled thread; async functions and streams are left to the loop."""
    exchange, principal = request.exchange, request.principal
    in_flight = InFlight(cancellation=exchange.cancellation)

    def work() -> Outcome:
        return serve().finish_in_thread(in_flight)

    if principal is None:
        caller = exchange.presumed_share()
    else:
        caller = share_of(principal, exchange.find_source)
    try:
        pool = get_pool(pool_of(request.message, exchange))
        job = pool.begin(work, key=caller)
        return await wait_until_deadline(in_flight, job)
    except Busy as exc:
        call_log.log_rejected(request.server, request.message, exc, transport="http")
        return error_reply(exc, request_id_of(request.message))
    except TenantUnavailable:
        return internal_error_reply(request_id_of(request.message))
