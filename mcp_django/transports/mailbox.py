"""A bounded queue from a running call, or the hub, to the stream that carries it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from itertools import count
from typing import Any

# Messages that one stream may have waiting; daphne has no back-pressure of its own.
SIZE = 256


class Mailbox:
    """Messages in the order they came, at most ``SIZE`` of them.

    When a reader is too slow, the oldest message that has a ``key`` gives way: it is a progress
    or change notice, and a newer one of the kind says more. Belongs to one event loop;
    ``post`` alone may be called from any thread.
    """

    def __init__(self, size: int = SIZE) -> None:
        self._loop = asyncio.get_running_loop()
        self._size = size
        self._serial = count()
        self._waiting: OrderedDict[Hashable, Any] = OrderedDict()
        self._filled = asyncio.Event()

    def post(self, message: Any, *, key: Hashable = None) -> None:
        """Queue a message from any thread; after the end of the loop it is dropped."""
        try:
            self._loop.call_soon_threadsafe(self.put, message, key)
        except RuntimeError:
            return

    def put(self, message: Any, key: Hashable = None) -> None:
        """Queue a message on the loop; one with the key of a waiting one replaces it if full."""
        if len(self._waiting) >= self._size:
            self._make_room(key)
        self._waiting[(key, next(self._serial))] = message
        self._filled.set()

    def _make_room(self, key: Hashable) -> None:
        candidates = [entry for entry in self._waiting if self._yields(entry, key)]
        oldest = candidates[0] if candidates else next(iter(self._waiting))
        del self._waiting[oldest]

    def _yields(self, entry: Hashable, key: Hashable) -> bool:
        assert isinstance(entry, tuple)
        return entry[0] is not None and (key is None or entry[0] == key)

    async def wait(self, timeout: float) -> bool:
        """Whether a message came within so many seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._filled.wait()
        except TimeoutError:
            return False
        return True

    def take(self) -> list[Any]:
        """Everything that waits, in order."""
        taken = list(self._waiting.values())
        self._waiting.clear()
        self._filled.clear()
        return taken

    def wake(self) -> None:
        """Let ``wait`` return although no message came; for the loop's own thread."""
        self._filled.set()
