"""A row writer that waits with rows of one kind until a test lets it write."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from mcp_django.storage.writer import RowKind, row_writer
from tests.kit.drivers import PATIENCE

T = TypeVar("T")


class Gate:
    """Writes rows of a kind once ``may_write`` is set; ``batches`` has the sizes of all batches."""

    def __init__(self, kind: RowKind) -> None:
        self.batches: list[int] = []
        self.is_writing = threading.Semaphore(0)
        self.may_write = threading.Event()
        self._kind = kind
        self._write = kind.write

    def write(self, rows: Any, *, again: bool) -> Any:
        """Wait until rows may be written, and write them."""
        self.batches.append(len(rows))
        self.is_writing.release()
        assert self.may_write.wait(PATIENCE)
        return self._write(rows, again=again)

    async def begun(self) -> None:
        """Wait until one more batch has begun."""
        assert await asyncio.to_thread(self.is_writing.acquire, timeout=PATIENCE)

    async def gather(self, *requests: Coroutine[Any, Any, T]) -> list[asyncio.Task[T]]:
        """Start requests, of which the first blocks the writer while the others' rows queue up."""
        queued, loop, put = asyncio.Semaphore(0), asyncio.get_running_loop(), row_writer._put

        def note(queued_row: Any) -> None:
            put(queued_row)
            if queued_row.kind is self._kind:
                loop.call_soon_threadsafe(queued.release)

        row_writer._put = note
        try:
            first, *others = requests
            tasks = [asyncio.create_task(first)]
            await queued.acquire()
            await self.begun()
            tasks += map(asyncio.create_task, others)
            for _ in others:
                await queued.acquire()
        finally:
            del row_writer._put
        return tasks
