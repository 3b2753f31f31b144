"""Several worker processes behind one imaginary load balancer that knows no stickiness."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from tests.kit.databases import SETTINGS
from tests.kit.processes import Server, serving

APPLICATION = "tests.transports.http_session.asgi:application"
RETIRE_SECONDS = 30


class Fleet:
    """The workers; `serving` are those in the rotation."""

    def __init__(self, directory: Path, environ: Mapping[str, str], stack: ExitStack) -> None:
        self._directory = directory
        self._environ = environ
        self._stack = stack
        self.serving: list[Server] = []
        self.every: list[Server] = []
        self._handed: Counter[int] = Counter()
        self._taken = asyncio.Event()

    async def grow(self, workers: int = 1) -> None:
        """Start more workers, all at once."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._start())

    async def _start(self) -> None:
        starting = serving(
            "uvicorn", APPLICATION, self._directory, settings=SETTINGS, **self._environ
        )
        server = await asyncio.to_thread(self._stack.enter_context, starting)
        self.every.append(server)
        self.serving.append(server)

    def any(self) -> Server:
        """A random worker of the rotation."""
        return random.choice(self.serving)

    def other_than(self, server: Server) -> Server:
        """A random worker of the rotation that is not this one."""
        return random.choice([worker for worker in self.serving if worker is not server])

    def kill(self, server: Server) -> None:
        """End a worker as the kernel does when memory is short; nobody is told."""
        os.kill(server.process.pid, signal.SIGKILL)

    def stop(self, server: Server) -> None:
        """Halt a worker where it stands."""
        os.kill(server.process.pid, signal.SIGSTOP)

    def proceed(self, server: Server) -> None:
        """Let a halted worker go on."""
        os.kill(server.process.pid, signal.SIGCONT)

    @contextmanager
    def handing(self, server: Server) -> Iterator[str]:
        """The address of a worker, while a request is on its way there."""
        self._handed[server.port] += 1
        try:
            yield f"{server.url}/mcp"
        finally:
            self._handed[server.port] -= 1
            self._taken.set()

    def drop(self, server: Server) -> None:
        """Take a worker out of the rotation at once."""
        self.serving.remove(server)

    async def retire(self, server: Server) -> None:
        """Take a worker out of the rotation, and wait until it has begun to answer what it got.

        A balancer does that before it lets a worker be told to stop: what waits to be accepted
        when a port is closed is refused by the kernel.
        """
        self.drop(server)
        async with asyncio.timeout(RETIRE_SECONDS):
            while self._handed[server.port]:
                self._taken.clear()
                await self._taken.wait()

    @property
    def complaints(self) -> list[str]:
        """What workers logged that is not to be: tracebacks, and tasks whose failure nobody saw."""
        return [
            server.output
            for server in self.every
            if "Traceback" in server.output or "never retrieved" in server.output
        ]


@asynccontextmanager
async def fleet(
    directory: Path, environ: Mapping[str, str], *, workers: int
) -> AsyncIterator[Fleet]:
    """So many workers over a shared database; all are gone at the end."""
    with ExitStack() as stack:
        new_fleet = Fleet(directory, environ, stack)
        await new_fleet.grow(workers)
        yield new_fleet
