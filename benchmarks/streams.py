"""Measure open streams: memory and threads while they are idle, and CPU per event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.load import (
    HOST,
    UnexpectedResponse,
    call,
    get_stream_request,
    open_session,
    request_2026,
    send_load,
    send_once,
    subscribe,
)
from benchmarks.process import Process

TOUCHED = "bench://touched"
LISTEN, GET = KINDS = ("listen", "GET")
TIMEOUT_SECONDS = 60
# Threads close their database connections after five seconds without work.
SETTLE_SECONDS = 7
SAMPLE_SECONDS = 0.2
# Changes within 50 ms of each other are merged into one event; this is well above.
CHANGE_INTERVAL_SECONDS = 0.2
WARM_UP_SECONDS = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFigures:
    """The measurements of a number of streams on one mount."""

    mount: str
    kind: str
    """The kind of stream: ``listen`` of 2026-07-28, or ``GET`` in a session of 2025-11-25."""
    streams: int
    bytes_each: float
    """Physical memory of the server per stream, including its connection to the client."""
    threads: int
    """Number of threads added after the first stream was opened."""
    database_connections: int
    """Least number of database connections while the streams are idle."""
    open_cpu: float
    """Microseconds of CPU to open a stream."""
    event_cpu: float
    """Microseconds of CPU for one event at one client."""
    event_ms: float
    """Milliseconds from the call that changes something to the event at the last client, median."""
    stop_seconds: float
    """Seconds from SIGTERM to the exit of the process, with every stream open."""


class Listener:
    """A client with one stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def listen(self, mount: str) -> None:
        """Request the stream of 2026-07-28 and wait for the acknowledgment."""
        params = {"notifications": {"resourceSubscriptions": [TOUCHED]}}
        self._writer.write(request_2026(mount, "subscriptions/listen", params))
        await self.event(b"/acknowledged")

    async def stand(self, port: int, mount: str) -> None:
        """Open a session with its GET stream, and subscribe to the resource."""
        headers = await asyncio.to_thread(open_session, port, mount)
        self._writer.write(get_stream_request(mount, headers))
        await self._line(b"content-type: text/event-stream")
        await asyncio.to_thread(subscribe, port, mount, headers, TOUCHED)

    async def event(self, text: bytes) -> None:
        """Wait for an event with this text.

        Raises:
            UnexpectedResponse: the server closed the connection.
            TimeoutError: the event did not arrive in time.
        """
        await self._line(b"data:", text)

    async def _line(self, prefix: bytes, text: bytes = b"") -> None:
        received = bytearray()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while line := await self._reader.readline():
                if line.lower().startswith(prefix) and text in line:
                    return
                received += line
        raise UnexpectedResponse(received.decode("latin-1") or "closed")

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


@asynccontextmanager
async def open_streams(
    port: int, mount: str, kind: str, streams: int
) -> AsyncIterator[Sequence[Listener]]:
    """Open a number of streams, and close them when the block ends."""
    listeners = []
    async with AsyncExitStack() as stack:
        for _ in range(streams):
            listener = Listener(*await asyncio.open_connection(HOST, port))
            stack.callback(listener.close)
            await (listener.stand(port, mount) if kind == GET else listener.listen(mount))
            listeners.append(listener)
        yield listeners


async def measure_streams(
    server: Process, database: Path, mount: str, kind: str, *, streams: int, changes: int
) -> StreamFigures:
    """Open streams, measure them idle, cause some events, and stop the server."""
    await _warm_up(server, mount, kind)
    memory, threads, cpu = server.memory, server.threads, server.cpu_seconds
    async with open_streams(server.port, mount, kind, streams) as listeners:
        opened_at = server.cpu_seconds
        connections = await _least_connections(server, database)
        idle = server.memory, server.threads, connections
        before = server.cpu_seconds
        delays = [await _measure_change(server, listeners) for _ in range(changes)]
        delivering = server.cpu_seconds - before
        stopped = await _measure_stop(server)
    return StreamFigures(
        mount=mount,
        kind=kind,
        streams=streams,
        bytes_each=(idle[0] - memory) / streams,
        threads=idle[1] - threads,
        database_connections=idle[2],
        open_cpu=(opened_at - cpu) / streams * 1e6,
        event_cpu=delivering / (streams * changes) * 1e6,
        event_ms=median(delays) * 1e3,
        stop_seconds=stopped,
    )


async def _least_connections(server: Process, database: Path) -> int:
    """Return the least number of connections to the database, once it no longer falls.

    The process also opens a connection now and then, independently of the streams.
    """
    least, since = server.open_files(database), time.monotonic()
    while time.monotonic() < since + SETTLE_SECONDS:
        await asyncio.sleep(SAMPLE_SECONDS)
        number = server.open_files(database)
        if number < least:
            least, since = number, time.monotonic()
    return least


async def _warm_up(server: Process, mount: str, kind: str) -> None:
    """Make the server start the threads of its pools, which do not belong to a stream."""
    for request in (call("/mcp", "add_sync", a=2, b=3), request_2026("/mcp", "tools/list")):
        await asyncio.to_thread(send_load, server.port, [[request]], seconds=WARM_UP_SECONDS)
    async with open_streams(server.port, mount, kind, 20) as listeners:
        await _measure_change(server, listeners)


async def _measure_change(server: Process, listeners: Sequence[Listener]) -> float:
    """Change the resource; return the seconds until every listener has the event."""
    touch = call("/raw", "touch")
    started = time.perf_counter()
    await asyncio.to_thread(send_once, server.port, touch, expects=b"touched")
    await asyncio.gather(*(listener.event(b"/updated") for listener in listeners))
    took = time.perf_counter() - started
    await asyncio.sleep(CHANGE_INTERVAL_SECONDS)
    return took


async def _measure_stop(server: Process) -> float:
    started = time.perf_counter()
    server.popen.terminate()
    await asyncio.to_thread(server.popen.wait)
    return time.perf_counter() - started
