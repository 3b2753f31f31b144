"""Read-only limits: limit the database use of a read-only call and reject its writes.

The call of a component that is declared ``read_only`` is limited: its statements, the rows that
it fetches and the time that the database takes are counted against ``MCP_DJANGO["LIMITS"]``, and
PostgreSQL and SQLite reject its writes. MySQL and Oracle can be made read-only only at the start of
a transaction, so there use is counted but writes are not rejected. For a call that does not use
the database no connection is opened.

The limits apply in the thread whose connections the call uses, from its start to its end. Nested
calls share them.
"""

from __future__ import annotations

import logging
import re
import secrets
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from typing import Any, Literal, NoReturn, TypeVar

from asgiref.sync import sync_to_async
from django.db import Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from mcp_django.conf import Limits, get_settings
from mcp_django.core.component import Component
from mcp_django.exceptions import ToolError
from mcp_django.execution.call_record import Entry
from mcp_django.execution.threads import Surrounding, hold_back, let_go

logger = logging.getLogger("mcp_django")

T = TypeVar("T")


class _Here(threading.local):
    """The limited call of this thread, and the number of nested calls, itself included."""

    call: _LimitedCall | None = None
    depth = 0


_here = _Here()


@contextmanager
def around(component: Component, entry: Entry | None = None) -> Iterator[None]:
    """Limit the database use of this thread, if the component is read-only and enforced.

    A nested call belongs to the outer one: it shares its limits and may not write, whatever it
    declares. The ``entry`` of the call log gets the object that counts the use.
    """
    if not component.is_governed:
        yield
        return
    _enter(component, entry)
    succeeded = False
    try:
        yield
        succeeded = True
    finally:
        _leave(succeeded=succeeded)


@asynccontextmanager
async def shared_thread(component: Component, entry: Entry | None = None) -> AsyncIterator[None]:
    """Limit an async call whose database work runs in a thread that other calls use too.

    For tests, which run all database work in one thread so that all of it is in one transaction.
    Calls that run there at the same time share their limits.
    """
    if not component.is_governed:
        yield
        return
    await sync_to_async(_enter)(component, entry)
    succeeded = False
    try:
        yield
        succeeded = True
    finally:
        await sync_to_async(_leave)(succeeded=succeeded)


def _enter(component: Component, entry: Entry | None) -> None:
    if _here.call is None:
        call = _LimitedCall(component)
        if entry is not None:
            entry.governed_by(call.spending)
        call.start()
        _here.call = call
    _here.depth += 1


def _leave(*, succeeded: bool) -> None:
    _here.depth -= 1
    call = _here.call
    if _here.depth == 0 and call is not None:
        _here.call = None
        call.end(succeeded=succeeded)


# One limited call ---------------------------------------------------------------------------------


class _LimitedCall:
    """Monitors the connections of the thread that starts it; the same thread must end it."""

    def __init__(self, component: Component) -> None:
        self.spending = Spending(component, get_settings().limits)
        self._watches: list[_Watch] = []

    def start(self) -> None:
        """Monitor every database, without opening a connection before the first statement."""
        for alias in connections:
            connection = connections[alias]
            kind = ENFORCED.get(connection.vendor, _Enforcement)
            self._watches.append(_Watch(kind(connection, self.spending.limits), self.spending))
        for watch in self._watches:
            watch.enforcement.connection.execute_wrappers.append(watch)
        hold_back()

    def end(self, *, succeeded: bool) -> None:
        """Restore the state of every connection, including its transaction, as before the call."""
        for watch in self._watches:
            wrappers = watch.enforcement.connection.execute_wrappers
            if watch in wrappers:
                wrappers.remove(watch)
        with ExitStack() as stack:
            # Runs last, even after a failure.
            stack.callback(let_go, succeeded=succeeded)
            for watch in self._watches:
                stack.callback(watch.end, succeeded=succeeded)


# Every statement of one connection ----------------------------------------------------------------

Execute = Callable[[str, Any, bool, dict[str, Any]], Any]

