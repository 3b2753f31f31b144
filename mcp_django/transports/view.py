"""The plain Django view: works everywhere, WSGI and Django's test client included.

The site's own functions run in the thread that called the view. Under ASGI a stream is handed to
Django as an asynchronous iterator; under WSGI there are none.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from mcp_django.conf import get_settings
from mcp_django.core.catalog import Server
from mcp_django.core.context import Cancellation
from mcp_django.execution.threads import pool, with_request_signals
from mcp_django.protocol.headers import Headers
from mcp_django.transports.answer import Ticket, finish
from mcp_django.transports.exchange import (
    Endpoint,
    Exchange,
    HeaderList,
    Outcome,
    Reply,
    Stream,
    Work,
)
from mcp_django.transports.http import Received, admit, has_to_be_let_in, look, receive, refuse
from mcp_django.transports.request_checks import length_of


class EndpointView:
    """The endpoint of one server as a view.

    Exempt from CSRF checks, since foreign origins are refused by the core and clients are no
    browsers with forms; never redirected to a login page, since a client can only read a 401; and
    outside ``ATOMIC_REQUESTS``, since the runtime opens the transactions.
    """

    csrf_exempt = True
    login_required = False

    def __init__(self, server: Server, endpoint: Endpoint = "mcp") -> None:
        self.mcp_server = server
        self.endpoint = endpoint
        # Django's resolver names a view by these.
        self.__name__ = self.__qualname__ = "mcp_endpoint"

    @property
    def _non_atomic_requests(self) -> frozenset[str]:
        return frozenset(connections)

    def __call__(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        """Answer one request."""
        received = self._received(request)
        outcome = received if isinstance(received, Reply) else admit(received)
        if isinstance(outcome, Work):
            ticket = _ticket_of(request)
            if ticket is not None:
                ticket.start(outcome)
                if outcome.is_async:
                    return DeferredResponse(request, outcome)
            outcome = _finish(request, outcome)
        return _response_of(request, outcome)

    def _received(self, request: HttpRequest) -> Reply | Received:
        """The request, or its refusal, which may come before anything of the body is read."""
        server, exchange = self.mcp_server, exchange_of(request, self.endpoint)
        if exchange.verb != "POST":
            return receive(server, exchange)
        ticket = _ticket_of(request)
        refused = self._refused(exchange, ticket)
        if refused is not None:
            return refused
        body = _body(request)
        message = ticket.message if ticket and ticket.body == body else None
        return receive(server, replace(exchange, body=body, message=message))

    def _refused(self, exchange: Exchange, ticket: Ticket | None) -> Reply | None:
        """The refusal of a POST that needs no more of its body than was read."""
        refused = ticket.refusal if ticket else None
        # Middleware may have chosen another URLconf than ``LaneHandler`` has asked.
        if refused is not None or (ticket and ticket.view is self):
            return refused
        refused = look(self.mcp_server, exchange)
        length = length_of(exchange.headers)
        if refused is None and has_to_be_let_in(self.mcp_server, exchange, length):
            refused = refuse(self.mcp_server, exchange)
        return refused


def _finish(request: HttpRequest, work: Work) -> Reply | Stream:
    """Run a call in the thread of the view.

    Django cancels the task of a client that hangs up, and an asynchronous function with it if that
    runs on the same loop. In a session hanging up cancels nothing (HTTP-16), so the function gets a
    thread and a loop of its own there.
    """
    stateless = work.invocation.incoming.revision.stateless
    if stateless or not work.is_async or not isinstance(request, ASGIRequest):
        return finish(work)
    run = partial(with_request_signals, partial(finish, work))
    caller = work.invocation.incoming.principal.user_key
    return pool("work").submit(run, key=caller).result()


class DeferredResponse(StreamingHttpResponse):
    """An answer that ``LaneHandler`` fills in on the event loop, after middleware has seen it."""

    def __init__(self, request: HttpRequest, work: Work) -> None:
        _refuse_compression(request)
        super().__init__(iter(()), content_type="application/json")
        self.work = work


class EventStreamResponse(StreamingHttpResponse):
    """Events; they begin on the loop that sends them."""

    def __init__(self, request: HttpRequest, stream: Stream) -> None:
        _refuse_compression(request)
        super().__init__(stream.open())
        self.stream = stream


def _refuse_compression(request: HttpRequest) -> None:
    """Keep compressing middleware away.

    It makes a gzip member of each event, and several clients read the first member only.
    """
    request.META["HTTP_ACCEPT_ENCODING"] = ""


def exchange_of(request: HttpRequest, endpoint: Endpoint) -> Exchange:
    """A Django request in the form that the core reads, without its body."""
    ticket = _ticket_of(request)
    return Exchange(
        verb=request.method or "",
        scheme=request.scheme or "",
        headers=_headers(request),
        body=b"",
        query=request.META.get("QUERY_STRING", ""),
        path=request.path,
        endpoint=endpoint,
        request=lambda: request,
        can_stream=isinstance(request, ASGIRequest),
        cancellation=ticket.cancellation if ticket else Cancellation(),
    )


def _ticket_of(request: HttpRequest) -> Ticket | None:
    """The ticket of a request that ``LaneHandler`` carries."""
    return getattr(request, "mcp_ticket", None)


def _headers(request: HttpRequest) -> Headers:
    if isinstance(request, ASGIRequest):
        # The raw list: Django joins repeated headers, which would hide spoofing (HDR-9).
        return Headers(request.scope["headers"])
    # A request without a Host header goes by the server's name, as in Django.
    return Headers.from_environ({"HTTP_HOST": request.META.get("SERVER_NAME", ""), **request.META})


def _body(request: HttpRequest) -> bytes:
    """The body up to one byte over the limit; Django's own limit is for forms."""
    if not hasattr(request, "_body"):
        request._body = request.read(get_settings().max_body_bytes + 1)
    return request.body


def _response_of(request: HttpRequest, outcome: Outcome) -> HttpResponseBase:
    """An outcome in the form that Django sends."""
    response: HttpResponseBase
    if isinstance(outcome, Stream):
        _release_connections()
        response = EventStreamResponse(request, outcome)
        _set_headers(response, outcome.headers)
        return response
    assert isinstance(outcome, Reply)
    response = HttpResponse(outcome.body, status=outcome.status)
    if not outcome.body:
        del response["Content-Type"]
    _set_headers(response, outcome.headers)
    return response


def _set_headers(response: HttpResponseBase, headers: HeaderList) -> None:
    for name, value in headers:
        response[name] = value


def _release_connections() -> None:
    """Give this thread's connections back before a stream idles, but none in a transaction."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
