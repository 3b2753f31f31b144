"""The plain Django view, which works under ASGI, WSGI and with Django's test client.

The site's own functions run in the thread that called the view. Under ASGI a stream is returned to
Django as an asynchronous iterator; WSGI has no streams.
"""

from __future__ import annotations

from functools import partial
from time import sleep
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from mcp_django.auth.credentials import carry_caller
from mcp_django.auth.limits import limit_source
from mcp_django.components.catalog import Server
from mcp_django.components.context import Cancellation
from mcp_django.conf import get_settings
from mcp_django.exceptions import Busy
from mcp_django.execution.call_log import end_rejected_with_span
from mcp_django.execution.invoke import run_after_wait
from mcp_django.execution.threads import get_pool
from mcp_django.protocol.headers import JSON, Headers
from mcp_django.storage.cache import receive_forgotten_from_thread
from mcp_django.tenants import thread_context
from mcp_django.transports.answer import InFlight, run_work
from mcp_django.transports.bodies import BodyRefused, end_connection_if_unread, read_body
from mcp_django.transports.exchange import (
    Endpoint,
    Exchange,
    Outcome,
    Pending,
    Reply,
    Stream,
    Work,
    error_reply,
    jsonrpc_error_reply,
)
from mcp_django.transports.http import (
    ParsedRequest,
    check_request_head,
    needs_authorization_first,
    parse_request,
    readable_reply,
    reject_unauthorized,
    serve_in_thread,
)
from mcp_django.transports.request_checks import declared_length