# Django's statements to enter and leave an ``atomic`` block; they are not counted.
BLOCKS = ("BEGIN", "SAVEPOINT ", "RELEASE ", "ROLLBACK TO ")


class _Watch:
    """A Django ``execute_wrapper`` that limits one connection from its first statement on."""

    def __init__(self, enforcement: _Enforcement, spending: Spending) -> None:
        self.enforcement = enforcement
        self._spending = spending
        self._is_holding = False
        self._is_over = False
        connection = enforcement.connection
        self._hooks_before = connection.run_on_commit if connection.connection is None else None

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
        if self._is_holding or self._is_connecting:
            # A savepoint for our own statements, if autocommit is off; or the site's statements for
            # each new connection, whose effect must outlast the call.
            return execute(sql, params, many, context)
        # psycopg has objects for composed statements.
        text = sql if isinstance(sql, str) else str(sql)
        if not text.startswith(BLOCKS):
            self._spending.add_statement(text)
        wanted = self._hold(text)
        counted = self._count(context["cursor"])
        sql = sql if wanted is text else wanted
        result = self.timed(lambda: execute(sql, params, many, context), text)
        # Drivers return their cursor, from which rows could be read without being counted.
        return counted if result is counted.raw else result

    def timed(self, work: Callable[[], T], sql: str = "") -> T:
        """Run database work with the remaining time as its timeout, and count its time.

        Raises:
            LimitReached: the work took too long.
            WriteRefused: the work tried to write.
        """
        if self._is_over:
            return work()
        started = time.monotonic()
        self.enforcement.allow(self._spending.seconds_left)
        try:
            return work()
        except Exception as exc:
            self._translate(exc, sql)
            raise
        finally:
            self.enforcement.allow(None)
            self._spending.seconds += time.monotonic() - started

    @property
    def rows_left(self) -> int | None:
        """How many more rows may be fetched; ``None`` after the end of the call."""
        if self._is_over:
            return None
        return max(0, self._spending.limits.rows - self._spending.rows)

    def add_rows(self, number: int) -> None:
        """Count fetched rows, unless the call has ended and its cursor is still in use."""
        if not self._is_over:
            self._spending.add_rows(number)

    def end(self, *, succeeded: bool) -> None:
        """Stop limiting the connection and restore its state."""
        self._is_over = True
        self.enforcement.end(succeeded=succeeded)

    @property
    def _is_connecting(self) -> bool:
        """Whether Django is still connecting, which ends with a new ``run_on_commit`` list."""
        hooks = self._hooks_before
        return hooks is not None and self.enforcement.connection.run_on_commit is hooks

    def _hold(self, sql: str) -> str:
        self._is_holding = True
        try:
            with self.enforcement.connection.wrap_database_errors:
                return self.enforcement.before(sql)
        finally:
            self._is_holding = False

    def _count(self, cursor: Any) -> _CountedCursor:
        """Replace the driver's cursor inside Django's cursor with one that counts rows."""
        raw = cursor.cursor
        if isinstance(raw, _CountedCursor):
            if raw.watch is self:
                return raw
            # The cursor remains from an earlier call.
            raw = raw.raw
        cursor.cursor = counted = _CountedCursor(raw, self)
        return counted

    def _translate(self, exc: Exception, sql: str) -> None:
        meaning = self.enforcement.meaning(exc)
        if meaning == "write":
            raise WriteRefused(self._spending.component, sql) from exc
        if meaning == "time":
            self._spending.refuse("seconds", cause=exc)


# Counting fetched rows ----------------------------------------------------------------------------


class _CountedCursor:
    """A proxy for the driver's cursor that counts the fetched rows."""

    def __init__(self, raw: Any, watch: _Watch) -> None:
        self.raw = raw
        self.watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def fetchone(self) -> Any:
        """Fetch and count the next row."""
        return self._counted(self.raw.fetchone, _one)

    def fetchmany(self, *args: Any, **kwargs: Any) -> Any:
        """Fetch and count the next rows."""
        return self._counted(lambda: self.raw.fetchmany(*args, **kwargs), len)

    def fetchall(self) -> Any:
        """Fetch and count all remaining rows, up to the limit."""
        left = self.watch.rows_left
        # One row more than the limit is enough to exceed it.
        return self.raw.fetchall() if left is None else self.fetchmany(left + 1)

    def __iter__(self) -> Iterator[Any]:
        while (row := self.fetchone()) is not None:
            yield row

    def _counted(self, fetch: Callable[[], Any], count: Callable[[Any], int]) -> Any:
        rows = self.watch.timed(fetch)
        self.watch.add_rows(count(rows))
        return rows


