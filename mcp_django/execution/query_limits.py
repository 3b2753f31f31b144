"""Read-only limits: limit the database use of a read-only call and reject its writes.

The call of a component that is declared ``read_only`` is limited: its statements, the rows that
it fetches and the time that the database takes are counted against ``MCP_DJANGO["LIMITS"]``, and
PostgreSQL, MariaDB, MySQL and SQLite reject its writes. On other databases use is counted but
writes are not rejected. For a call that does not use the database no connection is opened.

The limits apply in the thread whose connections the call uses, from its start to its end. Nested
calls share them.
"""

from __future__ import annotations

import logging
import math
import re
import secrets
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from typing import Any, Literal, NoReturn, TypeVar

from asgiref.sync import sync_to_async
from django.db import Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from mcp_django.components.component import Component
from mcp_django.conf import Limits, get_settings
from mcp_django.exceptions import ExplainedFault, ToolError
from mcp_django.execution.call_record import CallRecord
from mcp_django.execution.threads import RuntimeTransaction, defer_after_commit, end_deferral

logger = logging.getLogger("mcp_django")

T = TypeVar("T")


class _ThreadState(threading.local):
    """The limited call of this thread, and the number of nested calls, itself included."""

    call: _LimitedCall | None = None
    depth = 0


_thread_state = _ThreadState()


@contextmanager
def limit_queries(component: Component, call_record: CallRecord | None = None) -> Iterator[None]:
    """Limit the database use of this thread, if the component is read-only and enforced.

    A nested call belongs to the outer one: it shares its limits and may not write, whatever it
    declares. The ``call_record`` gets the object that counts the use.
    """
    if not component.has_read_only_limits:
        yield
        return
    _enter_limited_call(component, call_record)
    succeeded = False
    try:
        yield
        succeeded = True
    finally:
        _leave_limited_call(succeeded=succeeded)


@asynccontextmanager
async def limit_shared_thread(
    component: Component, call_record: CallRecord | None = None
) -> AsyncIterator[None]:
    """Limit an async call whose database work runs in a thread that other calls use too.

    For tests, which run all database work in one thread so that all of it is in one transaction.
    Calls that run there at the same time share their limits.
    """
    if not component.has_read_only_limits:
        yield
        return
    await sync_to_async(_enter_limited_call)(component, call_record)
    succeeded = False
    try:
        yield
        succeeded = True
    finally:
        await sync_to_async(_leave_limited_call)(succeeded=succeeded)


def _enter_limited_call(component: Component, call_record: CallRecord | None) -> None:
    if _thread_state.call is None:
        call = _LimitedCall(component)
        if call_record is not None:
            call_record.note_usage(call.usage)
        call.start()
        _thread_state.call = call
    _thread_state.depth += 1


def _leave_limited_call(*, succeeded: bool) -> None:
    _thread_state.depth -= 1
    call = _thread_state.call
    if _thread_state.depth == 0 and call is not None:
        _thread_state.call = None
        call.end(succeeded=succeeded)


class _LimitedCall:
    """Monitors the connections of the thread that starts it; the same thread must end it."""

    def __init__(self, component: Component) -> None:
        self.usage = QueryUsage(component, get_settings().limits)
        self._monitors: list[_ConnectionMonitor] = []

    def start(self) -> None:
        """Monitor every database, without opening a connection before the first statement."""
        for connection in connections.all():
            kind = ENFORCEMENT_BY_VENDOR.get(connection.vendor, _Enforcement)
            enforcement = kind(connection, self.usage.limits)
            self._monitors.append(_ConnectionMonitor(enforcement, self.usage))
        for monitor in self._monitors:
            monitor.attach()
        defer_after_commit()

    def end(self, *, succeeded: bool) -> None:
        """Restore the state of every connection, including its transaction, as before the call."""
        for monitor in self._monitors:
            monitor.detach()
        with ExitStack() as stack:
            # Runs last, even after a failure.
            stack.callback(end_deferral, succeeded=succeeded)
            for monitor in self._monitors:
                stack.callback(monitor.end, succeeded=succeeded)


