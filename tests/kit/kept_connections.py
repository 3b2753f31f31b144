"""Spares tests opening a connection to SQLite for each request and after each test.

To open one takes longer than most requests. In a process that serves, the threads of the package
keep theirs; under a test runner they do not, since a database cannot be dropped while a thread is
connected to it. A file can, so that tests keep connections to one, unless they say otherwise:

- the threads of the package, as in a process that serves;
- those that asgiref makes for each request to Django, which would end with it: the next request
  gets the thread of an earlier one;
- the main thread, unless a test has left its connection other than it was.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from asgiref.sync import SyncToAsync
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.test import TransactionTestCase

from mcp_django.conf import get_settings
from mcp_django.storage import databases
from mcp_django.tenants import thread_context

P = ParamSpec("P")
T = TypeVar("T")

# As many as a test may have requests at once.
_threads = ThreadPoolExecutor(32, "kept", databases.keep_connections)


def install() -> None:
    """Spare every test of this process all of it."""
    connection_created.connect(_keep)
    TransactionTestCase._should_reload_connections = _close_at_end
    SyncToAsync.context_to_thread_executor = _RequestThreads()


def _keep(*, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    kept = databases._kept.every
    if kept is None or not _is_file(connection):
        return
    if get_settings().keep_connections is None and not thread_context():
        connection.close_at = None
        if connection not in kept:
            kept.append(connection)


def _is_file(connection: BaseDatabaseWrapper) -> bool:
    return connection.vendor == "sqlite" and connection.alias == DEFAULT_DB_ALIAS


def _close_at_end(self: TransactionTestCase) -> bool:
    _close_others()
    return False


def _close_others() -> None:
    """Close the connections of this thread that what comes next would not find as usual."""
    for connection in connections.all(initialized_only=True):
        if not _is_file(connection) or _is_changed(connection):
            connection.close()


def _is_changed(connection: Any) -> bool:
    return (
        connection.in_atomic_block
        or connection.needs_rollback
        or connection.errors_occurred
        or connection.execute_wrappers
        or connection.run_on_commit
        or connection.allow_thread_sharing
        or (connection.connection is not None and connection.connection.in_transaction)
        or connection.autocommit != connection.settings_dict["AUTOCOMMIT"]
    )


class _RequestThreads(WeakKeyDictionary[Any, "_RequestThread"]):
    """The thread of each request by its context; asgiref makes one where there is none."""

    def __contains__(self, context: object) -> bool:
        if not super().__contains__(context):
            self[context] = _RequestThread()
        return True


class _RequestThread(Executor):
    """The thread of a request, which takes another one after it."""

    _idle: deque[ThreadPoolExecutor] = deque()

    def __init__(self) -> None:
        try:
            self._executor = self._idle.pop()
        except IndexError:
            self._executor = ThreadPoolExecutor(1, "kept", databases.keep_connections)
        self._is_shut_down = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue one function."""
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        return self._executor.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for what was queued, and leave the thread to others."""
        if self._is_shut_down:
            return
        self._is_shut_down = True
        self._executor.submit(_close_others).result()
        self._idle.append(self._executor)


async def run_in_kept_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Do the same as `asyncio.to_thread`, in a thread that stays, with its connection."""

    def run() -> T:
        try:
            return function(*args, **kwargs)
        finally:
            _close_others()

    return await asyncio.get_running_loop().run_in_executor(_threads, copy_context().run, run)
