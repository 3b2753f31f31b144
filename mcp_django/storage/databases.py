"""The database of this package's rows: alias, clock, transactions, connections, thread, leases.

All rows are in the database that the router chooses for writing sessions (``write_alias``); the
call log and the security log may be routed to another one. Times are computed by the database's own
clock, since the clocks of workers differ.

A transaction of this package (``atomic``) begins with its write, so that SQLite can wait for the
lock. ``retry_on_conflict`` retries it after a conflict with another transaction, as may happen
under ``REPEATABLE READ`` and ``SERIALIZABLE``. The transaction that Django opens around a test does
not count as a transaction of the site.

Models are imported lazily (``tables``), because this module is imported before the app registry
is ready.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from django.core import mail
from django.db import DatabaseError, close_old_connections, connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.models import (
    DateTimeField,
    ExpressionWrapper,
    Model,
    QuerySet,
    Value,
)
from django.db.models.expressions import Combinable
from django.db.models.functions import Now
from django.dispatch import receiver
from django.utils.crypto import salted_hmac
from django.utils.functional import SimpleLazyObject

from mcp_django.conf import get_settings
from mcp_django.tenants import of_tenant, thread_context

M = TypeVar("M", bound=Model)
T = TypeVar("T")

# How long a transaction is retried after conflicts, and the longest pause between two attempts.
CONFLICT_SECONDS: Final = 5.0
CONFLICT_PAUSE_SECONDS: Final = 0.02

if TYPE_CHECKING:
    from mcp_django import models

    tables = models
else:
    tables = SimpleLazyObject(lambda: import_module("mcp_django.models"))


def write_alias() -> str:
    """Return the alias of the database that has all rows of this package."""
    return router.db_for_write(tables.Session)


def rows(model: type[M]) -> QuerySet[M]:
    """Return the rows of a table of this package."""
    return model._default_manager.using(write_alias())


def rows_of_tenant(model: type[M]) -> QuerySet[M]:
    """Return the current tenant's rows of a table of this package."""
    return of_tenant(model, write_alias())


def digest_of_network(network: str | None) -> str:
    """Return the keyed digest of an address; the tables must not contain personal data.

    Empty for an address that is empty or not known.
    """
    if not network:
        return ""
    return salted_hmac("mcp_django.network", network, algorithm="sha256").hexdigest()[:32]


def atomic() -> Any:
    """Return a transaction of this package. It must begin with its write (see the module)."""
    return transaction.atomic(using=write_alias())


def is_in_transaction() -> bool:
    """Return whether this thread has an open transaction of the site on the package's database."""
    connection = connections[write_alias()]
    if connection.in_atomic_block:
        # A test's transaction is never committed, and no other connection sees its rows.
        return not is_test_transaction(connection.atomic_blocks[0])
    return connection.connection is not None and not connection.autocommit


def has_open_transaction() -> bool:
    """Return whether this thread has an open transaction of the site, on any database."""
    return any(
        not all(map(is_test_transaction, connection.atomic_blocks))
        if connection.in_atomic_block
        else connection.connection is not None and not connection.autocommit
        # Looking up a connection by its alias would create it.
        for connection in connections.all(initialized_only=True)
    )


def after_commit(callback: Callable[[], object], *, using: str) -> None:
    """Call a function after the commit of the current transaction; immediately if there is none.

    Also immediately if the site commits by itself (``AUTOCOMMIT`` at ``False``), since Django does
    not report that commit. The exceptions of the function are logged.
    """
    connection = connections[using]
    if connection.in_atomic_block or connection.get_autocommit():
        transaction.on_commit(callback, using=using, robust=True)
    else:
        callback()


def is_test_transaction(block: Any) -> bool:
    """Return whether a transaction is the one around a test, which Django itself ignores."""
    return bool(block._from_testcase) and not getattr(block, "is_surrounding", False)


