"""SIGTERM: open streams end, so that the server can.

ASGI servers wait for their connections and would wait for an idle stream for ever. The signal is
chained at the first request, in the main thread, since servers install their own handlers late;
nothing depends on the lifespan protocol, which not every server speaks.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from mcp_django.conf import get_settings

logger = logging.getLogger("mcp_django")


class Drain:
    """What has to end, by event loop, when the process is told to stop."""

    def __init__(self) -> None:
        self.draining = False
        self._wakers: dict[asyncio.Event, tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = {}
        self._lock = threading.Lock()

    def chain(self) -> None:
        """Put ourselves before the server's own signal handlers, once, in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            previous = signal.getsignal(number)
            if callable(previous) and not isinstance(previous, _Chained):
                signal.signal(number, _Chained(self, previous))

    def begin(self) -> None:
        """End what is idle now and set a deadline for what is running; for any thread."""
        self.draining = True
        with self._lock:
            waiting = list(self._wakers.items())
        for event, (loop, wake) in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_end, event, wake)

    @contextmanager
    def watch(self, wake: Callable[[], None]) -> Iterator[asyncio.Event]:
        """An event that is set, and a function that is called, when the process has to stop."""
        self.chain()
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


class _Chained:
    """A signal handler that drains first and then does what was to be done."""

    def __init__(self, drain: Drain, previous: Callable[[int, FrameType | None], Any]) -> None:
        self._drain = drain
        self._previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        self._drain.begin()
        return self._previous(number, frame)


def _end(event: asyncio.Event, wake: Callable[[], None]) -> None:
    event.set()
    wake()


_drain = Drain()
idle = _drain.watch
begin = _drain.begin
chain = _drain.chain


def is_draining() -> bool:
    """Whether the process was told to stop."""
    return _drain.draining


@contextmanager
def in_flight(running: asyncio.Future[Any]) -> Iterator[None]:
    """Let a running call go on for ``DRAIN_SECONDS`` after the signal, then cancel it."""
    loop = asyncio.get_running_loop()

    def give_up() -> None:
        if not running.done():
            logger.warning("A call did not finish within DRAIN_SECONDS and was cancelled.")
            running.cancel()

    def set_deadline() -> None:
        loop.call_later(get_settings().drain_seconds, give_up)

    with _drain.watch(set_deadline):
        yield
