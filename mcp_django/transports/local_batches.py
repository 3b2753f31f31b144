"""The answer to several messages that came in one line or one event (2025-03-26, BAT-4)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from mcp_django.exceptions import TooManyRequests
from mcp_django.protocol.jsonrpc import Request
from mcp_django.runtime.dispatch import WORK_METHODS
from mcp_django.runtime.throttling import Tally
from mcp_django.transports.desk import at_desk

Respond = Callable[[bytes], Awaitable[None]]
"""Takes the response to one request."""


class BatchAnswer:
    """One array with an entry for each request, whose members are served side by side."""

    def __init__(self) -> None:
        self._entries: list[bytes] = []
        self._running: list[asyncio.Task[None]] = []

    async def add(self, entry: bytes) -> None:
        """Take an entry."""
        self._entries.append(entry)

    def wait_for(self, task: asyncio.Task[None]) -> None:
        """Wait for a task that adds an entry; one that is canceled adds none (CAN-1)."""
        self._running.append(task)

    @property
    def is_awaited(self) -> bool:
        """Whether an entry is still to come."""
        return bool(self._running)

    async def send(self, write: Respond) -> None:
        """Write the array when the last entry is there; without entries there is none."""
        if self._running:
            await asyncio.wait(self._running)
        if self._entries:
            await write(b"[" + b",".join(self._entries) + b"]")


class Muster:
    """Holds the members of a batch back until the uses of all of them are counted."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self.tally = Tally()
        self._awaited = {id(one) for one in requests if one.method in WORK_METHODS}
        self._is_complete = asyncio.Event()
        self._counting: asyncio.Task[TooManyRequests | None] | None = None

    def here(self, request: Request) -> None:
        """Note that a request is admitted, or that it never will be; more than once is once."""
        self._awaited.discard(id(request))
        if not self._awaited:
            self._is_complete.set()

    async def all_counted(self, request: Request) -> None:
        """Wait for the others.

        Raises:
            TooManyRequests: together they are more than may be, so none of them is to run.
        """
        self.here(request)
        await self._is_complete.wait()
        if self._counting is None:
            self._counting = asyncio.create_task(at_desk(self._count))
        # Whoever is cancelled meanwhile leaves the others their answer.
        refusal = await asyncio.shield(self._counting)
        if refusal is not None:
            raise refusal

    def _count(self) -> TooManyRequests | None:
        try:
            self.tally.take()
        except TooManyRequests as exc:
            return exc
        return None