Execute = Callable[[str, Any, bool, dict[str, Any]], Any]

# Django's statements to enter and leave an ``atomic`` block; they are not counted.
BLOCK_STATEMENTS = ("BEGIN", "SAVEPOINT ", "RELEASE ", "ROLLBACK TO ")
# Methods of cursors that run statements without Django's ``execute_wrappers``: of Django and the
# drivers, psycopg, psycopg2 and SQLite.
CURSOR_FACTORIES = ("make_cursor", "make_debug_cursor")
UNWRAPPED_METHODS = (
    *("callproc", "stream", "copy", "copy_expert", "copy_from", "copy_to"),
    "executescript",
)


class _ConnectionMonitor:
    """A Django ``execute_wrapper`` that limits one connection from its first statement on."""

    def __init__(self, enforcement: _Enforcement, usage: QueryUsage) -> None:
        self.enforcement = enforcement
        self._usage = usage
        self._is_enforcing = False
        self._has_ended = False
        connection = enforcement.connection
        self._hooks_before = connection.run_on_commit if connection.connection is None else None
        self._factories: dict[str, Any] = {}

    def attach(self) -> None:
        """Monitor the statements of the connection, including those of ``UNWRAPPED_METHODS``."""
        connection = self.enforcement.connection
        connection.execute_wrappers.append(self)
        for name in CURSOR_FACTORIES:
            factory = partial(self._make_cursor, getattr(connection, name))
            self._factories[name] = (factory, vars(connection).get(name))
            setattr(connection, name, factory)

    def detach(self) -> None:
        """Stop monitoring the connection's next cursors and statements."""
        connection = self.enforcement.connection
        if self in connection.execute_wrappers:
            connection.execute_wrappers.remove(self)
        for name, (factory, before) in self._factories.items():
            # Another package may have replaced the factory in the meantime.
            if vars(connection).get(name) is factory:
                delattr(connection, name)
                if before is not None:
                    setattr(connection, name, before)
        # They refer to this object, and such a cycle would wait for the garbage collector.
        self._factories.clear()

    def __call__(
        self,
        execute: Execute,
        sql: Any,
        params: Any,
        many: bool,  # noqa: FBT001 - Django's order
        context: dict[str, Any],
    ) -> Any:
        """Run a statement within the limits.

        Raises:
            LimitReached: a limit is reached.
            WriteRefused: the statement writes.
        """
        hooks = self._hooks_before
        # Connecting ends with a new ``run_on_commit`` list.
        is_connecting = hooks is not None and self.enforcement.connection.run_on_commit is hooks
        if self._is_enforcing or is_connecting or self._has_ended:
            # Not limited: a savepoint for our own statements, if autocommit is off; the site's
            # statements for each new connection, whose effect must outlast the call; or a cursor
            # that outlasts the call.
            return execute(sql, params, many, context)
        if isinstance(sql, bytes | bytearray):
            text = sql.decode("latin-1")
        elif hasattr(sql, "as_string"):
            # A composed statement of psycopg.
            text = sql.as_string(self.enforcement.connection.connection)
        else:
            text = sql if isinstance(sql, str) else str(sql)
        if not text.startswith(BLOCK_STATEMENTS):
            self._usage.add_statement(text)
        self._is_enforcing = True
        try:
            with self.enforcement.connection.wrap_database_errors:
                limited_text = self.enforcement.prepare_statement(text)
        except _NotReading as exc:
            raise WriteRefused(self._usage.component, text) from exc
        finally:
            self._is_enforcing = False
        counted = context["cursor"].cursor
        if not isinstance(counted, _CountingCursor) or counted.monitor is not self:
            # A driver's cursor, or a counting one that remains from an earlier call.
            raw = counted.raw if isinstance(counted, _CountingCursor) else counted
            context["cursor"].cursor = counted = _CountingCursor(raw, self)
        sql = sql if limited_text is text else limited_text
        result = self.run_timed(lambda: execute(sql, params, many, context), text)
        # Drivers return their cursor, from which rows could be read without being counted.
        return counted if result is counted.raw else result

    def run_timed(self, work: Callable[[], T], sql: str = "") -> T:
        """Run database work with the remaining time as its timeout, and count its time.

        Raises:
            LimitReached: the work took too long.
            WriteRefused: the work tried to write.
        """
        if self._has_ended:
            return work()
        started = time.monotonic()
        self.enforcement.set_timeout(self._usage.seconds_left)
        try:
            return work()
        except Exception as exc:
            kind = self.enforcement.classify_error(exc)
            if kind == "write":
                raise WriteRefused(self._usage.component, sql) from exc
            if kind == "time":
                self._usage.raise_limit_reached("seconds", cause=exc)
            raise
        finally:
            self.enforcement.set_timeout(None)
            self._usage.seconds += time.monotonic() - started

    @property
    def rows_left(self) -> int | None:
        """How many more rows may be fetched; ``None`` after the end of the call."""
        return None if self._has_ended else max(0, self._usage.limits.rows - self._usage.rows)

    def add_rows(self, number: int) -> None:
        """Count fetched rows, unless the call has ended and its cursor is still in use."""
        if not self._has_ended:
            self._usage.add_rows(number)

    def end(self, *, succeeded: bool) -> None:
        """Stop limiting the connection and restore its state."""
        self._has_ended = True
        self.enforcement.end(succeeded=succeeded)

    def _make_cursor(self, factory: Callable[[Any], Any], raw: Any) -> Any:
        cursor = factory(raw)
        for name in UNWRAPPED_METHODS:
            if (method := getattr(cursor, name, None)) is not None:
                setattr(cursor, name, partial(self._run_unwrapped, cursor, name, method))
        return cursor

    def _run_unwrapped(
        self, cursor: Any, name: str, method: Callable[..., Any], /, *args: Any, **options: Any
    ) -> Any:
        """Run one of ``UNWRAPPED_METHODS`` as a statement.

        Raises:
            LimitReached: a limit is reached.
            MultipleStatements: SQLite's ``executescript`` commits before it begins.
            WriteRefused: the statement writes.
        """
        if name == "executescript" and not self._has_ended:
            raise MultipleStatements
        subject = str(next(iter([*args, *options.values()]), ""))
        sql = f"CALL {subject}" if name == "callproc" else subject
        context = {"connection": self.enforcement.connection, "cursor": cursor}
        return self(lambda *_: method(*args, **options), sql, None, many=False, context=context)


