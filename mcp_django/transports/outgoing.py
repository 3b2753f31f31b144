"""The messages of one answer, before a transport gives them a form of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from mcp_django.exceptions import MCPError
from mcp_django.protocol import jsonrpc, sse
from mcp_django.protocol.errors import error_object
from mcp_django.runtime.incoming import Incoming


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message as JSON; after the response nothing of its request follows."""

    body: bytes
    is_response: bool = False
    hangs_up: float | None = None
    """After how many seconds the client is to come back; ``None``: it may stay."""


SILENCE = Outgoing(b"")
"""Nothing to say for a while: where others watch the connection, it is time for a sign of life."""

Messages = AsyncGenerator[Outgoing, None]
"""An answer. One that cannot be given, or no longer, raises an ``MCPError`` instead of ending."""


def failure(incoming: Incoming, exc: MCPError) -> bytes:
    """The response that says why there is no result."""
    error = error_object(exc, incoming.revision)
    return jsonrpc.encode(jsonrpc.error_message(incoming.request.id, error))


async def as_events(incoming: Incoming, messages: Messages) -> AsyncGenerator[bytes, None]:
    """An answer as server-sent events; after the first byte an error is an event too (ERR-4)."""
    try:
        async with aclosing(messages):
            async for message in messages:
                yield sse.encode_event(message.body) if message.body else sse.COMMENT
    except MCPError as exc:
        yield sse.encode_event(failure(incoming, exc))
