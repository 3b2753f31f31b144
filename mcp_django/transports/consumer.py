"""``MCPConsumer``: the endpoint as a Channels consumer, for sites that want consumer middleware.

It is driven by messages and never loops inside one of them, so it sees the client leave while it
streams; Channels' own ``AsyncHttpConsumer`` does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, cast

from channels.consumer import AsyncConsumer
from channels.exceptions import StopConsumer

from mcp_django.conf import get_settings
from mcp_django.runtime.ports import Server
from mcp_django.transports.body import Scope, Send, first_of
from mcp_django.transports.raw import exchange_of, respond
from mcp_django.transports.ticket import Ticket


class MCPConsumer(AsyncConsumer):
    """Serves one server: ``MCPConsumer.as_asgi(server=mcp)`` in a ``URLRouter``."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._ticket = Ticket()
        self._body = bytearray()
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
        self._body += message.get("body", b"")
        complete = not message.get("more_body", False)
        if complete or len(self._body) > get_settings().max_body_bytes:
            scope, send = cast(Scope, self.scope), cast(Send, self.base_send)
            exchange = exchange_of(scope, bytes(self._body), self._ticket.cancellation)
            answer = respond(self._server, exchange, self._ticket, send)
            self._answer = self._tasks.create_task(answer)

    async def http_disconnect(self, message: MutableMapping[str, Any]) -> None:
        """The client has gone, or has its answer: end what still runs."""
        self._ticket.cancellation.cancel()
        if self._answer is not None:
            self._answer.cancel()
        raise StopConsumer
