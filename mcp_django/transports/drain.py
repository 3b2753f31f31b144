"""Graceful shutdown: end open streams on SIGTERM or SIGINT, so that the server can stop.

ASGI servers wait for their connections and would wait forever for an idle stream. The signal
handlers are installed at the first request, in the main thread, because servers install their own
handlers late. The lifespan protocol is not used, since not every server supports it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

from mcp_django.conf import get_settings
from mcp_django.storage.call_rows import call_log
from mcp_django.storage.writer import row_writer

logger = logging.getLogger("mcp_django")

LOOK_SECONDS = 1.0
# How often a process that waits for running work checks whether it is done.
HELD_SECONDS = 0.05


class Drain:
    """Ends streams and calls on their event loops when the process is told to stop."""

    def __init__(self) -> None:
        self.draining = False
        self._looks_at = 0.0
        """When to check again whether the server has installed handlers."""
        self._held: set[object] = set()
        self._wakers: dict[asyncio.Event, tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = {}
        # Reentrant: a signal handler runs in the main thread, which may already hold the lock.
        self._lock = threading.RLock()

    def install_signal_handlers(self) -> None:
        """Wrap the server's own signal handlers, once; do nothing outside the main thread.

        It checks for them at most once in ``LOOK_SECONDS``, since a check costs a tenth of a call.
        """
        now = time.monotonic()
        if now < self._looks_at or threading.current_thread() is not threading.main_thread():
            return
        self._looks_at = now + LOOK_SECONDS
        for number in (signal.SIGTERM, signal.SIGINT):
            previous = signal.getsignal(number)
            if callable(previous) and not isinstance(previous, _SignalHandler):
                signal.signal(number, _SignalHandler(self, previous))

    def begin(self) -> None:
        """End idle streams now and set a deadline for running calls; thread-safe."""
        if not self.draining:
            self.draining = True
            for writer in (call_log, row_writer):
                # Keeps the process alive until the queued rows are written.
                holder = object()
                self._held.add(holder)
                writer.flush_and_stop(partial(self._held.discard, holder))
        with self._lock:
            waiting = list(self._wakers.items())
        for event, (loop, wake) in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_end, event, wake)

    @contextmanager
    def watch(self, wake: Callable[[], None]) -> Iterator[asyncio.Event]:
        """Yield an event; set it and call ``wake`` when the process has to stop."""
        self.install_signal_handlers()
        event = asyncio.Event()
        with self._lock:
            self._wakers[event] = asyncio.get_running_loop(), wake
        if self.draining:
            _end(event, wake)
        try:
            yield event
        finally:
            with self._lock:
                del self._wakers[event]

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep the process alive inside the block, for ``DRAIN_SECONDS`` at most.

        Servers wait for their connections, but would stop a call that runs without one.
        """
        holder = object()
        self._held.add(holder)
        try:
            yield
        finally:
            self._held.discard(holder)

    def call_when_released(self, then: Callable[[], Any]) -> bool:
        """Call ``then`` on the running loop when no ``hold_process`` block is left.

        It is called after ``DRAIN_SECONDS`` at the latest. Return ``False`` and do not schedule the
        call if there is no such block or no running loop.
        """
        if not self._held:
            return False
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        self._check(loop, loop.time() + get_settings().drain_seconds, then)
        return True

    def _check(
        self, loop: asyncio.AbstractEventLoop, deadline: float, then: Callable[[], Any]
    ) -> None:
        if self._held and loop.time() < deadline:
            loop.call_later(HELD_SECONDS, self._check, loop, deadline, then)
        else:
            then()


class _SignalHandler:
    """A signal handler that starts the drain and then calls the previous handler."""

    def __init__(self, drain: Drain, previous: Callable[[int, FrameType | None], Any]) -> None:
        self._drain = drain
        self._previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        is_again = self._drain.draining
        self._drain.begin()
        # A second signal means: stop immediately.
        if not is_again and self._drain.call_when_released(partial(self._previous, number, None)):
            return None
        return self._previous(number, frame)


def _end(event: asyncio.Event, wake: Callable[[], None]) -> None:
    event.set()
    wake()


_drain = Drain()
idle_stream = _drain.watch
hold_process = _drain.hold
begin_drain = _drain.begin
install_signal_handlers = _drain.install_signal_handlers


def is_draining() -> bool:
    """Return whether the process was told to stop."""
    return _drain.draining


@contextmanager
def cancel_at_drain_deadline(running: asyncio.Future[Any]) -> Iterator[None]:
    """Let a running call continue for ``DRAIN_SECONDS`` after the signal, then cancel it."""
    loop = asyncio.get_running_loop()

    def cancel_call() -> None:
        if not running.done():
            logger.warning("A call did not finish within DRAIN_SECONDS and was cancelled.")
            running.cancel()

    def set_deadline() -> None:
        loop.call_later(get_settings().drain_seconds, cancel_call)

    with _drain.watch(set_deadline):
        yield
