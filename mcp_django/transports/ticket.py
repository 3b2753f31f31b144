"""What the loop knows of work that it gave to a thread: whether to give up on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

from mcp_django.core.context import Cancellation
from mcp_django.runtime.calls import time_limit
from mcp_django.transports.body import first_done
from mcp_django.transports.exchange import Message, Reply, Work
from mcp_django.transports.finishing import timed_out

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Ticket:
    """Goes with a request into a thread, which notes on it what it begins to run."""

    cancellation: Cancellation = field(default_factory=Cancellation)
    work: Work | None = None
    deadline: float | None = None
    view: object = None
    """For which view the lane had a look at the head."""
    refusal: Reply | None = None
    """What the request is answered whose body was not read to its end."""
    body: bytes = b""
    message: Message | None = None
    """What this body says; middleware may have put another in its place."""

    def start(self, work: Work) -> None:
        """Note that this call begins now; for the thread."""
        self.deadline = time.monotonic() + time_limit(work.invocation)
        self.work = work


async def in_time(ticket: Ticket, running: Awaitable[T]) -> T | Reply:
    """What the thread gives, or the answer to a call that it did not finish in time.

    The thread goes on, since nothing can stop it; its answer is dropped.
    """
    task = asyncio.ensure_future(running)
    try:
        while not task.done():
            await first_done(task, timeout=_patience(ticket))
            if task.done() or ticket.work is None or _patience(ticket) > 0:
                continue
            return await timed_out(ticket.work)
        return task.result()
    finally:
        task.cancel()


def _patience(ticket: Ticket) -> float:
    """Seconds until it is worth looking again."""
    if ticket.deadline is None:
        return 1.0
    return max(0.0, ticket.deadline - time.monotonic())