class CallerRejected(Exception):
    """A caller is rejected before its body is read; ``reply`` says why."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.reply = reply


class EndpointView:
    """The endpoint of one server as a view.

    It is exempt from CSRF checks, since the core rejects foreign origins and clients are not
    browsers with forms. It is never redirected to a login page, since a client understands only a
    401. ``ATOMIC_REQUESTS`` does not apply, since the runtime opens the transactions.
    """

    csrf_exempt = True
    login_required = False

    def __init__(self, server: Server, endpoint: Endpoint = "mcp") -> None:
        self.mcp_server = server
        self.endpoint = endpoint
        # Django's resolver uses these as the view's name.
        self.__name__ = self.__qualname__ = "mcp_endpoint"

    @property
    def _non_atomic_requests(self) -> frozenset[str]:
        return frozenset(connections)

    def __call__(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        """Process one request and return the response."""
        return end_connection_if_unread(request, self._respond(request))

    def _respond(self, request: HttpRequest) -> HttpResponseBase:
        receive_forgotten_from_thread()
        received = self._received(request)
        outcome = received if isinstance(received, Reply) else serve_in_thread(received)
        if isinstance(outcome, Work):
            in_flight = _in_flight_of(request)
            if in_flight is not None:
                in_flight.start(outcome)
                if outcome.is_async:
                    return DeferredResponse(request, outcome)
            outcome = _run_in_view_thread(request, outcome)
        if isinstance(outcome, Pending):
            if _in_flight_of(request) is not None and not outcome.is_immediate:
                return DeferredResponse(request, outcome)
            outcome = outcome.settle()
        return _response_of(request, outcome)

    def _received(self, request: HttpRequest) -> Reply | ParsedRequest:
        """Return the parsed request, or an error reply, possibly before the body is read."""
        server, exchange = self.mcp_server, exchange_of(request, self.endpoint)
        if exchange.verb != "POST":
            return parse_request(server, exchange)
        in_flight = _in_flight_of(request)
        refused = self._rejection(exchange, in_flight)
        if refused is not None:
            return refused
        most = get_settings().max_body_bytes
        try:
            exchange.body = read_body(
                request, most, check_caller=partial(self._check_caller, exchange)
            )
        except BodyRefused as exc:
            return readable_reply(exchange, jsonrpc_error_reply(exc.status, str(exc)))
        except CallerRejected as exc:
            return exc.reply
        exchange.django_request = None
        if in_flight and in_flight.body == exchange.body:
            exchange.message = in_flight.message
        return parse_request(server, exchange)

    def _rejection(self, exchange: Exchange, in_flight: InFlight | None) -> Reply | None:
        """Return the error reply if a POST is rejected before its body is read; else ``None``."""
        refused = in_flight.refusal if in_flight else None
        # Middleware may have set another URLconf than the one ``FastASGIHandler`` used.
        if refused is not None or (in_flight and in_flight.view is self):
            return refused
        refused = check_request_head(self.mcp_server, exchange)
        if refused is not None:
            return refused
        try:
            self._check_caller(exchange, declared_length(exchange.headers))
        except CallerRejected as exc:
            return exc.reply
        return None

    def _check_caller(self, exchange: Exchange, size: int) -> None:
        """Check that the caller may send ``size`` bytes.

        Raises:
            CallerRejected: it may not.
        """
        if needs_authorization_first(self.mcp_server, exchange, size):
            refused = reject_unauthorized(self.mcp_server, exchange)
            if refused is not None:
                raise CallerRejected(refused)


def _run_in_view_thread(request: HttpRequest, work: Work) -> Reply | Pending:
    """Run a call in the thread of the view.

    Django cancels the task of a client that disconnects, and with it an async function on the same
    event loop. In a session a disconnect must not cancel the call, so there the function runs in
    another thread with its own event loop, unless it needs the thread of the middleware.
    """
    stateless = work.call.revision.stateless
    if stateless or not work.is_async or not isinstance(request, ASGIRequest):
        return run_work(work)
    run = partial(run_after_wait, work.call, partial(run_work, work))
    try:
        return get_pool("tool").run_from_thread(run, key=work.call.thread_key)
    except Busy as exc:
        end_rejected_with_span(work.call.record, exc)
        return error_reply(exc, work.call.request.id, work.call.revision)


class DeferredResponse(StreamingHttpResponse):
    """A response that ``FastASGIHandler`` completes on the event loop, after the middleware."""

    def __init__(self, request: HttpRequest, outcome: Work | Pending) -> None:
        _refuse_compression(request)
        super().__init__(iter(()), content_type=JSON)
        self.outcome = outcome
        if isinstance(outcome, Pending):
            _set_head(self, outcome.reply)


class EventStreamResponse(StreamingHttpResponse):
    """A response of events, which starts on the event loop that sends it."""

    def __init__(self, request: HttpRequest, stream: Stream) -> None:
        _refuse_compression(request)
        super().__init__(stream.open())
        self.stream = stream


def _refuse_compression(request: HttpRequest) -> None:
    """Prevent middleware from compressing the response.

    It would make each event a separate gzip member, and several clients read only the first one.
    """
    request.META["HTTP_ACCEPT_ENCODING"] = ""


def exchange_of(request: HttpRequest, endpoint: Endpoint) -> Exchange:
    """Convert a Django request, without its body, to an ``Exchange``."""
    in_flight = _in_flight_of(request)
    return Exchange(
        verb=request.method or "",
        scheme=request.scheme or "",
        headers=_headers(request),
        query=request.META.get("QUERY_STRING", ""),
        path=request.path,
        endpoint=endpoint,
        build_request=lambda body: request,
        find_source=partial(limit_source, request),
        # Where the tenant is on the thread of the view, a stream would not have it.
        can_stream=isinstance(request, ASGIRequest) and not thread_context(),
        carry_caller=partial(carry_caller, request),
        cancellation=in_flight.cancellation if in_flight else Cancellation(),
    )


def _in_flight_of(request: HttpRequest) -> InFlight | None:
    """Return the ``InFlight`` of a request that ``FastASGIHandler`` serves, else ``None``."""
    return getattr(request, "mcp_in_flight", None)


def _headers(request: HttpRequest) -> Headers:
    if isinstance(request, ASGIRequest):
        # The raw list: Django joins repeated headers, which would hide spoofed ones.
        return Headers(request.scope["headers"])
    # Without a Host header the server's name is used, as in Django.
    return Headers.from_environ({"HTTP_HOST": request.META.get("SERVER_NAME", ""), **request.META})


def _response_of(request: HttpRequest, outcome: Outcome) -> HttpResponseBase:
    """Convert an outcome to a Django response."""
    response: HttpResponseBase
    if isinstance(outcome, Stream):
        _release_connections()
        response = EventStreamResponse(request, outcome)
        _set_head(response, outcome)
        return response
    assert isinstance(outcome, Reply)
    response = HttpResponse(outcome.body)
    _set_head(response, outcome)
    if _in_flight_of(request) is not None:
        response.mcp_hold = outcome.hold  # type: ignore[attr-defined]
    elif outcome.hold:
        sleep(outcome.hold)
    return response


def _set_head(response: HttpResponseBase, answer: Reply | Stream) -> None:
    if isinstance(answer, Reply):
        response.status_code = answer.status
        if not answer.body:
            del response["Content-Type"]
    for name, value in answer.headers:
        response[name] = value


def _release_connections() -> None:
    """Close this thread's database connections before a stream idles, except in a transaction."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
