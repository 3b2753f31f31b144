"""The database that holds this package's rows, and its clock, transactions, thread and leases.

All rows are in the database that the router chooses for writing sessions (``alias``); the call
log and the security log may be routed to another one. Moments are computed by the database's own
clock, since the clocks of workers differ.

A transaction of this package (``atomic``) begins with its write, so that SQLite can wait for the
lock. ``insist`` runs it again when it failed only because of another one, as may happen under
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
from collections.abc import Callable
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

# How long a transaction that lost against others is tried again, and the longest pause between.
CONFLICT_SECONDS: Final = 5.0
CONFLICT_PAUSE_SECONDS: Final = 0.02

if TYPE_CHECKING:
    from mcp_django import models

    tables = models
else:
    tables = SimpleLazyObject(lambda: import_module("mcp_django.models"))


def alias() -> str:
    """The database for writing; all our rows are in one."""
    return router.db_for_write(tables.Session)


def rows(model: type[M]) -> QuerySet[M]:
    """The rows of one of our tables."""
    return model._default_manager.using(alias())


def digest_of_network(network: str | None) -> str:
    """What stands for an address in our tables, which are to hold no personal data.

    Empty for an address that is empty or not known.
    """
    if not network:
        return ""
    return salted_hmac("mcp_django.network", network, algorithm="sha256").hexdigest()[:32]


def atomic() -> Any:
    """A transaction of ours alone. It has to begin with its write, so that SQLite can wait."""
    return transaction.atomic(using=alias())


def is_in_transaction() -> bool:
    """Whether this thread has a transaction of the site's open on our database."""
    connection = connections[alias()]
    if connection.in_atomic_block:
        # That of a test is never committed, and what is in it is seen by nobody else.
        return not is_of_test(connection.atomic_blocks[0])
    return connection.connection is not None and not connection.autocommit


def is_of_test(block: Any) -> bool:
    """Whether a transaction is the one around a test, in which Django sees nothing of its own."""
    return bool(block._from_testcase) and not getattr(block, "is_surrounding", False)


def insist(work: Callable[[], T]) -> T:
    """Run a transaction of ours again when it failed for nothing but another one."""
    give_up = time.monotonic() + CONFLICT_SECONDS
    while True:
        try:
            return work()
        except DatabaseError as exc:
            if not _is_conflict(exc) or is_in_transaction() or time.monotonic() >= give_up:
                raise
            time.sleep(random.uniform(0, CONFLICT_PAUSE_SECONDS))  # noqa: S311 - hides nothing


def _is_conflict(exc: Exception) -> bool:
    """Whether a transaction failed for nothing but another one, and may be tried again."""
    cause = exc.__cause__
    # PostgreSQL: serialization failure, deadlock. MariaDB and MySQL: record changed, deadlock.
    if getattr(cause, "sqlstate", None) in ("40001", "40P01"):
        return True
    return bool(cause is not None and cause.args and cause.args[0] in (1020, 1213))


def is_held(found: QuerySet[Any]) -> bool:
    """Whether a process in a transaction keeps others from changing a row; ends in one of ours.

    Only for rows that exist. A database that locks no single rows has none that are held.
    """
    if not connections[found.db].features.has_select_for_update_skip_locked:
        return False
    return not found.select_for_update(skip_locked=True).values_list("pk").first()


def after(seconds: float) -> Any:
    """The moment so many seconds from now by the database's own clock; workers' clocks differ."""
    return _moment(Now() + Value(timedelta(seconds=seconds)))


def before(seconds: float) -> Any:
    """The moment so many seconds ago by the database's own clock."""
    return _moment(Now() - Value(timedelta(seconds=seconds)))


def _moment(expression: Combinable) -> Any:
    return ExpressionWrapper(expression, output_field=DateTimeField())


# The storage thread -------------------------------------------------------------------------------

# One thread per process in which pub/sub reads and writes rows, so that the event loop never
# waits for the database. Stale connections are closed around each function, as around a request.

P = ParamSpec("P")


async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a short function that uses the database, and close stale connections around it."""
    work = partial(_tended, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_thread(), work)


def submit(function: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """``in_thread`` from any thread, soon; the function has to handle its own errors."""
    _thread().submit(_tended, partial(function, *args, **kwargs))


def is_on_loop() -> bool:
    """Whether an event loop runs in this thread, which must not wait for the database."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _thread() -> ThreadPoolExecutor:
    return _thread_of(os.getpid())


@cache
def _thread_of(pid: int) -> ThreadPoolExecutor:
    # A forked child has none of its parent's threads.
    return ThreadPoolExecutor(1, thread_name_prefix="mcp-clerk")


def _tended(function: Callable[[], T]) -> T:
    close_old_connections()
    try:
        return function()
    finally:
        close_old_connections()


# Leases -------------------------------------------------------------------------------------------

# What one process or one request has for a while, and no other: decided by a row of its own.


def take(name: str, *, seconds: float) -> bool:
    """Whether the lease was free; it is taken now, for so many seconds by the database's clock.

    A name has at most 100 characters. Of several that ask at once one gets it.
    """
    leases = rows(tables.Lease)
    if leases.filter(pk=name, until__lte=Now()).update(until=after(seconds)):
        return True
    _, is_new = leases.get_or_create(pk=name, defaults={"until": after(seconds)})
    return is_new