class _CountingCursor:
    """A proxy for the driver's cursor that counts the fetched rows."""

    def __init__(self, raw: Any, monitor: _ConnectionMonitor) -> None:
        self.raw = raw
        self.monitor = monitor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def fetchone(self) -> Any:
        """Fetch and count the next row."""
        row = self.monitor.run_timed(self.raw.fetchone)
        self.monitor.add_rows(int(row is not None))
        return row

    def fetchmany(self, *args: Any, **kwargs: Any) -> Any:
        """Fetch and count the next rows."""
        rows = self.monitor.run_timed(lambda: self.raw.fetchmany(*args, **kwargs))
        self.monitor.add_rows(len(rows))
        return rows

    def fetchall(self) -> Any:
        """Fetch and count all remaining rows, up to the limit."""
        remaining = self.monitor.rows_left
        # One row more than the limit is enough to exceed it.
        return self.raw.fetchall() if remaining is None else self.fetchmany(remaining + 1)

    def __iter__(self) -> Iterator[Any]:
        while (row := self.fetchone()) is not None:
            yield row


# A table name as databases quote it, with or without its schema.
_TABLE_NAME = r"((?:[\"`\[]?[\w$]+[\"`\]]?\.)?[\"`\[]?[\w$]+)"
_READ_TABLE = re.compile(rf"\bFROM\s+{_TABLE_NAME}", re.IGNORECASE)
_WRITTEN_TABLE = re.compile(rf"\b(?:INTO|UPDATE|FROM|TABLE|INDEX)\s+{_TABLE_NAME}", re.IGNORECASE)


