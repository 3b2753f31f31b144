"""Whoever runs tasks: Django's task backend of the site's choice, or threads of this process.

Nothing of a task is in what is handed over but the id of its row and the number of its run, so a
backend that delivers twice, late or never does no harm.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from mcp_django.conf import get_settings
from mcp_django.exceptions import MCPDjangoError
from mcp_django.runtime.pools import with_request_signals
from mcp_django.runtime.tasks import running

logger = logging.getLogger("mcp_django")

# Waiting for a thread of this process; each holds its row and a lease.
MAX_QUEUED = 1000


class NotTaken(MCPDjangoError):
    """Nobody takes the task now."""


def enqueue(pk: str, run: int) -> None:
    """Have a task run, soon and elsewhere.

    Raises:
        NotTaken: the backend does not take it.
    """
    if _is_here.get():
        running.perform_here(pk, run)
        return
    alias = get_settings().task_backend
    if not alias:
        threads().take(pk, run)
        return
    try:
        # The package is optional, and so is Django's own module before 6.0.
        from mcp_django.runtime.tasks import job

        job.run.using(backend=alias).enqueue(pk, run)
    except Exception as exc:
        logger.exception("The task backend %r did not take a task.", alias)
        raise NotTaken("The task could not be started: its backend does not take it.") from exc


@contextmanager
def running_here() -> Iterator[None]:
    """Run what is enqueued meanwhile at once, where that is done: tests see what they wrote."""
    token = _is_here.set(True)
    try:
        yield
    finally:
        _is_here.reset(token)


def is_here() -> bool:
    """Whether tasks run where they are enqueued."""
    return _is_here.get()


_is_here = ContextVar("mcp_django_tasks_here", default=False)


class Threads:
    """Some threads of this process, which end with it and take along what they are at.

    What waits for one holds its lease already: if the process ends, it is closed as failed.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting: queue.Queue[running.Running | None] = queue.Queue(MAX_QUEUED)
        self._taken = 0
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def take(self, pk: str, run: int) -> None:
        """Run a task when a thread is free.

        Raises:
            NotTaken: too many wait for one.
        """
        taken = running.take(pk, run)
        if taken is None:
            return
        try:
            self._waiting.put_nowait(taken)
        except queue.Full:
            taken.let_go()
            raise NotTaken(
                f"The task could not be started: {MAX_QUEUED} tasks wait for a thread."
            ) from None
        with self._lock:
            self._taken += 1
            if len(self._threads) < min(self._taken, self._count):
                # Daemons: a process that ends waits for no task.
                thread = threading.Thread(
                    target=self._serve, name=f"mcp-task-{len(self._threads)}", daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        """End the threads, each after what it is at; for tests."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (taken := self._waiting.get()) is not None:
            try:
                with_request_signals(taken.perform)
            except BaseException:
                logger.exception("The task %s could not be ended.", taken.row.short_id)
            finally:
                with self._lock:
                    self._taken -= 1


def threads() -> Threads:
    """The threads of this process for tasks, started as they are needed."""
    with _making:
        return _made()


# Of calls that come first at once each would make its own.
_making = threading.Lock()


@cache
def _made() -> Threads:
    return Threads(get_settings().task_threads)


def framework() -> str | None:
    """The module that has the site's task backends, ``None`` where there is none."""
    names = ("django.tasks", "django_tasks")
    return next((name for name in names if find_spec(name) is not None), None)


def backends() -> Any:
    """The task backends of the site, ``None`` where there is no such thing."""
    name = framework()
    return None if name is None else import_module(name).task_backends
