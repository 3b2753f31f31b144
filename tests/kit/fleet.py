"""Several worker processes behind an imaginary load balancer without sticky sessions."""

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
    """The workers; `serving` are the workers in the rotation."""

    def __init__(self, directory: Path, environ: Mapping[str, str], stack: ExitStack) -> None:
        self._directory = directory
        self._environ = environ
        self._stack = stack
        self.serving: list[Server] = []
        self.every: list[Server] = []
        self._handed: Counter[int] = Counter()
        self._taken = asyncio.Event()

    async def grow(self, workers: int = 1) -> None:
        """Start more workers, all at the same time."""
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
        """Return a random worker of the rotation."""
        return random.choice(self.serving)

    def other_than(self, server: Server) -> Server:
        """Return a random worker of the rotation that is not this one."""
        return random.choice([worker for worker in self.serving if worker is not server])

    def kill(self, server: Server) -> None:
        """Kill a worker without notice, as the kernel does when memory is short."""
        os.kill(server.process.pid, signal.SIGKILL)

    def stop(self, server: Server) -> None:
        """Suspend a worker."""
        os.kill(server.process.pid, signal.SIGSTOP)

    def proceed(self, server: Server) -> None:
        """Resume a suspended worker."""
        os.kill(server.process.pid, signal.SIGCONT)

    @contextmanager
    def handing(self, server: Server) -> Iterator[str]:
        """Yield the address of a worker, for the time until a request has arrived there."""
        self._handed[server.port] += 1
        try:
            yield f"{server.url}/mcp"
        finally:
            self._handed[server.port] -= 1
            self._taken.set()

    def drop(self, server: Server) -> None:
        """Take a worker out of the rotation immediately."""
        self.serving.remove(server)

    async def retire(self, server: Server) -> None:
        """Take a worker out of the rotation; wait until it has begun to answer its requests.

        A load balancer does this before a worker is stopped: when a port is closed, the kernel
        refuses the connections that wait to be accepted.
        """
        self.drop(server)
        async with asyncio.timeout(RETIRE_SECONDS):
            while self._handed[server.port]:
                self._taken.clear()
                await self._taken.wait()

    @property
    def complaints(self) -> list[str]:
        """The output of workers that logged a traceback or an exception that was not retrieved."""
        return [
            server.output
            for server in self.every
            if "Traceback" in server.output or "never retrieved" in server.output
        ]


@asynccontextmanager
async def fleet(
    directory: Path, environ: Mapping[str, str], *, workers: int
) -> AsyncIterator[Fleet]:
    """Start workers with a shared database; stop all of them at the end of the block."""
    with ExitStack() as stack:
        new_fleet = Fleet(directory, environ, stack)
        await new_fleet.grow(workers)
        yield new_fleet
