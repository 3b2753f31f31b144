"""``MCPConsumer``: the endpoint as a Channels consumer, for sites that use consumer middleware.

It handles one message at a time and does not loop inside a handler, so it notices when the client
disconnects while it streams; Channels' own ``AsyncHttpConsumer`` does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from channels.consumer import AsyncConsumer
from channels.exceptions import StopConsumer

from mcp_django.components.catalog import Server
from mcp_django.components.context import Cancellation
from mcp_django.storage.cache import receive_forgotten
from mcp_django.tenants import as_tenant
from mcp_django.transports.asgi_handler import (
    end_connections_of,
    exchange_of,
    needs_tenant,
    send_response,
    tenant_of,
)
from mcp_django.transports.http import BodyReader
from mcp_django.transports.request_checks import ClientDisconnected, set_no_delay, wait_for_first


class MCPConsumer(AsyncConsumer):
    """Serves one server: ``MCPConsumer.as_asgi(server=mcp)`` in a ``URLRouter``."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._cancellation = Cancellation()
        self._answer: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request; an exception propagates, so the server answers with 500."""
        set_no_delay(send)
        receive_forgotten()
        send = end_connections_of(scope, send)
        exchange = exchange_of(scope)
        self._cancellation = exchange.cancellation
        reader = BodyReader(self._server, scope, exchange, receive)
        tenant: str | None = ""
        if needs_tenant(exchange):
            tenant = await tenant_of(exchange, reader, send)
        if tenant is None:
            return
        with as_tenant(tenant):
            try:
                refused = await reader.read()
                if refused is not None:
                    await refused.send(reader.wrap_send(send))
                    return
            except ClientDisconnected:
                return
            async with asyncio.TaskGroup() as tasks:
                answer = send_response(self._server, exchange, send)
                self._answer = tasks.create_task(answer)
                await wait_for_first(tasks.create_task(super().__call__(scope, receive, send)))

    async def http_request(self, message: MutableMapping[str, Any]) -> None:
        """Do nothing: the body of a POST is already read, and other methods have none."""

    async def http_disconnect(self, message: MutableMapping[str, Any]) -> None:
        """Cancel what still runs: the client disconnected, or its answer is complete."""
        self._cancellation.cancel()
        if self._answer is not None:
            self._answer.cancel()
        raise StopConsumer
