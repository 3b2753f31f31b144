"""The database of this package's rows: its alias, clock, transactions, thread and leases.

All rows are in the database that the router chooses for writing sessions (``write_alias``); the
call log and the security log may be routed to another one. Times are computed by the database's own
clock, since the clocks of workers differ.

A transaction of this package (``atomic``) begins with its write, so that SQLite can wait for the
lock. ``retry_on_conflict`` retries it after a conflict with another one, as may happen under
``REPEATABLE READ`` and ``SERIALIZABLE``. The transaction that Django opens around a test does not
count as a transaction of the site.

Models are imported lazily (``tables``), because this module is imported before the app registry
is ready.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from django.db import DatabaseError, close_old_connections, connections, router, transaction
from django.db.models import DateTimeField, ExpressionWrapper, Model, QuerySet, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Now
from django.utils.crypto import salted_hmac
from django.utils.functional import SimpleLazyObject

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


def digest_of_network(network: str | None) -> str:
    """Return the keyed digest of an address; the tables must not contain personal data.

    Empty for an address that is empty or not known.
    """
    if not network:
        return ""
    return salted_hmac("mcp_django.network", network, algorithm="sha256").hexdigest()[:32]


def atomic() -> Any:
    """Return a transaction of this package. It has to begin with its write (see the module)."""
    return transaction.atomic(using=write_alias())


def is_in_transaction() -> bool:
    """Return whether this thread has an open transaction of the site on the package's database."""
    connection = connections[write_alias()]
    if connection.in_atomic_block:
        # That of a test is never committed, and no other connection sees its rows.
        return not is_test_transaction(connection.atomic_blocks[0])
    return connection.connection is not None and not connection.autocommit


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


def is_locked(found: QuerySet[Any]) -> bool:
    """Return whether another transaction has locked a row; call it in a transaction.

    Only for rows that exist. For a database without row locks the result is always false.
    """
    if not connections[found.db].features.has_select_for_update_skip_locked:
        return False
    return not found.select_for_update(skip_locked=True).values_list("pk").first()


def seconds_from_now(seconds: float) -> Any:
    """Return the time so many seconds from now, as an expression of the database's clock."""
    return _datetime_expression(Now() + Value(timedelta(seconds=seconds)))


def seconds_ago(seconds: float) -> Any:
    """Return the time so many seconds ago, as an expression of the database's clock."""
    return _datetime_expression(Now() - Value(timedelta(seconds=seconds)))


def _datetime_expression(expression: Combinable) -> Any:
    return ExpressionWrapper(expression, output_field=DateTimeField())


# The storage thread -------------------------------------------------------------------------------

# Pub/sub reads and writes rows in one thread per process, so that the event loop never waits for
# the database. Stale connections are closed before and after each function, as for a request.

P = ParamSpec("P")


async def run_in_db_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a short function that uses the database in the storage thread, and return its result."""
    work = partial(_with_fresh_connections, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_db_executor(), work)


def submit_to_db_thread(
    function: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs
) -> None:
    """Run a function in the storage thread soon; it has to handle its own errors."""
    _db_executor().submit(_with_fresh_connections, partial(function, *args, **kwargs))


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
    return ThreadPoolExecutor(1, thread_name_prefix="mcp-database")


def _with_fresh_connections(function: Callable[[], T]) -> T:
    close_old_connections()
    try:
        return function()
    finally:
        close_old_connections()


# Leases -------------------------------------------------------------------------------------------

# A lease is a row that only one process or one request has for some time.


def take_lease(name: str, *, seconds: float) -> bool:
    """Take a lease for so many seconds by the database's clock; return whether it was free.

    A name has at most 100 characters. Of several concurrent callers one gets the lease.
    """
    leases = rows(tables.Lease)
    if leases.filter(pk=name, until__lte=Now()).update(until=seconds_from_now(seconds)):
        return True
    _, is_new = leases.get_or_create(pk=name, defaults={"until": seconds_from_now(seconds)})
    return is_new
