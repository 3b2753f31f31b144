"""The stdio transport: one process for one client, one message per line (MCP 2026-07-28).

It serves until the input ends, until the process is told to stop, or until its output is not read
any more; calls that are running then get a moment to finish. The process itself and its signals
belong to the command that serves.
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
from mcp_django.conf import get_settings
from mcp_django.core.catalog import Server
from mcp_django.transports import drain
from mcp_django.transports.conversation import Caller, Conversation, Line, LineSplitter

# Clients kill a process that is not gone two seconds after they closed its input.
GRACE_SECONDS = 1
# For what was stopped then, to tidy up.
CLEANUP_SECONDS = 0.25


class Channel:
    """One client at the other end of two descriptors.

    ``when_ending`` is called, from any thread and more than once, as soon as the end has begun.
    """

    def __init__(self, source: int, sink: int, *, when_ending: Callable[[], None]) -> None:
        limit = get_settings().max_body_bytes
        self._reader = LineReader(source, limit=limit, at_end=when_ending)
        self._writer = LineWriter(sink)
        self._when_ending = when_ending
        self._ended = asyncio.Event()

    async def serve(self, server: Server, caller: Caller, *, admitted: Principal | None) -> None:
        """Serve the client to the end; ``Conversation`` explains the arguments."""
        conversation = Conversation(
            server, caller, send=self._send, admitted=admitted, end=self._ended.set
        )
        reading = asyncio.create_task(self._read(conversation))
        reading.add_done_callback(lambda _: self._ended.set())
        try:
            with drain.idle(self._ended.set) as draining:
                await self._ended.wait()
                self._when_ending()
                reading.cancel()
                # Told to stop, subscriptions take their leave by themselves (SUB-12).
                if not draining.is_set():
                    conversation.end_subscriptions()
                await self._finish(conversation)
        finally:
            self._writer.close()
        await asyncio.wait((reading,))
        if not reading.cancelled():
            reading.result()

    async def _read(self, conversation: Conversation) -> None:
        async with aclosing(self._reader.lines()) as lines:
            async for line in lines:
                await conversation.receive(line)

    async def _send(self, piece: bytes) -> None:
        if not await self._writer.write(piece):
            self._ended.set()

    async def _finish(self, conversation: Conversation) -> None:
        patience = min(GRACE_SECONDS, get_settings().drain_seconds)
        await conversation.finish(seconds=patience)
        conversation.cancel_all()
        await conversation.finish(seconds=CLEANUP_SECONDS)


# Two pipes: lines in and lines out ----------------------------------------------------------------

# Neither blocks the event loop: a thread reads and another writes, since a descriptor may stand
# for a pipe, a terminal or a file, and not every event loop can wait for all of them on every
# platform.

CHUNK_BYTES = 64 * 1024
STDIN, STDOUT, STDERR = 0, 1, 2


def take_over() -> tuple[int, int]:
    """Descriptors of our own for what standard input and output were.

    From now on whatever else the process or its children print goes to standard error, and
    whatever they read is at its end: not one byte of theirs gets between the messages (IO-2).
    What was printed before and waits in Python's buffer goes to standard error as well.
    """
    own = os.dup(STDIN), os.dup(STDOUT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    os.close(nothing)
    os.dup2(STDERR, STDOUT)
    sys.stdout.flush()
    sys.stdout = sys.stderr
    for descriptor in own:
        # Whoever started us may have left them otherwise, and threads of ours wait for them;
        # where there is no such function, there is no other way either.
        with suppress(AttributeError, OSError):
            os.set_blocking(descriptor, True)
    return own


class LineReader:
    """The lines of a descriptor; ``at_end`` is called by the reading thread when they end.

    Nothing is read ahead: while a line is looked at, the rest of its chunk is all that waits.
    """

    def __init__(self, descriptor: int, *, limit: int, at_end: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._splitter = LineSplitter(limit)
        self._at_end = at_end
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._wanted = threading.Semaphore()

    async def lines(self) -> AsyncGenerator[Line, None]:
        """Each line in its turn, to the end of the input."""
        # A daemon, because only the other side can end the waiting for a pipe.
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
            except OSError:  # a terminal that hung up, for example
                chunk = b""
            if not chunk:
                self._at_end()
            # Where the loop has ended, so has the interest.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            if not chunk:
                return


class LineWriter:
    """Writes to a descriptor, one piece after the other, each as a whole."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mcp-stdout")

    async def write(self, piece: bytes) -> bool:
        """Wait until the pipe has taken all of a piece; false when nobody reads any more.

        Giving up on the wait takes back what was not begun; what was begun is finished.
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
        """Take no more; what is being written goes on."""
        self._thread.shutdown(wait=False, cancel_futures=True)