def _one(row: Any) -> int:
    return int(row is not None)


# Usage, and the errors at a limit -----------------------------------------------------------------

# A table name as databases quote it, with or without its schema.
_NAME = r"((?:[\"`\[]?[\w$]+[\"`\]]?\.)?[\"`\[]?[\w$]+)"
_READ = re.compile(rf"\bFROM\s+{_NAME}", re.IGNORECASE)
_WRITTEN = re.compile(rf"\b(?:INTO|UPDATE|FROM|TABLE|INDEX)\s+{_NAME}", re.IGNORECASE)


class LimitReached(ToolError):
    """The call exceeded one of the limits in ``MCP_DJANGO["LIMITS"]``."""


class WriteRefused(Exception):
    """A component that is declared read-only tried to write, which is a bug of the component.

    ``told`` is the message for the client.
    """

    def __init__(self, component: Component, sql: str) -> None:
        what = f"write to {found}" if (found := _table_in(_WRITTEN, sql)) else "change the database"
        super().__init__(
            f"{component.function.name}() is declared read_only and tried to {what}: "
            "remove read_only=True or pass enforce=False."
        )
        self.told = (
            f"{component} may only read data, but tried to write. Nothing was changed. This is a "
            "server error. The error was logged."
        )


class Spending:
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
            self.refuse("seconds")
        if len(self._statements) >= self.limits.statements:
            self.refuse("statements")
        self._statements.append(sql)

    def add_rows(self, number: int) -> None:
        """Count fetched rows.

        Raises:
            LimitReached: the call has fetched too many rows.
        """
        self.rows += number
        if self.rows > self.limits.rows:
            self.refuse("rows")

    def refuse(
        self, what: Literal["rows", "statements", "seconds"], *, cause: Exception | None = None
    ) -> NoReturn:
        """Log the reached limit for the developer, and raise the error for the client.

        Raises:
            LimitReached: always, with a message that says how to use less.
        """
        limit = f"{getattr(self.limits, what):g}"
        used = self._repetition() if what == "statements" else f"LIMITS[{what!r}] is {limit}"
        logger.warning("%s was stopped by a limit: %s.", self.component, used)
        raise LimitReached(SENTENCES[what].format(limit)) from cause

    def _repetition(self) -> str:
        """Describe the statement that was repeated the most, which suggests a query in a loop."""
        total = len(self._statements)
        sql, times = Counter(self._statements).most_common(1)[0]
        if times == 1:
            return f"{total} statements, all of them different"
        place = _table_in(_READ, sql) or "an expression"
        return (
            f"{total} statements, {times} of them the same query on {place}: "
            "select_related() or prefetch_related() is missing"
        )