class LimitReached(ToolError):
    """The call exceeded one of the limits in ``MCP_DJANGO["LIMITS"]``."""


class WriteRefused(ExplainedFault):
    """A component that is declared read-only tried to write, which is a bug of the component.

    ``client_message`` is the message for the client.
    """

    def __init__(self, component: Component, sql: str) -> None:
        table = _find_table(_WRITTEN_TABLE, sql)
        what = f"write to {table}" if table else "change the database"
        super().__init__(
            f"{component.function.name}() is declared read_only and tried to {what}: "
            "remove read_only=True or pass enforce=False."
        )
        self.client_message = (
            f"{component} may only read data, but tried to write. Nothing was changed. This is a "
            "server error. The error was logged."
        )


class QueryUsage:
    """Counts the rows, statements and seconds that one call uses on all databases."""

    def __init__(self, component: Component, limits: Limits) -> None:
        self.component = component
        self.limits = limits
        self.rows = 0
        self.seconds = 0.0
        self._statements: list[str] = []

    @property
    def seconds_left(self) -> float:
        """How many seconds the next statement may take."""
        return self.limits.seconds - self.seconds

    def add_statement(self, sql: str) -> None:
        """Count a statement before it runs.

        Raises:
            LimitReached: no statement or no time is left.
        """
        if self.seconds_left <= 0:
            self.raise_limit_reached("seconds")
        if len(self._statements) >= self.limits.statements:
            self.raise_limit_reached("statements")
        self._statements.append(sql)

    def add_rows(self, number: int) -> None:
        """Count fetched rows.

        Raises:
            LimitReached: the call has fetched too many rows.
        """
        self.rows += number
        if self.rows > self.limits.rows:
            self.raise_limit_reached("rows")

    def raise_limit_reached(
        self, what: Literal["rows", "statements", "seconds"], *, cause: Exception | None = None
    ) -> NoReturn:
        """Log the reached limit for the developer, and raise the error for the client.

        Raises:
            LimitReached: always, with a message that says how to use less.
        """
        limit = f"{getattr(self.limits, what):g}"
        used = f"LIMITS[{what!r}] is {limit}"
        if what == "statements":
            sql, times = Counter(self._statements).most_common(1)[0]
            used = f"{len(self._statements)} statements, all of them different"
            if times > 1:
                # The statement that was repeated the most suggests a query in a loop.
                place = _find_table(_READ_TABLE, sql) or "an expression"
                used = (
                    f"{len(self._statements)} statements, {times} of them the same query on "
                    f"{place}: select_related() or prefetch_related() is missing"
                )
        logger.warning("%s was stopped by a limit: %s.", self.component, used)
        raise LimitReached(LIMIT_MESSAGES[what].format(limit)) from cause


LIMIT_MESSAGES = {
    "rows": (
        "This call read more than {} rows of the database, which is the limit. "
        "Filter, or ask for one page at a time."
    ),
    "statements": (
        "This call needs more than {} database statements, which is the limit. "
        "Ask for fewer objects at a time."
    ),
    "seconds": (
        "This call needs more than {} seconds of database time, which is the limit. "
        "Use more specific filters, or ask for less at a time."
    ),
}


def _find_table(pattern: re.Pattern[str], sql: str) -> str:
    """Return the first table name in a statement that matches the pattern, or an empty text."""
    match = pattern.search(sql)
    return re.sub(r"[\"`\[\]]", "", match.group(1)) if match else ""


ErrorKind = Literal["write", "time"]


class _NotReading(Exception):
    """A statement is not run, because it may write and the database would not reject it."""


