"""A bounded queue from a running call, or the hub, to the stream that carries it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Hashable
from itertools import count
from typing import Any

# Messages that one stream may have waiting; daphne has no back-pressure of its own.
SIZE = 256
# Stands where other messages have their serial number.
_ONCE = -1


class Mailbox:
    """Messages in the order they came, at most ``SIZE`` of them.

    When a reader is too slow, the oldest message of the same ``key`` gives way, else the oldest
    with any: they are progress or log messages, and a newer one of the kind says more. Belongs to
    one event loop; ``post`` alone may be called from any thread, and wakes the loop once for all
    that is posted until it looks, so that a chatty thread fills nothing but the box.
    """

    def __init__(self, size: int = SIZE) -> None:
        self._loop = asyncio.get_running_loop()
        self._size = size
        self._serial = count()
        self._waiting: dict[tuple[Hashable, int], Any] = {}
        self._filled = asyncio.Event()
        self._lock = threading.Lock()
        self._is_waking = False

    def post(self, message: Any, *, key: Hashable = None) -> None:
        """Queue a message from any thread; after the end of the loop it is dropped."""
        with self._lock:
            self._add(message, key)
            if self._is_waking:
                return
            self._is_waking = True
        try:
            self._loop.call_soon_threadsafe(self._filled.set)
        except RuntimeError:
            return

    def put(self, message: Any, key: Hashable = None) -> None:
        """Queue a message on the loop; in a full box an older one gives way."""
        with self._lock:
            self._add(message, key)
        self._filled.set()

    def _add(self, message: Any, key: Hashable) -> None:
        if len(self._waiting) >= self._size:
            self._make_room(key)
        self._waiting[(key, next(self._serial))] = message

    def _make_room(self, key: Hashable) -> None:
        waiting = list(self._waiting)
        alike = [entry for entry in waiting if key is not None and entry[0] == key]
        keyed = [entry for entry in waiting if entry[0] is not None]
        oldest = (alike or keyed or waiting)[0]
        del self._waiting[oldest]

    def put_once(self, message: Hashable) -> None:
        """Queue a message on the loop unless it waits already.

        Nothing gives way for it, so the caller bounds how many different ones there are.
        """
        with self._lock:
            self._waiting.setdefault((message, _ONCE), message)
        self._filled.set()

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
        with self._lock:
            taken = list(self._waiting.values())
            self._waiting.clear()
            self._is_waking = False
        self._filled.clear()
        return taken

    def wake(self) -> None:
        """Let ``wait`` return although no message came; for the loop's own thread."""
        self._filled.set()