SENTENCES = {
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


def _table_in(pattern: re.Pattern[str], sql: str) -> str:
    """Return the first table name in a statement that matches the pattern, or an empty text."""
    found = pattern.search(sql)
    return re.sub(r"[\"`\[\]]", "", found.group(1)) if found else ""


# What a database can enforce ----------------------------------------------------------------------

Meaning = Literal["write", "time"]


class _Enforcement:
    """One connection of a limited call; ``depth`` is its number of open ``atomic`` blocks before.

    This base class enforces nothing: on a database without a subclass, use is only counted.
    """

    def __init__(self, connection: BaseDatabaseWrapper, limits: Limits) -> None:
        self.connection = connection
        self.limits = limits
        self.depth = len(connection.atomic_blocks)
        self._needed_rollback = connection.needs_rollback

    def before(self, sql: str) -> str:
        """Limit the open connection before a statement runs; return the statement to run."""
        return sql

    def allow(self, seconds: float | None) -> None:
        """Set the timeout of the statement that runs next; ``None`` ends the timeout."""

    def meaning(self, exc: Exception) -> Meaning | None:
        """Return whether the error is a rejected write or a timeout; ``None`` for any other."""
        return None

    def end(self, *, succeeded: bool) -> None:
        """Restore the connection; does nothing if it was never limited."""

    def _forget_failures(self) -> None:
        """Restore ``needs_rollback``: a rejected statement must not roll back an outer block."""
        if self.depth and self.connection.in_atomic_block:
            self.connection.needs_rollback = self._needed_rollback


def _driver_error(exc: BaseException, attribute: str) -> object:
    """Return an attribute of the driver's exception, which Django's may wrap."""
    for one in (exc, exc.__cause__):
        if getattr(one, attribute, None) is not None:
            return getattr(one, attribute)
    return None


# PostgreSQL ---------------------------------------------------------------------------------------

# A read-only transaction, in which the site's own transactions are savepoints. Every option is set
# for the transaction and never for the session, because a connection pooler shares a session among
# clients.

IDLE = 0
POSTGRESQL_MEANINGS: dict[object, Meaning] = {"25006": "write", "57014": "time"}

# One statement, so one round trip. A shorter ``statement_timeout`` of the site is kept.
HOLD = """
SELECT set_config('transaction_read_only', 'on', true), set_config('statement_timeout',
CASE WHEN current_setting('statement_timeout')::interval BETWEEN '1 ms' AND '{ms} ms'
THEN current_setting('statement_timeout') ELSE '{ms}' END, true)
"""

# Keywords of statements that end the transaction, for strings of several statements.
LEAVES = re.compile(r"\b(commit|rollback|abort|end|prepare)\b", re.IGNORECASE)


class SeveralStatements(ToolError):
    """A string has several statements, and one may end the read-only transaction."""

    def __init__(self) -> None:
        super().__init__(
            "Send one statement at a time, without transaction commands such as COMMIT."
        )


class _PostgreSQL(_Enforcement):
    """A PostgreSQL connection, with psycopg 3 or psycopg2."""

    _is_held = False
    _savepoint = ""
    _block: Surrounding | None = None

    def before(self, sql: str) -> str:
        """Make the transaction in which the statement will run read-only.

        A transaction that the site begins within the call also ends within it, together with the
        options that were set for it; the next statement then sets them again.

        Raises:
            SeveralStatements: the string could end the transaction and continue outside of it.
        """
        # SQL of the ORM has no semicolon. Quotes are deliberately not parsed: a mistake there would
        # let "COMMIT; DROP …" through, as it has in other projects.
        if ";" in sql.rstrip("; \n\t") and LEAVES.search(sql):
            raise SeveralStatements
        is_idle = self.connection.connection.info.transaction_status == IDLE
        if not self._is_held and (self.depth or not is_idle):
            self._begin_inside()
        elif is_idle:
            self._begin()
        return sql

    def meaning(self, exc: Exception) -> Meaning | None:
        """Compare SQLSTATE codes, since the messages are translated."""
        state = _driver_error(exc, "sqlstate") or _driver_error(exc, "pgcode")
        return POSTGRESQL_MEANINGS.get(state)

    def end(self, *, succeeded: bool) -> None:
        """Undo the options, including any SET of the site, by leaving savepoint and block."""
        if self._savepoint:
            self._leave_savepoint()
        if self._block is not None:
            self._leave_block(self._block, succeeded=succeeded)

    def _begin(self) -> None:
        if not self.connection.in_atomic_block:
            block = Surrounding(self.connection.alias)
            block.__enter__()
            self._block = block
        self._hold()

    def _begin_inside(self) -> None:
        """Limit the call with a savepoint, since the outer transaction continues to write."""
        # Random, so that a statement of the site cannot release it.
        name = f"mcp_django_{secrets.token_hex(8)}"
        self._run(f"SAVEPOINT {name}")
        self._savepoint = name
        self._hold()

    def _hold(self) -> None:
        self._run(HOLD.format(ms=max(1, int(self.limits.seconds * 1000))))
        self._is_held = True

    def _leave_savepoint(self) -> None:
        """Roll back, since a release alone would keep the timeout until the commit."""
        try:
            with self.connection.wrap_database_errors:
                self._run(f"ROLLBACK TO SAVEPOINT {self._savepoint}")
                self._run(f"RELEASE SAVEPOINT {self._savepoint}")
        except Error:
            # The connection is lost, and the outer transaction with it.
            self.connection.needs_rollback = True
        else:
            self._forget_failures()

    def _leave_block(self, block: Surrounding, *, succeeded: bool) -> None:
        """Roll back, which undoes any SET, unless ``on_commit`` functions wait for the commit."""
        alias = self.connection.alias
        if self.connection.in_atomic_block and not (succeeded and self.connection.run_on_commit):
            transaction.set_rollback(True, using=alias)
        block.__exit__(None, None, None)

    def _run(self, sql: str) -> None:
        """Run SQL on the driver's cursor: Django's would refuse it after an error, and count it."""
        with closing(self.connection.connection.cursor()) as cursor:
            cursor.execute(sql)


# SQLite -------------------------------------------------------------------------------------------

# ``query_only`` and a progress handler are settings of the connection that Django does not know.
# They are changed on the driver's connection, because a Django cursor runs nothing after a failed
# statement in a transaction, and the connection would then remain read-only for its next user.

# Virtual machine instructions of SQLite between two checks of the time: under a millisecond.
STEPS = 5000
SWITCH = "query_only"
# By the low byte of the extended result code, which is the primary result code.
SQLITE_MEANINGS: dict[int, Meaning] = {
    sqlite3.SQLITE_READONLY: "write",
    sqlite3.SQLITE_INTERRUPT: "time",
}


class _SQLite(_Enforcement):
    """An SQLite connection."""

    _raw: Any = None
    _was_query_only = 0
    _deadline: float | None = None

    def before(self, sql: str) -> str:
        """Enable ``query_only`` at the first statement on each driver connection.

        Raises:
            ToolError: the statement could disable it.
        """
        # Only once: enabling it before each statement would make SQLite prepare them all again.
        if SWITCH in sql.lower():
            raise ToolError(f"A read-only call must not use the pragma {SWITCH}.")
        raw = self.connection.connection
        if raw is not self._raw:
            self._take(raw)
        # BEGIN IMMEDIATE takes a write lock, which a reader does not need and cannot get.
        return "BEGIN" if sql.startswith("BEGIN") else sql

    def allow(self, seconds: float | None) -> None:
        """Interrupt the running statement after this many seconds."""
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def meaning(self, exc: Exception) -> Meaning | None:
        """Compare the driver's error codes, since the messages change."""
        code = _driver_error(exc, "sqlite_errorcode")
        return SQLITE_MEANINGS.get(code & 0xFF) if isinstance(code, int) else None

    def end(self, *, succeeded: bool) -> None:
        """Disable ``query_only``, unless the site had enabled it."""
        self._release()
        self._forget_failures()

    def _take(self, raw: Any) -> None:
        self._release()
        cursor = raw.cursor()
        # The site may have set a row factory on the connection.
        cursor.row_factory = None
        self._was_query_only = int(cursor.execute(f"PRAGMA {SWITCH}").fetchone()[0])
        if not self._was_query_only:
            cursor.execute(f"PRAGMA {SWITCH} = 1")
        raw.set_progress_handler(self._is_late, STEPS)
        self._raw = raw

    def _release(self) -> None:
        raw, self._raw = self._raw, None
        if raw is None:
            return
        try:
            raw.set_progress_handler(None, 0)
            if not self._was_query_only:
                raw.execute(f"PRAGMA {SWITCH} = 0")
        except sqlite3.ProgrammingError:
            # The site closed the connection meanwhile.
            return

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline


# MySQL and Oracle can be made read-only only at the start of a transaction, and it cannot be told
# whether one has started; their use is only counted.
ENFORCED: dict[str, type[_Enforcement]] = {"postgresql": _PostgreSQL, "sqlite": _SQLite}
