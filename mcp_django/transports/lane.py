"""The lane: Django's synchronous middleware and the view in one hop to a pooled thread.

Django's own ASGI handler crosses between threads and the loop at every synchronous middleware,
which costs ten times as much and holds a thread for every open stream. The lane runs the whole
chain in one thread, gives the thread back, and pumps streams on the loop. Middleware sees every
request, also one that is refused before its body was read, which has an empty one then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import Any

from django.core.handlers.asgi import ASGIRequest, get_script_prefix
from django.core.handlers.base import BaseHandler
from django.core.signals import request_finished, request_started
from django.http import HttpResponseBadRequest
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from mcp_django.auth.limits import presumed_caller
from mcp_django.exceptions import Busy
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.jsonrpc import Request
from mcp_django.runtime.dispatch import WORK_METHODS
from mcp_django.runtime.journal import door
from mcp_django.runtime.pools import pool
from mcp_django.transports.body import (
    MAX_INLINE_BYTES,
    ClientGone,
    Receive,
    Scope,
    Send,
    until_gone,
)
from mcp_django.transports.exchange import Message, Reply, Stream
from mcp_django.transports.finishing import afinish
from mcp_django.transports.raw import exchange_of, send_reply, send_stream
from mcp_django.transports.reading import Reading
from mcp_django.transports.replies import error_reply
from mcp_django.transports.ticket import Ticket, in_time
from mcp_django.transports.view import DeferredResponse, EventStreamResponse


class LaneHandler(BaseHandler):
    """Serves the requests that the URLconf gives to an endpoint of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.load_middleware(is_async=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send, view: Any) -> None:
        """Serve one connection, for which the URLconf has this view."""
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
            # The request knows its ticket and the work its request: untied, neither is left to
            # the garbage collector.
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
            # Which server it was for only the URLconf knows.
            door.turned_away(None, message, exc, transport="http")
            response = error_reply(exc, jsonrpc.request_id_of(message))
        if isinstance(response, Reply):
            await send_reply(response, send)
        elif isinstance(response, DeferredResponse):
            await self._send_deferred(response, send)
        elif isinstance(response, EventStreamResponse):
            await self._send_events(response, send)
        else:
            await send_reply(_reply(response), send)

    def _respond(self, scope: Scope, body: bytes, ticket: Ticket) -> HttpResponseBase:
        """The whole of Django, in this thread, between its signals."""
        request_started.send(sender=type(self), scope=scope)
        finish: Callable[[], object] = partial(request_finished.send, sender=type(self))
        try:
            response = self._response(scope, body, ticket)
            if not isinstance(response, (DeferredResponse, EventStreamResponse)):
                # Sends the signal itself.
                finish = response.close
        finally:
            finish()
        return response

    def _response(self, scope: Scope, body: bytes, ticket: Ticket) -> HttpResponseBase:
        set_script_prefix(get_script_prefix(scope))
        try:
            request: Any = ASGIRequest(dict(scope), BytesIO(body))
        except UnicodeDecodeError:
            return HttpResponseBadRequest()
        request.mcp_ticket = ticket
        response = self.get_response(request)
        # The sender of the signal at its closing, as in Django's own handlers; not in the stubs.
        response._handler_class = type(self)  # type: ignore[attr-defined]
        return response

    async def _send_deferred(self, response: DeferredResponse, send: Send) -> None:
        """Run the async function now and send its answer under the middleware's headers."""
        answer = await afinish(response.work)
        names = {name.lower() for name, _ in answer.headers}
        added = [pair for pair in _header_list(response) if pair[0].lower() not in names]
        answer = replace(answer, headers=(*answer.headers, *added))
        if isinstance(answer, Stream):
            await send_stream(answer, send)
        else:
            await send_reply(answer, send)

    async def _send_events(self, response: EventStreamResponse, send: Send) -> None:
        """Pump the events ourselves: whatever a middleware wrapped around them is left aside."""
        stream = response.stream
        await send_stream(Stream(headers=tuple(_header_list(response)), open=stream.open), send)


async def _decoded(body: bytes) -> Message:
    if len(body) > MAX_INLINE_BYTES:
        return await asyncio.to_thread(jsonrpc.decode, body)
    return jsonrpc.decode(body)


def _pool_of(message: Message) -> Any:
    """The pool that a method belongs to."""
    works = isinstance(message, Request) and message.method in WORK_METHODS
    return "work" if works else "desk"


def _header_list(response: HttpResponseBase) -> list[tuple[str, str]]:
    """The headers with the cookies; a length or an encoding would not be that of what is sent."""
    cookies = [("Set-Cookie", cookie.OutputString()) for cookie in response.cookies.values()]
    dropped = {"content-length"} | ({"content-encoding"} if response.streaming else set())
    kept = [(name, value) for name, value in response.items() if name.lower() not in dropped]
    return [*kept, *cookies]


def _reply(response: HttpResponseBase) -> Reply:
    body = b"".join(response) if isinstance(response, Iterable) else b""
    return Reply(status=response.status_code, headers=tuple(_header_list(response)), body=body)
