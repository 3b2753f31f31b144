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
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from mcp_django.auth.credentials import carry_caller
from mcp_django.auth.limits import limit_source, source_of_headers
from mcp_django.components.catalog import Server
from mcp_django.components.context import Cancellation
from mcp_django.conf import get_settings
from mcp_django.protocol.headers import Headers
from mcp_django.storage.cache import receive_forgotten_from_thread
from mcp_django.tenants import as_tenant, capture_tenant, thread_context
from mcp_django.transports.answer import InFlight
from mcp_django.transports.bodies import BodyRefused, end_connection_if_unread, read_body
from mcp_django.transports.exchange import (
    MAX_UNVERIFIED_BYTES,
    Endpoint,
    Exchange,
    jsonrpc_error_reply,
    tenant_refusal,
)
from mcp_django.transports.http import (
    POST_ENDPOINTS,
    IncomingHTTPRequest,
    check_request_head,
    needs_authorization_first,
    parse_request,
    readable_reply,
    reject_unauthorized,
)
from mcp_django.transports.outcome import Outcome, RequestRefused
from mcp_django.transports.request_checks import declared_length, has_usual_head


class EndpointView:
    """The endpoint of one server as a view.

    It is exempt from CSRF checks, since the core rejects foreign origins and clients are not
    browsers with forms. It is never redirected to a login page, since a client understands only a
    401. ``ATOMIC_REQUESTS`` does not apply, since the package opens the transactions itself.
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
        if thread_context() is None or self.endpoint == "health":
            return end_connection_if_unread(request, self._respond(request))
        try:
            tenant = capture_tenant(request)
        except Exception as exc:  # noqa: BLE001 - of the site's own class
            return end_connection_if_unread(request, tenant_refusal(exc).to_response(request))
        if in_flight := _in_flight_of(request):
            in_flight.tenant = tenant
        with as_tenant(tenant):
            return end_connection_if_unread(request, self._respond(request))

    def _respond(self, request: HttpRequest) -> HttpResponseBase:
        receive_forgotten_from_thread()
        in_flight = _in_flight_of(request)
        try:
            outcome: Outcome = self._received(request, in_flight).serve_in_thread()
        except RequestRefused as exc:
            outcome = exc.reply
        if in_flight is not None:
            return outcome.finish_in_thread(in_flight).to_response(request)
        # Django cancels the task of a client that disconnects, and what runs on its event loop.
        answer = outcome.finish(survives=isinstance(request, ASGIRequest))
        if answer.hold:
            sleep(answer.hold)
        return answer.to_response(request)

    def _received(self, request: HttpRequest, in_flight: InFlight | None) -> IncomingHTTPRequest:
        """Return the request, which is checked and parsed.

        Raises:
            RequestRefused: it is rejected, possibly before the body is read.
        """
        server, exchange = self.mcp_server, exchange_of(request, self.endpoint)
        if exchange.verb != "POST":
            return IncomingHTTPRequest(server, exchange, parse_request(server, exchange))
        if in_flight and in_flight.refusal is not None:
            raise RequestRefused(in_flight.refusal)
        most = get_settings().max_body_bytes
        # Middleware may have set another URLconf than the one ``FastASGIHandler`` used.
        if not in_flight or in_flight.view is not self:
            if self.endpoint in POST_ENDPOINTS:
                small = min(most, MAX_UNVERIFIED_BYTES)
                exchange.is_usual = has_usual_head(exchange.headers, small)
            if not exchange.is_usual:
                refused = check_request_head(server, exchange)
                if refused is not None:
                    raise RequestRefused(refused)
            self._check_caller(exchange, declared_length(exchange.headers))
        try:
            exchange.body = read_body(
                request, most, check_caller=partial(self._check_caller, exchange)
            )
        except BodyRefused as exc:
            reply = jsonrpc_error_reply(exc.status, str(exc))
            raise RequestRefused(readable_reply(exchange, reply)) from None
        exchange.django_request = None
        if in_flight and in_flight.body == exchange.body:
            exchange.message = in_flight.message
            exchange.is_usual = (
                isinstance(request, ASGIRequest)
                and request.scope["headers"] == in_flight.usual_head
            )
        return IncomingHTTPRequest(server, exchange, parse_request(server, exchange))

    def _check_caller(self, exchange: Exchange, size: int) -> None:
        """Check that the caller may send ``size`` bytes.

        Raises:
            RequestRefused: it may not.
        """
        if needs_authorization_first(self.mcp_server, exchange, size):
            refused = reject_unauthorized(self.mcp_server, exchange)
            if refused is not None:
                raise RequestRefused(refused)


def exchange_of(request: HttpRequest, endpoint: Endpoint) -> Exchange:
    """Convert a Django request, without its body, to an ``Exchange``."""
    in_flight = _in_flight_of(request)
    can_stream = isinstance(request, ASGIRequest)
    if isinstance(request, ASGIRequest):
        # The raw list: Django joins repeated headers, which would hide spoofed ones.
        headers = Headers(request.scope["headers"])
        find_source = partial(limit_source, request)
    else:
        # Without a Host header the server's name is used, as in Django.
        environ = request.META
        if "HTTP_HOST" not in environ:
            environ = {"HTTP_HOST": environ.get("SERVER_NAME", ""), **environ}
        headers = Headers.from_environ(environ)
        find_source = partial(source_of_headers, headers, environ.get("REMOTE_ADDR", ""))
    return Exchange(
        verb=request.method or "",
        scheme=request.scheme or "",
        headers=headers,
        query=request.META.get("QUERY_STRING", ""),
        path=request.path,
        endpoint=endpoint,
        build_request=lambda body: request,
        find_source=find_source,
        can_stream=can_stream,
        carry_caller=partial(carry_caller, request),
        cancellation=in_flight.cancellation if in_flight else Cancellation(),
    )


def _in_flight_of(request: HttpRequest) -> InFlight | None:
    """Return the ``InFlight`` of a request that ``FastASGIHandler`` serves, else ``None``."""
    return getattr(request, "mcp_in_flight", None)
