"""The stdio transport: one process for one client, one message per line (MCP 2026-07-28).

It serves until the input ends, the process is told to stop, or the output is closed; running calls
then get a short time to finish. The management command handles the process and its signals.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress

from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Server
from mcp_django.conf import get_settings
from mcp_django.execution.call import Channel
from mcp_django.transports import drain
from mcp_django.transports.conversation import Conversation, Line, LineSplitter, PrincipalSource

# Clients kill a process that has not exited two seconds after they closed its input.
GRACE_SECONDS = 1
# How long cancelled requests may take to clean up.
CLEANUP_SECONDS = 0.25


class StdioChannel:
    """The connection to one client over two file descriptors.

    ``when_ending`` is called, from any thread and possibly more than once, when shutdown starts.
    """

    def __init__(self, source: int, sink: int, *, when_ending: Callable[[], None]) -> None:
        limit = get_settings().max_body_bytes
        self._reader = LineReader(source, limit=limit, at_end=when_ending)
        self._writer = LineWriter(sink)
        self._when_ending = when_ending
        self._ended = asyncio.Event()

    async def serve(
        self, server: Server, caller: PrincipalSource, *, authorized: Principal | None
    ) -> None:
        """Serve the client until the end; see ``Conversation`` for the arguments."""
        conversation = Conversation(
            *(server, caller),
            channel=Channel(transport="stdio"),
            send=self._send,
            authorized=authorized,
            end=self._ended.set,
        )
        reading = asyncio.create_task(self._read(conversation))
        reading.add_done_callback(lambda _: self._ended.set())
        try:
            with drain.idle_stream(self._ended.set) as draining:
                await self._ended.wait()
                self._when_ending()
                reading.cancel()
                # On a drain, subscriptions end with their closing result.
                if not draining.is_set():
                    conversation.end_subscriptions()
                patience = min(GRACE_SECONDS, get_settings().drain_seconds)
                await conversation.finish(seconds=patience)
                conversation.cancel_all()
                await conversation.finish(seconds=CLEANUP_SECONDS)
        finally:
            self._writer.close()
        await asyncio.wait((reading,))
        if not reading.cancelled():
            reading.result()

    async def _read(self, conversation: Conversation) -> None:
        async with aclosing(self._reader.lines()) as lines:
            async for line in lines:
                await conversation.process_line(line)

    async def _send(self, piece: bytes) -> None:
        if not await self._writer.write(piece):
            self._ended.set()


# One thread reads and another writes, so neither blocks the event loop: a descriptor may be a pipe,
# a terminal or a file, and event loops cannot wait for all of these on every platform.

CHUNK_BYTES = 64 * 1024
STDIN, STDOUT, STDERR = 0, 1, 2


def take_over_stdio() -> tuple[int, int]:
    """Duplicate standard input and output for the transport, and redirect the originals.

    Afterwards, everything else that the process or its children print goes to standard error, and
    reading standard input returns end of file, so no foreign bytes get between the messages. Text
    that is still in Python's output buffer goes to standard error as well.
    """
    own = os.dup(STDIN), os.dup(STDOUT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    os.close(nothing)
    os.dup2(STDERR, STDOUT)
    sys.stdout.flush()
    sys.stdout = sys.stderr
    for descriptor in own:
        # The parent process may have made them non-blocking, but the threads need blocking ones.
        # Platforms without this function have no other way to set it.
        with suppress(AttributeError, OSError):
            os.set_blocking(descriptor, True)
    return own


class LineReader:
    """Reads the lines of a descriptor; the reading thread calls ``at_end`` at the end of input.

    Nothing is read ahead: while a line is processed, only the rest of its chunk is buffered.
    """

    def __init__(self, descriptor: int, *, limit: int, at_end: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._splitter = LineSplitter(limit)
        self._at_end = at_end
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._wanted = threading.Semaphore()

    async def lines(self) -> AsyncGenerator[Line, None]:
        """Yield each line until the end of the input."""
        # A daemon thread, because only the other side can end a blocking read of a pipe.
        threading.Thread(target=self._read, name="mcp-stdin", daemon=True).start()
        while chunk := await self._chunks.get():
            for line in self._splitter.feed(chunk):
                yield line
            self._wanted.release()
        for line in self._splitter.end():
            yield line

    def _read(self) -> None:
        while self._wanted.acquire():
            try:
                chunk = os.read(self._descriptor, CHUNK_BYTES)
            except OSError:  # for example, the terminal was closed
                chunk = b""
            if not chunk:
                self._at_end()
            # The loop may already be closed.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            if not chunk:
                return


class LineWriter:
    """Writes to a descriptor in one thread, so that messages are not interleaved."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mcp-stdout")

    async def write(self, piece: bytes) -> bool:
        """Write a whole piece; return ``False`` if the pipe is closed.

        Cancelling withdraws a piece that is not started yet; a started one is finished.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._write, piece)

    def _write(self, piece: bytes) -> bool:
        rest = memoryview(piece)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Accept no more pieces; the one that is being written is finished."""
        self._thread.shutdown(wait=False, cancel_futures=True)
