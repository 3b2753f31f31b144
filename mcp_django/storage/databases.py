"""The database of this package's rows: alias, clock, transactions, connections, thread, leases.

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
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from datetime import timedelta
from functools import cache, partial
from importlib import import_module
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, ParamSpec, TypeVar

from django.core import mail
from django.db import DatabaseError, close_old_connections, connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.models import (
    AutoField,
    BooleanField,
    CharField,
    DateTimeField,
    ExpressionWrapper,
    FloatField,
    IntegerField,
    Model,
    QuerySet,
    TextField,
    Value,
)
from django.db.models.constants import OnConflict
from django.db.models.expressions import Combinable, RawSQL
from django.db.models.functions import Now
from django.db.models.sql import InsertQuery, UpdateQuery
from django.dispatch import receiver
from django.utils.crypto import salted_hmac
from django.utils.functional import SimpleLazyObject

from mcp_django.conf import get_settings
from mcp_django.tenants import current_tenant, of_tenant, thread_context

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
    """Return the rows of a table of this package that the current tenant has."""
    return of_tenant(model, write_alias())


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


def has_open_transaction() -> bool:
    """Return whether this thread has an open transaction of the site, on any database."""
    return any(
        not all(map(is_test_transaction, one.atomic_blocks))
        if one.in_atomic_block
        else one.connection is not None and not one.autocommit
        # Looking up a connection by its alias would create it.
        for one in connections.all(initialized_only=True)
    )


def after_commit(callback: Callable[[], object], *, using: str) -> None:
    """Call a function after the commit of the current transaction; immediately if there is none.

    Also immediately if the site commits by itself (``AUTOCOMMIT`` at ``False``), since nothing
    tells when. The exceptions of the function are logged.
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


def is_locked(found: QuerySet[Any]) -> bool:
    """Return whether another transaction has locked a row; call it in a transaction.

    Only for rows that exist. For a database without row locks the result is always false.
    """
    if not connections[found.db].features.has_select_for_update_skip_locked:
        return False
    return not found.select_for_update(skip_locked=True).values_list("pk").first()


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


# Compiled queries ---------------------------------------------------------------------------------

# Building a query takes ten times as long as running it. The process owns what it has compiled, for
# each alias at its first use, and nothing clears it: models do not change. A forked child goes on
# with it.


class Parameter(str):
    """Stands for a text value in a query; its name is the key of the value."""

    __slots__ = ()


def placeholder(name: str) -> Any:
    """Return an expression that stands for a number in a query."""
    return RawSQL("%s", [Parameter(name)])


def placeholders(count: int) -> list[Any]:
    """Return so many of them, whose values are ``numbered``."""
    return [placeholder(str(n)) for n in range(count)]


def parameters(count: int) -> list[Parameter]:
    """Return so many parameters, whose values are ``numbered``."""
    return [Parameter(str(n)) for n in range(count)]


def numbered(values: Sequence[Any]) -> dict[str, Any]:
    """Return values by the names of ``placeholders`` or ``parameters``."""
    return {str(n): value for n, value in enumerate(values)}


def padded(values: Sequence[T]) -> Sequence[T]:
    """Repeat the last value up to a power of two, so that few lengths have to be compiled."""
    if not values:
        return values
    return [*values, *[values[-1]] * ((1 << (len(values) - 1).bit_length()) - len(values))]


_NONE: Final[Mapping[str, Any]] = {}


class _Compiled(NamedTuple):
    queryset: Any
    compiler: Any
    sql: str
    parameters: Sequence[Any]
    converters: Any
    """How the values of the columns are converted, as the compiler returns it."""


