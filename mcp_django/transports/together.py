"""``Together``: what ends in one turn of an event loop, handled in one go."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from mcp_django.transports.desk import insist_at_desk

T = TypeVar("T")


class Together(Generic[T]):
    """Collects items for a function of the store, which runs in a thread.

    As long as the database is away it is called again, so it has to bear repetition.
    """

    def __init__(self, write: Callable[[list[T]], Any]) -> None:
        self._write = write
        self._batches: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Batch[T]] = (
            weakref.WeakKeyDictionary()
        )

    async def add(self, item: T) -> None:
        """Hand an item over; returns once it is written."""
        loop = asyncio.get_running_loop()
        batch = self._batches.get(loop)
        if batch is None:
            batch = self._batches[loop] = Batch(self._write, then=partial(self._batches.pop, loop))
        batch.items.append(item)
        # Whoever is cancelled meanwhile leaves the others their transaction.
        await asyncio.shield(batch.writing)


class Batch(Generic[T]):
    """The items of one turn."""

    def __init__(self, write: Callable[[list[T]], Any], *, then: Callable[[], Any]) -> None:
        self.items: list[T] = []
        self.writing = asyncio.create_task(self._run(write, then))

    async def _run(self, write: Callable[[list[T]], Any], then: Callable[[], Any]) -> None:
        # The task begins after everything that is ready now; from here on a new batch is begun.
        then()
        await insist_at_desk(partial(write, self.items))
