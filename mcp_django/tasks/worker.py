"""Enqueues tasks: on the Django task backend that the site chose, or on threads of this process.

Only the id of the task's row and the number of the run are enqueued, so a backend that delivers a
message twice, late or never does no harm.
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

from mcp_django.auth.limits import Member
from mcp_django.conf import get_settings
from mcp_django.exceptions import Busy, MCPDjangoError
from mcp_django.execution.threads import get_pool
from mcp_django.tasks import runs
from mcp_django.tenants import as_tenant, by_tenant

logger = logging.getLogger("mcp_django")

_is_inline = ContextVar("mcp_django_tasks_here", default=False)


class TaskNotAccepted(MCPDjangoError):
    """The task was not accepted by its backend or the thread pool."""


def enqueue(pk: str, run: int) -> None:
    """Enqueue a run of a task, which starts soon in another thread or process.

    Raises:
        TaskNotAccepted: the backend or the thread pool did not accept it.
    """
    if _is_inline.get():
        runs.run_inline(pk, run)
        return
    alias = get_settings().task_backend
    if not alias:
        _run_in_thread(pk, run)
        return
    try:
        # Imported here, since it needs Django 6 or the optional package ``django-tasks``.
        from mcp_django.tasks import job

        job.run.using(backend=alias).enqueue(pk, run)
    except Exception as exc:
        logger.exception("The task backend %r did not accept a task.", alias)
        raise TaskNotAccepted(
            "The task could not be started: its backend did not accept it."
        ) from exc


@contextmanager
def run_tasks_inline() -> Iterator[None]:
    """Run tasks immediately in the thread that enqueues them, for tests in one transaction."""
    token = _is_inline.set(True)
    try:
        yield
    finally:
        _is_inline.reset(token)


def is_inline() -> bool:
    """Return whether tasks run immediately where they are enqueued."""
    return _is_inline.get()


def _run_in_thread(pk: str, run: int) -> None:
    """Run a task in a thread of this process.

    The task has its lease while it waits for the thread. If the process ends, waiting and running
    tasks are closed as failed when their leases expire.

    Raises:
        TaskNotAccepted: too many tasks of this caller, or of all callers, wait for a thread.
    """
    task_run = runs.take_lease(pk, run)
    if task_run is None:
        return
    row = task_run.row
    # All clients of a user share one limit: the key is the user's part, before "@". Only anonymous
    # callers have a network.
    with as_tenant(row.tenant):
        caller = by_tenant(row.principal.partition("@")[0])
    key = Member(caller, row.network) if row.network else caller
    try:
        get_pool("task").submit(partial(_perform_logged, task_run), key=key)
    except Busy:
        task_run.stop_renewal()
        raise TaskNotAccepted(
            "The task could not be started: too many tasks wait for a thread; try again later."
        ) from None


def _perform_logged(task_run: runs.TaskRun) -> None:
    try:
        task_run.perform()
    except BaseException:
        logger.exception("The outcome of the task %s could not be written.", task_run.row.short_id)


def task_framework() -> str | None:
    """Return the name of the installed task framework's module, ``None`` if there is none."""
    names = ("django.tasks", "django_tasks")
    return next((name for name in names if find_spec(name) is not None), None)


def task_backends() -> Any:
    """Return the site's ``task_backends``, ``None`` if no task framework is installed."""
    name = task_framework()
    return None if name is None else import_module(name).task_backends
