"""The HTTP transport without color: from a request to an outcome (Streamable HTTP, 2026-07-28).

``receive`` looks at the request and parses it, without touching the database; ``admit`` finds the
caller and the outcome and may use the database, so a mount runs it in a thread. Neither runs the
site's own functions: that is left to the mount (``Work``) or to a stream (``Stream``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from django.core.exceptions import SynchronousOnlyOperation

from mcp_django.auth.authentication import authenticate
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal
from mcp_django.exceptions import AccessRefused, InternalError, MCPError
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import Drop, Stateless, claimed_revision, classify
from mcp_django.protocol.jsonrpc import Failure, Request
from mcp_django.runtime import calls
from mcp_django.runtime.dispatch import dispatch, respond
from mcp_django.runtime.incoming import Incoming, Invocation, Listening, Result
from mcp_django.runtime.policy import admit_connection
from mcp_django.runtime.ports import Server
from mcp_django.transports import call_stream, guards, listen, page
from mcp_django.transports.exchange import (
    EVENT_STREAM,
    Exchange,
    HeaderList,
    Message,
    Outcome,
    Reply,
    Stream,
    Work,
)
from mcp_django.transports.replies import (
    BASE_HEADERS,
    SSE_HEADERS,
    accepted,
    access_reply,
    error_reply,
    json_reply,
    refusal,
)

logger = logging.getLogger("mcp_django")

# The methods that run the site's own functions; everything else is short.
WORK_METHODS = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request that was parsed and not yet admitted."""

    server: Server
    exchange: Exchange
    message: Message

    @property
    def pool(self) -> Literal["work", "desk"]:
        """The pool of threads that it belongs to."""
        works = isinstance(self.message, Request) and self.message.method in WORK_METHODS
        return "work" if works else "desk"


def receive(server: Server, exchange: Exchange) -> Reply | Received:
    """Guard and parse a request; pure but for the settings."""
    refused = guards.check(exchange)
    if refused is not None:
        if exchange.verb == "GET" and refused.status == 405 and page.is_wanted(exchange.headers):
            return page.render(server, exchange)
        return replace(refused, headers=(*refused.headers, *guards.cors(exchange.headers)))
    return Received(server=server, exchange=exchange, message=jsonrpc.decode(exchange.body))


def admit(received: Received) -> Outcome:
    """Find out who is calling and what the request comes to; may use the database."""
    try:
        outcome = _admit(received)
    except AccessRefused as exc:
        outcome = access_reply(exc)
    except SynchronousOnlyOperation:  # the raw mount then asks again in a thread
        raise
    except Exception:  # a permission or backend of the site's own
        logger.exception("A request could not be admitted.")
        outcome = _broken(received.message)
    return with_cors(received.exchange, outcome)


def _broken(message: Message) -> Reply:
    """The answer to a bug of ours or the site's: JSON, since a page of HTML would look to a
    client like a server of another revision (VER-21).
    """
    request = message if isinstance(message, Request) else None
    revision = claimed_revision(request) if request else None
    error = InternalError("The request failed for a reason that is no fault of its own.")
    return replace(error_reply(error, request.id if request else None, revision), status=500)


def _admit(received: Received) -> Outcome:
    server, exchange, message = received.server, received.exchange, received.message
    principal = _principal(server, exchange)
    if isinstance(message, Failure):
        return error_reply(message.error, message.id)
    request_id = message.id if isinstance(message, Request) else None
    try:
        route = classify(message, exchange.headers, enabled=server.protocol_versions)
    except MCPError as exc:
        return error_reply(exc, request_id, claimed_revision(message))
    if isinstance(route, Drop) or not isinstance(message, Request):
        return accepted()
    assert isinstance(route, Stateless)
    incoming = Incoming(
        server=server,
        request=message,
        envelope=route.envelope,
        principal=principal,
        headers=exchange.headers,
        can_stream=exchange.can_stream,
        http_request=exchange.request,
    )
    return guarded(incoming, partial(_outcome, incoming, exchange))


def _principal(server: Server, exchange: Exchange) -> Principal:
    credentials = Credentials(
        headers=exchange.headers, query=exchange.query, request=exchange.request
    )
    principal = authenticate(server.auth, credentials)
    admit_connection(server, principal)
    return principal


def guarded(incoming: Incoming, work: Callable[[], Outcome]) -> Outcome:
    """What the work comes to, or the JSON-RPC error that it raised."""
    try:
        return work()
    except MCPError as exc:
        return error_reply(exc, incoming.request.id, incoming.revision)


def _outcome(incoming: Incoming, exchange: Exchange) -> Outcome:
    outcome = dispatch(incoming)
    if isinstance(outcome, Listening):
        return _listen(outcome, exchange)
    if not isinstance(outcome, Invocation):
        return json_reply(200, respond(incoming, outcome))
    call = replace(outcome, cancellation=exchange.cancellation)
    streams_to = exchange.can_stream and guards.accepts(exchange.headers, EVENT_STREAM)
    if streams_to and call.wants_stream:
        return Stream(headers=SSE_HEADERS, open=partial(call_stream.stream, call))
    return Work(invocation=call, headers=BASE_HEADERS)


def _listen(listening: Listening, exchange: Exchange) -> Outcome:
    if not guards.accepts(exchange.headers, EVENT_STREAM):
        return refusal(
            406,
            f"subscriptions/listen answers with {EVENT_STREAM}; accept it.",
            request_id=listening.incoming.request.id,
        )
    place = listen.take_place(listening.incoming.principal)
    return Stream(headers=SSE_HEADERS, open=partial(listen.stream, listening, place))


def finish(work: Work) -> Reply:
    """Run a call in this thread and answer it."""
    try:
        return _answered(work, calls.run(work.invocation))
    except MCPError as exc:
        return _failed(work, exc)


async def afinish(work: Work) -> Reply:
    """Run a call from the event loop and answer it."""
    try:
        return _answered(work, await calls.execute(work.invocation))
    except MCPError as exc:
        return _failed(work, exc)


def timed_out(work: Work) -> Reply:
    """The answer to a call whose thread did not come back in time."""
    try:
        return _answered(work, calls.timed_out(work.invocation))
    except MCPError as exc:
        return _failed(work, exc)


def _answered(work: Work, result: Result) -> Reply:
    body = respond(work.invocation.incoming, result)
    return Reply(status=200, headers=work.headers, body=body)


def _failed(work: Work, exc: MCPError) -> Reply:
    incoming = work.invocation.incoming
    reply = error_reply(exc, incoming.request.id, incoming.revision)
    extra = tuple(pair for pair in work.headers if pair not in reply.headers)
    return replace(reply, headers=(*reply.headers, *extra))


def with_cors(exchange: Exchange, outcome: Outcome) -> Outcome:
    """The outcome with the headers that an allowed browser needs."""
    extra: HeaderList = guards.cors(exchange.headers)
    return replace(outcome, headers=(*outcome.headers, *extra)) if extra else outcome
