"""Short work of the store, from the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from django.db import InterfaceError, OperationalError

from mcp_django.exceptions import Busy
from mcp_django.runtime.pools import pool, with_request_signals

logger = logging.getLogger("mcp_django")

T = TypeVar("T")

# How long a desk that is busy is left alone.
PATIENCE_SECONDS = 0.5


async def at_desk(work: Callable[[], T]) -> T:
    """Run a short piece of work of the store in a thread; a busy desk is asked again."""
    return await asked_until_free(lambda: pool("desk").run(partial(with_request_signals, work)))


async def asked_until_free(ask: Callable[[], Awaitable[T]]) -> T:
    """What a function says that needs a thread, as soon as there is a free one."""
    while True:
        try:
            return await ask()
        except Busy:
            await asyncio.sleep(PATIENCE_SECONDS)


async def insist_at_desk(work: Callable[[], T]) -> T:
    """``at_desk`` for what has to be stored: as long as the database is away, it is tried again.

    The work may have been done although it failed, so it has to bear repetition.
    """
    while True:
        try:
            return await at_desk(work)
        except (OperationalError, InterfaceError) as exc:
            logger.warning("The database could not be written to (%s); it is tried again.", exc)
            await asyncio.sleep(PATIENCE_SECONDS)


def on_loop(function: Callable[[], object]) -> Callable[[], None]:
    """The function, for any thread, called on the loop that runs now."""
    loop = asyncio.get_running_loop()

    def call() -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(function)

    return call