class _Enforcement:
    """One connection of a limited call; ``depth`` is the number of ``atomic`` blocks around it.

    This base class enforces nothing: on a database without a subclass, use is only counted.
    """

    def __init__(self, connection: BaseDatabaseWrapper, limits: Limits) -> None:
        self.connection = connection
        self.limits = limits
        self.depth = len(connection.atomic_blocks)
        self._needed_rollback = connection.needs_rollback

    def prepare_statement(self, sql: str) -> str:
        """Limit the open connection before a statement runs; return the statement to run."""
        return sql

    def set_timeout(self, seconds: float | None) -> None:
        """Set the timeout of the statement that runs next; ``None`` ends the timeout."""

    def classify_error(self, exc: Exception) -> ErrorKind | None:
        """Return whether the error is a rejected write or a timeout; ``None`` for any other."""
        return None

    def end(self, *, succeeded: bool) -> None:
        """Restore the connection; does nothing if it was never limited."""

    def _run(self, sql: str) -> Any:
        """Run SQL on the driver's cursor: Django's would refuse it after an error, and count it.

        Return the first row of a ``SELECT`` on MariaDB and MySQL.
        """
        with closing(self.connection.connection.cursor()) as cursor:
            cursor.execute(sql)
            return cursor.fetchone() if self.connection.vendor == "mysql" else None

    def _restore_needs_rollback(self) -> None:
        """Restore ``needs_rollback``: a rejected statement must not roll back an outer block."""
        if self.depth and self.connection.in_atomic_block:
            self.connection.needs_rollback = self._needed_rollback


def _driver_error_attribute(exc: BaseException, attribute: str) -> object:
    """Return an attribute of the driver's exception, which Django's may wrap."""
    values = (getattr(error, attribute, None) for error in (exc, exc.__cause__))
    return next((value for value in values if value is not None), None)


# PostgreSQL ---------------------------------------------------------------------------------------

# A read-only transaction, in which the site's own transactions are savepoints. Every option is set
# for the transaction and never for the session, because a connection pooler shares a session among
# clients.

TRANSACTION_IDLE = 0
POSTGRESQL_ERROR_KINDS: dict[object, ErrorKind] = {"25006": "write", "57014": "time"}

# One statement, so one round trip. A shorter ``statement_timeout`` of the site is kept.
SET_READ_ONLY_SQL = """
SELECT set_config('transaction_read_only', 'on', true), set_config('statement_timeout',
CASE WHEN current_setting('statement_timeout')::interval BETWEEN '1 ms' AND '{ms} ms'
THEN current_setting('statement_timeout') ELSE '{ms}' END, true)
"""

# Keywords of statements that end the transaction, for strings of several statements.
ENDS_TRANSACTION = re.compile(r"\b(commit|rollback|abort|end|prepare)\b", re.IGNORECASE)
# A statement that ends the transaction, in PostgreSQL and SQLite. After a nested comment, which
# PostgreSQL allows, the keyword is searched for anywhere.
_TRANSACTION_END = re.compile(
    r"\A(?:[\s;]|--[^\r\n]*|/\*(?:(?!/\*|\*/).)*\*/)*+(?:/\*.*)?"
    r"\b(?:commit|rollback(?!\s+to\b)|abort|end|prepare)\b",
    re.DOTALL | re.IGNORECASE,
)


class MultipleStatements(ToolError):
    """A string has several statements, and one may end the read-only transaction."""

    def __init__(self) -> None:
        super().__init__(
            "Send one statement at a time, without transaction commands such as COMMIT."
        )


