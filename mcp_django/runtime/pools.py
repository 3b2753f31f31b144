"""The threads of a process: *work* runs the site's functions, *desk* everything short.

Two pools, so that a list or a sign-in never waits behind a slow tool. A full work pool queues a
bounded number of calls for a bounded time and then says so.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Literal, ParamSpec, Self, TypeVar

from django.core.signals import request_finished, request_started

from mcp_django.conf import get_settings
from mcp_django.exceptions import Busy
from mcp_django.runtime.transactions import LeftOpen, all_left

logger = logging.getLogger("mcp_django")

P = ParamSpec("P")
T = TypeVar("T")

DESK_THREADS = 2
# Many clients come back at once after a restart; what they ask for first is short.
DESK_QUEUE = 1024


class BoundedPool:
    """A pool of threads with a bounded queue before it; the threads stay until the process ends."""

    def __init__(self, name: str, *, threads: int, queue: int, queue_seconds: float) -> None:
        self.name = name
        self.queue_seconds = queue_seconds
        self._threads = threads
        self._room = threads + queue
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=f"mcp-{name}")
        self._taken = 0
        self._lock = threading.Lock()
        self._start(threads)

    def _start(self, threads: int) -> None:
        """Start all threads at once.

        From CPython 3.12 on, an executor that starts them one by one now and then counts an idle
        one twice. It would start none for a call then, which waited behind another for nothing.
        """
        go_on = threading.Event()
        for _ in range(threads):
            self._executor.submit(go_on.wait)
        go_on.set()

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread with the caller's context variables.

        Raises:
            Busy: the queue is full, or no thread became free in time; nothing has run.
        """
        started = threading.Event()
        context = contextvars.copy_context()

        def work() -> T:
            started.set()
            return context.run(function, *args, **kwargs)

        future = self.submit(work)
        waiting = asyncio.wrap_future(future)
        try:
            if self._taken > self._threads:
                await asyncio.wait([waiting], timeout=self.queue_seconds)
                # A future that can still be cancelled has not begun.
                if not waiting.done() and not started.is_set() and future.cancel():
                    raise self._busy()
            return await waiting
        except asyncio.CancelledError:
            # Nobody waits any more: what has not begun need not.
            future.cancel()
            raise

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Queue a function without waiting.

        Raises:
            Busy: the queue is full.
        """
        with self._lock:
            if self._taken >= self._room:
                raise self._busy()
            self._taken += 1
        future = self._executor.submit(function)
        future.add_done_callback(self._leave)
        return future

    def _leave(self, _: Future[Any]) -> None:
        with self._lock:
            self._taken -= 1

    def _busy(self) -> Busy:
        return Busy(
            "All workers are busy; try again in a moment.",
            data={"retryAfter": int(self.queue_seconds) or 1},
        )


def pool(name: Literal["work", "desk"]) -> BoundedPool:
    """One of the two pools of this process, made at first use."""
    found = _pools.get(name)
    if found is not None:
        return found
    # Two pools of one name would be twice as many threads as there may be.
    with _making:
        return _pools.get(name) or _pools.setdefault(name, _make(name))


_pools: dict[str, BoundedPool] = {}
_making = threading.Lock()


def _make(name: str) -> BoundedPool:
    settings = get_settings()
    threads, queue = (
        (settings.threads, settings.queue) if name == "work" else (DESK_THREADS, DESK_QUEUE)
    )
    return BoundedPool(name, threads=threads, queue=queue, queue_seconds=settings.queue_seconds)


def with_request_signals(function: Callable[[], T], **details: Any) -> T:
    """Run a function between the signals by which Django tends a thread's connections."""
    request_started.send(sender=BoundedPool, **details)
    try:
        return function()
    finally:
        request_finished.send(sender=BoundedPool)


class LeasedThread(Executor):
    """One thread of the work pool for one async call, taken when first needed.

    An async function that never touches the ORM pays nothing. ``around`` makes what surrounds all
    that the thread does for the call, in the thread itself.
    """

    def __init__(self, around: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._around = around
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self._thread: Future[None] | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue one call for the leased thread.

        Raises:
            Busy: the work pool is full.
        """
        future: Future[T] = Future()
        if self._thread is None:
            self._thread = pool("work").submit(partial(with_request_signals, self._serve_all))
        self._calls.put((future, partial(fn, *args, **kwargs)))
        return future

    def _serve_all(self) -> None:
        try:
            with self._around(), all_left():
                self._serve()
        except LeftOpen:
            # The call that did it has its answer already.
            logger.exception("The thread of an async call was tidied up.")

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as exc:  # noqa: BLE001 - handed to whoever waits for it
                future.set_exception(exc)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._thread is not None and not self._thread.cancel():
            self._calls.put(None)
