"""The stdio transport: one process for one client, one message per line (MCP 2026-07-28).

It serves until the input ends, until the process is told to stop, or until nobody reads what it
writes; what then runs gets a moment to finish. The process itself, its descriptors and its signals
belong to the command that serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings
from mcp_django.core.catalog import Server
from mcp_django.transports import drain
from mcp_django.transports.conversation import Conversation
from mcp_django.transports.opening import Caller
from mcp_django.transports.pipes import LineReader, LineWriter

# Clients kill a process that is not gone two seconds after they closed its input.
GRACE_SECONDS = 1
# For what was stopped then, to tidy up.
CLEANUP_SECONDS = 0.25


class Channel:
    """One client at the other end of two descriptors.

    ``when_ending`` is called, from any thread and more than once, as soon as the end has begun.
    """

    def __init__(self, source: int, sink: int, *, when_ending: Callable[[], None]) -> None:
        limit = get_settings().max_body_bytes
        self._reader = LineReader(source, limit=limit, at_end=when_ending)
        self._writer = LineWriter(sink)
        self._when_ending = when_ending
        self._ended = asyncio.Event()

    async def serve(self, server: Server, caller: Caller, *, admitted: Principal | None) -> None:
        """Serve the client to the end; ``Conversation`` explains the arguments."""
        conversation = Conversation(
            server, caller, send=self._send, admitted=admitted, end=self._ended.set
        )
        reading = asyncio.create_task(self._read(conversation))
        reading.add_done_callback(lambda _: self._ended.set())
        try:
            with drain.idle(self._ended.set) as draining:
                await self._ended.wait()
                self._when_ending()
                reading.cancel()
                # Told to stop, subscriptions take their leave by themselves (SUB-12).
                if not draining.is_set():
                    conversation.end_subscriptions()
                await self._finish(conversation)
        finally:
            self._writer.close()
        await asyncio.wait((reading,))
        if not reading.cancelled():
            reading.result()

    async def _read(self, conversation: Conversation) -> None:
        async with aclosing(self._reader.lines()) as lines:
            async for line in lines:
                await conversation.receive(line)

    async def _send(self, piece: bytes) -> None:
        if not await self._writer.write(piece):
            self._ended.set()

    async def _finish(self, conversation: Conversation) -> None:
        patience = min(GRACE_SECONDS, get_settings().drain_seconds)
        await conversation.finish(seconds=patience)
        conversation.cancel_all()
        await conversation.finish(seconds=CLEANUP_SECONDS)