class _PostgreSQL(_Enforcement):
    """A PostgreSQL connection, with psycopg 3 or psycopg2."""

    _is_read_only = False
    _savepoint = ""
    _block: RuntimeTransaction | None = None

    def prepare_statement(self, sql: str) -> str:
        """Make the transaction in which the statement will run read-only.

        A transaction that the site begins within the call also ends within it, together with the
        options that were set for it; the next statement then sets them again.

        Raises:
            MultipleStatements: the string could end the transaction and continue outside of it.
        """
        # SQL of the ORM has no semicolon. Quotes are deliberately not parsed: a mistake there would
        # let "COMMIT; DROP …" through, as it has in other projects.
        if ";" in sql.rstrip("; \n\t") and ENDS_TRANSACTION.search(sql):
            raise MultipleStatements
        is_idle = self.connection.connection.info.transaction_status == TRANSACTION_IDLE
        if not self._is_read_only and (self.depth or not is_idle):
            # With a savepoint, since the outer transaction continues to write. Its name is random,
            # so that a statement of the site cannot release it.
            name = f"mcp_django_{secrets.token_hex(8)}"
            self._run(f"SAVEPOINT {name}")
            self._savepoint = name
        elif is_idle and not self.connection.in_atomic_block:
            block = RuntimeTransaction(self.connection.alias)
            block.__enter__()
            self._block = block
        if is_idle or not self._is_read_only:
            self._run(SET_READ_ONLY_SQL.format(ms=max(1, int(self.limits.seconds * 1000))))
            self._is_read_only = True
        if self._savepoint and _TRANSACTION_END.match(sql):
            raise _NotReading
        return sql

    def classify_error(self, exc: Exception) -> ErrorKind | None:
        """Compare SQLSTATE codes, since the messages are translated."""
        state = _driver_error_attribute(exc, "sqlstate") or _driver_error_attribute(exc, "pgcode")
        return POSTGRESQL_ERROR_KINDS.get(state)

    def end(self, *, succeeded: bool) -> None:
        """Undo the options, including any SET of the site, by leaving savepoint and block."""
        if self._savepoint:
            # Roll back, since a release alone would keep the timeout until the commit.
            try:
                with self.connection.wrap_database_errors:
                    self._run(f"ROLLBACK TO SAVEPOINT {self._savepoint}")
                    self._run(f"RELEASE SAVEPOINT {self._savepoint}")
            except Error:
                # The connection is lost, and the outer transaction with it.
                self.connection.needs_rollback = True
            else:
                self._restore_needs_rollback()
        if self._block is not None:
            # Roll back, which undoes any SET, unless ``on_commit`` functions wait for the commit.
            commits = succeeded and self.connection.run_on_commit
            if self.connection.in_atomic_block and not commits:
                transaction.set_rollback(True, using=self.connection.alias)
            self._block.__exit__(None, None, None)


# SQLite -------------------------------------------------------------------------------------------

# ``query_only`` and a progress handler are settings of the connection that Django does not know.
# They are changed on the driver's connection, because a Django cursor runs nothing after a failed
# statement in a transaction, and the connection would then remain read-only for its next user.

# Virtual machine instructions of SQLite between two checks of the time: under a millisecond.
PROGRESS_STEPS = 5000
READ_ONLY_PRAGMA = "query_only"
# By the low byte of the extended result code, which is the primary result code.
SQLITE_ERROR_KINDS: dict[int, ErrorKind] = {
    sqlite3.SQLITE_READONLY: "write",
    sqlite3.SQLITE_INTERRUPT: "time",
}


