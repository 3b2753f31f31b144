"""A call whose progress and log messages precede its answer on one event stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from mcp_django.conf import get_settings
from mcp_django.exceptions import InternalError, MCPError
from mcp_django.protocol import jsonrpc, sse
from mcp_django.protocol.errors import error_object
from mcp_django.runtime import calls
from mcp_django.runtime.dispatch import respond
from mcp_django.runtime.incoming import Invocation
from mcp_django.transports import drain
from mcp_django.transports.mailbox import Mailbox
from mcp_django.transports.port import StreamPort


async def stream(invocation: Invocation) -> AsyncGenerator[bytes, None]:
    """The events of a call: messages, then the response, then the end.

    Closing the generator is how the client cancels (HTTP-26): an async function is cancelled, a
    synchronous one finds ``ctx.cancelled`` raised and its answer is dropped.
    """
    mailbox = Mailbox()
    port = StreamPort(invocation.incoming, mailbox)
    # Proxies and hosts give up on a stream whose first byte is late.
    yield sse.COMMENT
    running = asyncio.ensure_future(_answer(invocation, port))
    running.add_done_callback(lambda _: mailbox.wake())
    try:
        with drain.in_flight(running):
            while not running.done():
                if not await mailbox.wait(get_settings().keepalive_seconds):
                    yield sse.COMMENT
                for message in mailbox.take():
                    yield sse.encode_event(jsonrpc.encode(message))
        for message in mailbox.take():
            yield sse.encode_event(jsonrpc.encode(message))
        yield sse.encode_event(_cut_off(invocation) if running.cancelled() else running.result())
    finally:
        invocation.cancellation.cancel()
        running.cancel()


async def _answer(invocation: Invocation, port: StreamPort) -> bytes:
    """The response as bytes; after the first byte an error is an event too (ERR-4)."""
    incoming = invocation.incoming
    try:
        return respond(incoming, await calls.execute(invocation, port))
    except MCPError as exc:
        return _error(invocation, exc)


def _cut_off(invocation: Invocation) -> bytes:
    """The response of a call that the end of the process cut off."""
    return _error(invocation, InternalError("The server is stopping; call again."))


def _error(invocation: Invocation, exc: MCPError) -> bytes:
    incoming = invocation.incoming
    error = error_object(exc, incoming.revision)
    return jsonrpc.encode(jsonrpc.error_message(incoming.request.id, error))
