"""Whoever runs tasks: Django's task backend of the site's choice, or threads of this process.

Nothing of a task is in what is handed over but the id of its row and the number of its run, so a
backend that delivers twice, late or never does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from mcp_django.conf import get_settings
from mcp_django.exceptions import Busy, MCPDjangoError
from mcp_django.execution import task_runs
from mcp_django.execution.threads import pool, with_request_signals

logger = logging.getLogger("mcp_django")

_is_here = ContextVar("mcp_django_tasks_here", default=False)


class NotTaken(MCPDjangoError):
    """Nobody takes the task now."""


def enqueue(pk: str, run: int) -> None:
    """Have a task run, soon and elsewhere.

    Raises:
        NotTaken: the backend does not take it.
    """
    if _is_here.get():
        task_runs.perform_here(pk, run)
        return
    alias = get_settings().task_backend
    if not alias:
        _take(pk, run)
        return
    try:
        # The package is optional, and so is Django's own module before 6.0.
        from mcp_django.execution import task_job

        task_job.run.using(backend=alias).enqueue(pk, run)
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


def _take(pk: str, run: int) -> None:
    """Run a task in a thread of this process, which ends with it and takes along what it is at.

    What waits for one holds its lease already: if the process ends, it is closed as failed.

    Raises:
        NotTaken: too many of this caller wait for one, or too many in all.
    """
    taken = task_runs.take(pk, run)
    if taken is None:
        return
    # All clients of a user have one share; in a key his name ends where a client's begins.
    caller, _, _ = taken.row.principal.partition("@")
    try:
        pool("task").submit(partial(_perform, taken), key=caller)
    except Busy:
        taken.let_go()
        raise NotTaken(
            "The task could not be started: too many tasks wait for a thread; try again later."
        ) from None


def _perform(taken: task_runs.Running) -> None:
    try:
        with_request_signals(taken.perform)
    except BaseException:
        logger.exception("The task %s could not be ended.", taken.row.short_id)


def framework() -> str | None:
    """The module that has the site's task backends, ``None`` where there is none."""
    names = ("django.tasks", "django_tasks")
    return next((name for name in names if find_spec(name) is not None), None)


def backends() -> Any:
    """The task backends of the site, ``None`` where there is no such thing."""
    name = framework()
    return None if name is None else import_module(name).task_backends
