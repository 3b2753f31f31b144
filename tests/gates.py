"""A database that writes rows of one kind when it is told to."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from mcp_django.storage.writer import RowKind
from tests.drivers import PATIENCE


class Gate:
    """Writes rows of a kind when it is opened; ``batches`` are the sizes of what was begun."""

    def __init__(self, kind: RowKind) -> None:
        self.batches: list[int] = []
        self.is_writing = threading.Semaphore(0)
        self.may_write = threading.Event()
        self._write = kind.write

    def write(self, rows: Any, *, again: bool) -> Any:
        """Write rows when the gate is open."""
        self.batches.append(len(rows))
        self.is_writing.release()
        assert self.may_write.wait(PATIENCE)
        return self._write(rows, again=again)

    async def begun(self) -> None:
        """Return when one more batch has begun."""
        assert await asyncio.to_thread(self.is_writing.acquire, timeout=PATIENCE)
