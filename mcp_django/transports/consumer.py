"""``MCPConsumer``: the endpoint as a Channels consumer, for sites that want consumer middleware.

It is driven by messages and never loops inside one of them, so it sees the client leave while it
streams; Channels' own ``AsyncHttpConsumer`` does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, MutableMapping
from typing import Any, cast

from channels.consumer import AsyncConsumer
from channels.exceptions import StopConsumer

from mcp_django.conf import get_settings
from mcp_django.runtime.ports import Server
from mcp_django.transports.body import Scope, Send, closing, first_of
from mcp_django.transports.raw import exchange_of, limit_of, respond, send_reply, too_slow
from mcp_django.transports.ticket import Ticket


class MCPConsumer(AsyncConsumer):
    """Serves one server: ``MCPConsumer.as_asgi(server=mcp)`` in a ``URLRouter``."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._ticket = Ticket()
        self._body = bytearray()
        self._limit: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._answer: asyncio.Task[None] | None = None
        self._tasks = asyncio.TaskGroup()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection; an answer that fails ends it, so that the server says 500."""
        async with self._tasks:
            await first_of(self._tasks.create_task(super().__call__(scope, receive, send)))

    async def http_request(self, message: MutableMapping[str, Any]) -> None:
        """Collect the body and start the answer in a task that this consumer owns."""
        if self._answer is not None:
            return
        scope, send = cast(Scope, self.scope), cast(Send, self.base_send)
        self._body += message.get("body", b"")
        is_whole = not message.get("more_body", False)
        if not is_whole and self._limit is None:
            self._limit = limit_of(self._server, scope)
            seconds = get_settings().body_seconds
            self._timer = asyncio.get_running_loop().call_later(seconds, self._give_up)
        if is_whole or (self._limit is not None and len(self._body) > self._limit):
            exchange = exchange_of(scope, bytes(self._body), self._ticket.cancellation)
            send = send if is_whole else closing(send, scope)
            self._begin(respond(self._server, exchange, self._ticket, send))

    def _give_up(self) -> None:
        scope, send = cast(Scope, self.scope), cast(Send, self.base_send)
        self._begin(send_reply(too_slow(), closing(send, scope)))

    def _begin(self, answer: Coroutine[Any, Any, None]) -> None:
        self._body.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._answer = self._tasks.create_task(answer)

    async def http_disconnect(self, message: MutableMapping[str, Any]) -> None:
        """The client has gone, or has its answer: end what still runs."""
        self._ticket.cancellation.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if self._answer is not None:
            self._answer.cancel()
        raise StopConsumer