class _SQLite(_Enforcement):
    """An SQLite connection."""

    _raw: Any = None
    _is_in_transaction = False
    _was_query_only = 0
    _deadline = math.inf

    def prepare_statement(self, sql: str) -> str:
        """Enable ``query_only`` at the first statement on each driver connection.

        Raises:
            ToolError: the statement could disable it.
        """
        if READ_ONLY_PRAGMA in sql.lower():
            raise ToolError(f"A read-only call must not use the pragma {READ_ONLY_PRAGMA}.")
        raw = self.connection.connection
        # Only once: enabling it before each statement would make SQLite prepare them all again.
        if raw is not self._raw:
            self._release()
            self._is_in_transaction = raw.in_transaction
            cursor = raw.cursor()
            # The site may have set a row factory on the connection.
            cursor.row_factory = None
            self._was_query_only = int(cursor.execute(f"PRAGMA {READ_ONLY_PRAGMA}").fetchone()[0])
            if not self._was_query_only:
                cursor.execute(f"PRAGMA {READ_ONLY_PRAGMA} = 1")
            raw.set_progress_handler(lambda: time.monotonic() > self._deadline, PROGRESS_STEPS)
            self._raw = raw
        if self._is_in_transaction and _TRANSACTION_END.match(sql):
            raise _NotReading
        # BEGIN IMMEDIATE takes a write lock, which a reader does not need and cannot get.
        return "BEGIN" if sql.startswith("BEGIN") else sql

    def set_timeout(self, seconds: float | None) -> None:
        """Interrupt the running statement after this many seconds."""
        self._deadline = math.inf if seconds is None else time.monotonic() + seconds

    def classify_error(self, exc: Exception) -> ErrorKind | None:
        """Compare the driver's error codes, since the messages change."""
        code = _driver_error_attribute(exc, "sqlite_errorcode")
        return SQLITE_ERROR_KINDS.get(code & 0xFF) if isinstance(code, int) else None

    def end(self, *, succeeded: bool) -> None:
        """Disable ``query_only``, unless the site had enabled it."""
        self._release()
        self._restore_needs_rollback()

    def _release(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            # The site may have closed the connection in the meantime.
            with suppress(sqlite3.ProgrammingError):
                raw.set_progress_handler(None, 0)
                if not self._was_query_only:
                    raw.execute(f"PRAGMA {READ_ONLY_PRAGMA} = 0")


# MariaDB and MySQL --------------------------------------------------------------------------------

# A transaction can be made read-only only before it begins, so the session is set to begin only
# read-only transactions. In a transaction that began before the call, such as that of a tool that
# writes and reads a resource, the database rejects nothing: statements are rejected here by their
# first word, and what a function called by a statement writes is rolled back to a savepoint.

# The variables of a session for read-only transactions and for the time limit of a statement, and
# the time units in a second. MySQL limits only SELECT.
MARIADB_VARIABLES = ("tx_read_only", "max_statement_time", 1.0)
MYSQL_VARIABLES = ("transaction_read_only", "max_execution_time", 1000)
TRANSACTION_IN_PROGRESS = 1568
MYSQL_ERROR_KINDS: dict[object, ErrorKind] = {1792: "write", 1969: "time", 3024: "time"}

_FIRST_WORD = re.compile(r"\A(?:[\s(]|/\*.*?\*/|(?:#|--(?=\s))[^\n]*(?:\n|\Z))*(\w+)", re.DOTALL)
READING_WORDS = frozenset(
    {"SELECT", "SHOW", "EXPLAIN", "DESCRIBE", "DESC", "WITH", "VALUES", "TABLE"}
)
# Statements that write although they begin with one of those words: locks, ``WITH … UPDATE``.
_WRITES = re.compile(
    r"(?<![`.])\b(?:UPDATE|DELETE|INSERT|REPLACE\s+INTO)\b|\bSHARE\s+MODE\b|\bFOR\s+SHARE\b",
    re.IGNORECASE,
)
# Other statements that may run in a transaction in progress, from the first word on. Of SET, only
# assignments that neither commit nor change privileges; no other may follow a comma.
_USER_VARIABLE = r"@[\w$.]+\s*:?=[^,]*"
_SESSION_VARIABLE = r"(?:(?:SESSION|LOCAL)\s+|@@(?:(?:SESSION|LOCAL)\.)?)?"
_KEEPS_TRANSACTION = re.compile(
    rf"SAVEPOINT\b|RELEASE\b|ROLLBACK\s+TO\b|SET\s+(?:{_USER_VARIABLE}(?:,\s*{_USER_VARIABLE})*"
    rf"|NAMES\b[^,]*|{_SESSION_VARIABLE}(?:time_zone|group_concat_max_len)\s*:?=[^,]*)\Z",
    re.IGNORECASE,
)
# Words that SET and START must not contain: they make a transaction writable, or end or begin one
# later, or change the server.
_TRANSACTION_VARIABLE = re.compile(
    r"read_only|\bwrite\b|autocommit|completion_type|\bglobal\b|\bpersist", re.IGNORECASE
)
# Statements whose text is not known, and those whose effect on the session outlasts the call.
REFUSED_WORDS = frozenset({"PREPARE", "EXECUTE", "XA", "USE", "LOCK", "FLUSH", "BACKUP"})
EXECUTED_COMMENT = re.compile(r"/\*M?!")


class _MySQL(_Enforcement):
    """A MariaDB or MySQL connection, with mysqlclient or PyMySQL."""

    _raw: Any = None
    _savepoint = ""
    _restoring_sql = ""

    def prepare_statement(self, sql: str) -> str:
        """Make transactions read-only at the first statement on each driver connection.

        Raises:
            MultipleStatements: the string has several statements, and one may do more than read.
            ToolError: the statement could make transactions writable, or outlast the call.
        """
        # As for PostgreSQL, quotes are not parsed.
        _first, *others = sql.rstrip("; \n\t").split(";")
        if any(_find_first_word(other)[0] not in READING_WORDS for other in others):
            raise MultipleStatements
        word, statement = _find_first_word(sql)
        is_setting = word in {"SET", "START", ""} and _TRANSACTION_VARIABLE.search(sql)
        if is_setting or word in REFUSED_WORDS or EXECUTED_COMMENT.search(sql):
            raise ToolError(
                "A read-only call must not make its transactions writable, or change its "
                f"connection or the server, as {word or 'this statement'} does."
            )
        raw = self.connection.connection
        if raw is not self._raw:
            self._raw, self._savepoint = raw, ""
            is_mariadb = self.connection.mysql_is_mariadb  # type: ignore[attr-defined]
            read_only, timeout, units = MARIADB_VARIABLES if is_mariadb else MYSQL_VARIABLES
            before = self._run(f"SELECT @@session.{read_only}, @@session.{timeout}")
            seconds = type(units)(self.limits.seconds * units)
            # Zero means no limit; a shorter one of the site is kept.
            seconds = min(before[1] or seconds, seconds or units)
            restoring_sql = "SET SESSION {0} = {2}, {1} = {3}"
            self._restoring_sql = restoring_sql.format(read_only, timeout, *before)
            try:
                self._run("SET TRANSACTION READ ONLY")
            except Exception as exc:
                if exc.args[:1] != (TRANSACTION_IN_PROGRESS,):
                    raise
                # Random, so that a statement of the site cannot release it.
                self._savepoint = f"mcp_django_{secrets.token_hex(8)}"
                self._run(f"SAVEPOINT {self._savepoint}")
            self._run(f"SET SESSION {read_only} = 1, {timeout} = {seconds}")
        reads = word in READING_WORDS and not _WRITES.search(sql)
        if self._savepoint and not reads and not _KEEPS_TRANSACTION.match(statement):
            raise _NotReading
        return sql

    def classify_error(self, exc: Exception) -> ErrorKind | None:
        """Compare the server's error codes, since the messages are translated."""
        code = exc.args[0] if exc.args else None
        return MYSQL_ERROR_KINDS.get(code) if isinstance(code, int) else None

    def end(self, *, succeeded: bool) -> None:
        """Restore the session's variables and the transaction, so that it can write again."""
        raw, self._raw = self._raw, None
        if raw is None or raw is not self.connection.connection:
            return
        if name := self._savepoint:
            statements = [f"ROLLBACK TO SAVEPOINT {name}", f"RELEASE SAVEPOINT {name}"]
        else:
            # The call began the transaction, and an outer block would continue it.
            outer_names = self.connection.savepoint_ids[: max(0, self.depth - 1)]
            create_sql = self.connection.ops.savepoint_create_sql
            statements = ["ROLLBACK", *(create_sql(outer) for outer in outer_names if outer)]
        try:
            with self.connection.wrap_database_errors:
                for sql in [*statements, self._restoring_sql]:
                    self._run(sql)
        except Error:
            # The connection or the outer transaction is lost; the next call needs a new connection.
            with suppress(Error):
                self.connection.close()
        else:
            self._restore_needs_rollback()


def _find_first_word(sql: str) -> tuple[str, str]:
    """Return the first word after comments, in upper case, and the statement from there on."""
    match = _FIRST_WORD.match(sql)
    return (match[1].upper(), sql[match.start(1) :]) if match else ("", "")


# On other databases, use is only counted: Oracle, for example, can be made read-only only at the
# start of a transaction, and whether a transaction has started cannot be determined.
ENFORCEMENT_BY_VENDOR: dict[str, type[_Enforcement]] = {
    "postgresql": _PostgreSQL,
    "mysql": _MySQL,
    "sqlite": _SQLite,
}