class CompiledQuery(Generic[M]):
    """A query, which ``build`` returns for an alias."""

    def __init__(self, build: Callable[[str], QuerySet[M, Any]]) -> None:
        self._build = build
        self._compiled = cache(self._compile)

    def _compile(self, alias: str) -> _Compiled:
        queryset = self._build(alias)
        compiler: Any = queryset.query.get_compiler(alias)
        sql, parameters = compiler.as_sql()
        columns = [column for column, *_ in compiler.select]
        return _Compiled(queryset, compiler, sql, parameters, compiler.get_converters(columns))

    def first(self, alias: str, values: Mapping[str, Any] = _NONE) -> Any:
        """Return the row of a query for one, as the query yields it, or ``None``.

        Raises:
            DatabaseError: the database could not be asked.
        """
        return next(self.rows(alias, values), None)

    def rows(self, alias: str, values: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the rows, as the query yields them; no other query may begin meanwhile.

        Raises:
            DatabaseError: the database could not be asked.
        """
        known = self._compiled(alias)
        bound = _bound(known.parameters, values)
        compiler = copy(known.compiler)
        compiler.connection = connections[alias]
        compiler.as_sql = lambda *args, **kwargs: (known.sql, bound)
        compiler.get_converters = lambda columns: known.converters
        # A query set is not copied by ``copy``, which would evaluate it.
        found = object.__new__(type(known.queryset))
        found.__dict__.update(known.queryset.__dict__, _query=_ReadyQuery(known.queryset, compiler))
        return iter(found._iterable_class(found))


def _bound(parameters: Sequence[Any], values: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(values[one] if isinstance(one, Parameter) else one for one in parameters)


class CompiledUpdate:
    """An update of the rows of one table; ``build`` returns them for an alias, and the changes."""

    def __init__(self, build: Callable[[str], tuple[QuerySet[Any], Mapping[str, Any]]]) -> None:
        self._build = build
        self._compiled = cache(self._compile)

    def _compile(self, alias: str) -> tuple[str, Sequence[Any]]:
        found, changes = self._build(alias)
        query: Any = found.order_by().query.chain(UpdateQuery)
        query.add_update_values(changes)
        statement: tuple[str, Sequence[Any]] = query.get_compiler(alias).as_sql()
        return statement

    def update(self, alias: str, values: Mapping[str, Any]) -> int:
        """Update the rows, and return how many there were.

        Raises:
            DatabaseError: the database did not store it.
        """
        sql, parameters = self._compiled(alias)
        with connections[alias].cursor() as cursor:
            cursor.execute(sql, _bound(parameters, values))
            count: int = cursor.rowcount
            return count


class CompiledInsert:
    """Inserts rows of a model without instances, which would take longer than the rest.

    The values of ``expressions``, by attribute name, are computed by the database in each row.
    """

    def __init__(
        self,
        model: Callable[[], type[Model]],
        expressions: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._model = model
        self._expressions = expressions
        self._compiled = cache(self._compile)

    def _compile(self, alias: str) -> _CompiledInsert:
        model, expressions = self._model(), self._expressions()
        operations: Any = connections[alias].ops
        query = InsertQuery(model)
        compiler: Any = query.get_compiler(alias)
        every = model._meta.concrete_fields
        fields = [field for field in every if not isinstance(field, AutoField)]
        values: dict[str, Any] = {}
        prepared, places = [], []
        for field in fields:
            if field.attname in expressions:
                found = expressions[field.attname]
                found = found.resolve_expression(query, allow_joins=False, for_save=True)
                place, parameters = compiler.compile(found)
                values |= {f"{field.attname} {n}": one for n, one in enumerate(parameters)}
            else:
                place = "%s"
                # Each row has to say its tenant: the thread that writes it has none.
                default = "" if field.default is current_tenant else field.get_default()
                if not isinstance(field, _PLAIN_FIELDS):
                    ready = field.get_db_prep_save(default, connections[alias])
                    prepared.append(_Prepared(len(values), field.get_db_prep_save, default, ready))
                values[field.attname] = default
            places.append(place)
        names = ", ".join(operations.quote_name(field.column) for field in fields)
        table = f"{operations.quote_name(model._meta.db_table)} ({names})"
        one = operations.bulk_insert_sql(fields, [places])
        return _CompiledInsert(fields, values, itemgetter(*values), prepared, places, table, one)

    def insert(self, alias: str, rows: Sequence[Mapping[str, Any]], *, again: bool = False) -> None:
        """Insert rows, each with its values by attribute name; the others have their defaults.

        With ``again``, rows that exist are left as they are.

        Raises:
            DatabaseError: the database did not store them.
        """
        if not rows:
            return
        connection = connections[alias]
        known = self._compiled(alias)
        operations: Any = connection.ops
        values = [known.values_of(row, connection) for row in rows]
        # One statement for many rows: a driver releases the GIL with each, and gets it back late.
        size = _rows_per_insert(connection, known.fields, values)
        conflict = OnConflict.IGNORE if again else None
        insert = f"{operations.insert_statement(on_conflict=conflict)} {known.table}"
        suffix = operations.on_conflict_suffix_sql(known.fields, conflict, (), ())
        with connection.cursor() as cursor:
            for part in in_batches(values, size):
                places = known.one
                if len(part) > 1:
                    places = operations.bulk_insert_sql(known.fields, [known.places] * len(part))
                cursor.execute(f"{insert} {places} {suffix}", list(chain.from_iterable(part)))


# The fields whose values need no preparation for the database.
_PLAIN_FIELDS = (BooleanField, CharField, FloatField, IntegerField, TextField)


def _rows_per_insert(connection: Any, fields: Sequence[Any], values: Sequence[Any]) -> int:
    connection.ensure_connection()
    # For SQLite, Django assumes the limit of old versions, a fraction of what this one allows.
    if limit := getattr(connection.connection, "getlimit", None):
        return max(1, int(limit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)) // len(values[0]))
    size: int = connection.ops.bulk_batch_size(fields, values)
    return size


class _Prepared(NamedTuple):
    """A value that has to be prepared for the database."""

    place: int
    prepare: Callable[..., Any]
    default: Any
    ready: Any
    """The default, prepared."""


class _CompiledInsert(NamedTuple):
    fields: Sequence[Any]
    defaults: Mapping[str, Any]
    """The values of a row by attribute name, in the order of the columns."""
    in_order: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    """Returns them as a tuple."""
    prepared: Sequence[_Prepared]
    places: Sequence[str]
    table: str
    """The table with its columns."""
    one: str
    """The places of one row."""

    def values_of(self, row: Mapping[str, Any], connection: Any) -> Sequence[Any]:
        """Return the parameters of a row."""
        values = [*self.in_order({**self.defaults, **row})]
        for place, prepare, default, ready in self.prepared:
            given = values[place]
            values[place] = ready if given == default else prepare(given, connection)
        return values


class _ReadyQuery:
    """A query that is compiled already."""

    def __init__(self, queryset: Any, compiler: Any) -> None:
        self._query = queryset.query
        self._compiler = compiler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    def get_compiler(self, using: str) -> Any:
        """Return the compiler of the alias for which the query was compiled."""
        return self._compiler


# Kept connections ---------------------------------------------------------------------------------

# A thread of this package (a pool's, the storage thread, the writers') keeps the
# connections that it opens, where Django would close them after each request because CONN_MAX_AGE
# is 0. Their thread owns them: a pool's closes them when it was idle for IDLE_SECONDS, and Django
# closes them after an error that broke them. Those that were idle for CHECK_SECONDS are checked
# before they are used again. A forked child has none of these threads. Under WSGI, requests run in
# threads of the server, where nothing is kept; neither is it in a test, whose database is dropped
# at its end.
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
    every = _kept.every or []
    while every:
        with suppress(Exception):
            every.pop().close()


@receiver(connection_created, dispatch_uid="mcp_django.keep")
def _keep(*, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    if _kept.every is None or not is_keepable(connection.settings_dict):
        return
    connection.close_at = None
    if connection not in _kept.every:
        _kept.every.append(connection)


def is_keepable(database: Mapping[str, Any]) -> bool:
    """Return whether threads of this package keep connections to a database open.

    Not with ``KEEP_CONNECTIONS`` at ``False``, not on a site with tenants, whose next request would
    find the tenant of the last one, not if the site keeps them by itself
    (``CONN_MAX_AGE``, a connection pool), and not with ``AUTOCOMMIT`` at ``False``, where an open
    connection may hold a transaction.
    """
    wanted = get_settings().keep_connections
    return (
        (not is_under_test() if wanted is None else wanted)
        and thread_context() is None
        and database["CONN_MAX_AGE"] == 0
        and database["AUTOCOMMIT"]
        and not database["OPTIONS"].get("pool")
    )


def is_under_test() -> bool:
    """Return whether a test runner has prepared the process."""
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
    """Run a function of a thread without requests; close stale connections before and after it."""
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