def in_batches(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield parts of a sequence, since databases limit the parameters of one statement."""
    return (values[first : first + size] for first in range(0, len(values), size))


def retry_on_conflict(work: Callable[[], T]) -> T:
    """Run a transaction, and retry it if it failed only because of a conflict with another one."""
    give_up = time.monotonic() + CONFLICT_SECONDS
    while True:
        try:
            return work()
        except DatabaseError as exc:
            if not _is_conflict(exc) or is_in_transaction() or time.monotonic() >= give_up:
                raise
            time.sleep(random.uniform(0, CONFLICT_PAUSE_SECONDS))  # noqa: S311 - not a secret


def _is_conflict(exc: Exception) -> bool:
    """Return whether a transaction failed only because of a conflict, and may be retried."""
    cause = exc.__cause__
    # PostgreSQL: serialization failure, deadlock. MariaDB and MySQL: record changed, deadlock.
    if getattr(cause, "sqlstate", None) in ("40001", "40P01"):
        return True
    return bool(cause is not None and cause.args and cause.args[0] in (1020, 1213))


def is_locked(queryset: QuerySet[Any]) -> bool:
    """Return whether another transaction has locked a row; call it in a transaction.

    Only for rows that exist. For a database without row locks the result is always false.
    """
    if not connections[queryset.db].features.has_select_for_update_skip_locked:
        return False
    return not queryset.select_for_update(skip_locked=True).values_list("pk").first()


def limit_lock_wait(using: str, seconds: float) -> None:
    """Limit how long the statements of the current transaction wait for the locks of others."""
    connection = connections[using]
    # Other databases, or their drivers, have such a limit by default.
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = %s", [f"{seconds * 1000:.0f}ms"])


def seconds_from_now(seconds: float) -> Any:
    """Return the time so many seconds from now, as an expression of the database's clock."""
    return _datetime_expression(Now() + Value(timedelta(seconds=seconds)))


def seconds_ago(seconds: float) -> Any:
    """Return the time so many seconds ago, as an expression of the database's clock."""
    return _datetime_expression(Now() - Value(timedelta(seconds=seconds)))


def _datetime_expression(expression: Combinable) -> Any:
    return ExpressionWrapper(expression, output_field=DateTimeField())


# Kept connections ---------------------------------------------------------------------------------

# A thread of this package (of a pool, a writer or the caches, or the storage thread) keeps the
# connections that it opens, where Django would close them after each request because CONN_MAX_AGE
# is 0. Each thread owns its connections: all but the storage thread close them after IDLE_SECONDS
# without work, and Django closes a connection after an error that broke it. Connections that were
# idle for CHECK_SECONDS are checked before they are used again. A forked child has none of these
# threads. Under WSGI, requests run in threads of the server, which keep no connections; nor does a
# test keep any, since its database is dropped at its end.
IDLE_SECONDS: Final = 5.0
CHECK_SECONDS: Final = 1.0


class _KeptConnections(threading.local):
    """The connections of this thread that this package keeps open; ``None`` in other threads."""

    every: list[BaseDatabaseWrapper] | None = None
    used_at = 0.0


_kept = _KeptConnections()


def keep_connections() -> None:
    """Let the current thread keep the connections that it opens from now on."""
    _kept.every = []


def has_kept_connections() -> bool:
    """Return whether the current thread keeps connections that are open."""
    return bool(_kept.every)


def check_kept_connections() -> None:
    """Close the kept connections of the current thread that the database has closed."""
    for connection in _kept.every or ():
        if connection.connection is not None and not connection.is_usable():
            with suppress(Exception):
                connection.close()


def close_kept_connections() -> None:
    """Close the connections that the current thread keeps."""
    kept_connections = _kept.every or []
    while kept_connections:
        with suppress(Exception):
            kept_connections.pop().close()


@receiver(connection_created, dispatch_uid="mcp_django.keep")
def _keep(*, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    if _kept.every is None or not is_keepable(connection.settings_dict):
        return
    connection.close_at = None
    if connection not in _kept.every:
        _kept.every.append(connection)


def is_keepable(database: Mapping[str, Any]) -> bool:
    """Return whether threads of this package keep connections to a database open.

    They do not with ``KEEP_CONNECTIONS`` at ``False``; on a site with tenants, where the next
    request would get the tenant of the last one; if the site keeps connections by itself
    (``CONN_MAX_AGE``, a connection pool); and with ``AUTOCOMMIT`` at ``False``, where an open
    connection may hold a transaction.
    """
    setting = get_settings().keep_connections
    return (
        (not is_inline() if setting is None else setting)
        and thread_context() is None
        and database["CONN_MAX_AGE"] == 0
        and database["AUTOCOMMIT"]
        and not database["OPTIONS"].get("pool")
    )


def is_inline() -> bool:
    """Return whether no thread of this package works for several requests (``BACKGROUND``).

    Then the thread of a request writes the rows of the request, and reads what it needs.
    """
    background = get_settings().background
    return is_under_test() if background is None else background == "inline"


def is_under_test() -> bool:
    """Return whether a test runner has prepared the process; Django sends no signal then."""
    return hasattr(mail, "outbox")


# The storage thread -------------------------------------------------------------------------------

# Pub/sub reads and writes rows in one thread per process, so that the event loop never waits for
# the database.

P = ParamSpec("P")


async def run_in_db_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a short function that uses the database in the storage thread, and return its result."""
    work = partial(run_with_fresh_connections, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_db_executor(), work)


def submit_to_db_thread(
    function: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs
) -> None:
    """Run a function in the storage thread soon; it has to handle its own errors."""
    _db_executor().submit(run_with_fresh_connections, partial(function, *args, **kwargs))


def is_on_loop() -> bool:
    """Return whether an event loop runs in this thread, which must not wait for the database."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _db_executor() -> ThreadPoolExecutor:
    return _db_executor_of(os.getpid())


@cache
def _db_executor_of(pid: int) -> ThreadPoolExecutor:
    # A forked child has none of its parent's threads.
    return ThreadPoolExecutor(1, thread_name_prefix="mcp-database", initializer=keep_connections)


def run_with_fresh_connections(function: Callable[[], T]) -> T:
    """Run a function in a thread without requests; close stale connections before and after."""
    close_old_connections()
    if time.monotonic() - _kept.used_at >= CHECK_SECONDS:
        check_kept_connections()
    try:
        return function()
    finally:
        _kept.used_at = time.monotonic()
        # A connection that cannot be closed now is closed at its next use.
        with suppress(Exception):
            close_old_connections()


def take_lease(name: str, *, seconds: float) -> bool:
    """Take a lease for ``seconds`` by the database's clock; return whether it was free.

    A lease is a row that only one process or one request holds for some time.

    A name has at most 100 characters. Of several concurrent callers one gets the lease.
    """
    leases = rows(tables.Lease)
    if leases.filter(pk=name, until__lte=Now()).update(until=seconds_from_now(seconds)):
        return True
    _, is_new = leases.get_or_create(pk=name, defaults={"until": seconds_from_now(seconds)})
    return is_new
