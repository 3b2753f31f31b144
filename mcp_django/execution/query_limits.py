"""Read-only limits: how much of the database one call may use, and that a reading one cannot write.

The call of a component that is declared ``read_only`` is limited: its statements, the rows that
it fetches and the time that the database takes are counted against ``MCP_DJANGO["LIMITS"]``, and
PostgreSQL and SQLite refuse its writes. On MySQL and Oracle, which can be made read-only only at
the start of a transaction, use is counted and writes are not refused. A call that uses no
database costs nothing extra; no connection is opened for it.

A call is limited in the thread whose connections it uses, from its start to its end. What it
calls in turn shares its limits.
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
    """The limited call of this thread, and how many are inside of it."""

    call: _LimitedCall | None = None
    depth = 0


_here = _Here()


@contextmanager
def around(component: Component, entry: Entry | None = None) -> Iterator[None]:
    """Limit what this thread does with its databases, if the component is to be limited.

    What a limited call calls in turn is a part of it: it spends the same limits, and may not
    write either, whatever it says of itself. The ``entry`` in the call log learns what it read.
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
    """Limit an async call whose database work goes to a thread that it does not own.

    For tests, which have all of it in one thread so that everybody sees one transaction: calls
    that run there at the same time are limited as one.
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
    """Watches the connections of the thread that starts it; the same thread has to end it."""

    def __init__(self, component: Component) -> None:
        self.spending = Spending(component, get_settings().limits)
        self._watches: list[_Watch] = []

    def start(self) -> None:
        """Watch every database. None is opened: the first statement is what a watch waits for."""
        for alias in connections:
            connection = connections[alias]
            kind = ENFORCED.get(connection.vendor, _Enforcement)
            self._watches.append(_Watch(kind(connection, self.spending.limits), self.spending))
        for watch in self._watches:
            watch.enforcement.connection.execute_wrappers.append(watch)
        hold_back()

    def end(self, *, succeeded: bool) -> None:
        """Leave every connection as it was found, in a transaction that it was in or in none."""
        for watch in self._watches:
            wrappers = watch.enforcement.connection.execute_wrappers
            if watch in wrappers:
                wrappers.remove(watch)
        with ExitStack() as stack:
            # Called last, also after a failure.
            stack.callback(let_go, succeeded=succeeded)
            for watch in self._watches:
                stack.callback(watch.end, succeeded=succeeded)


# Every statement of one connection ----------------------------------------------------------------

Execute = Callable[[str, Any, bool, dict[str, Any]], Any]

# What Django says to enter and leave a block; no query of anybody.
BLOCKS = ("BEGIN", "SAVEPOINT ", "RELEASE ", "ROLLBACK TO ")


class _Watch:
    """An ``execute_wrapper`` of Django's; from the first statement on the connection is held."""

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
        """Run a statement, if the limits and the database let it.

        Raises:
            LimitReached: there is no more.
            WriteRefused: it writes.
        """
        if self._is_holding or self._is_connecting:
            # A savepoint around ours, where the site has no autocommit; or what the site says to
            # each new connection, which has to outlast the call.
            return execute(sql, params, many, context)
        # The driver of PostgreSQL has objects for composed statements.
        text = sql if isinstance(sql, str) else str(sql)
        if not text.startswith(BLOCKS):
            self._spending.add_statement(text)
        wanted = self._hold(text)
        counted = self._count(context["cursor"])
        sql = sql if wanted is text else wanted
        result = self.timed(lambda: execute(sql, params, many, context), text)
        # Drivers return their cursor, from which rows could be read behind our back.
        return counted if result is counted.raw else result

    def timed(self, work: Callable[[], T], sql: str = "") -> T:
        """Let the database work, for no longer than there is time left.

        Raises:
            LimitReached: it took too long.
            WriteRefused: it was told to write.
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
        """How many rows may be fetched yet; ``None`` once the call is over."""
        if self._is_over:
            return None
        return max(0, self._spending.limits.rows - self._spending.rows)

    def add_rows(self, number: int) -> None:
        """Count rows; what a cursor gives that outlived the call is nobody's business."""
        if not self._is_over:
            self._spending.add_rows(number)

    def end(self, *, succeeded: bool) -> None:
        """Let go of the connection."""
        self._is_over = True
        self.enforcement.end(succeeded=succeeded)

    @property
    def _is_connecting(self) -> bool:
        """Whether the connection is being made; Django ends that with a new list of hooks."""
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
        """The driver's cursor within Django's, counted; Django's class stays as it is."""
        raw = cursor.cursor
        if isinstance(raw, _CountedCursor):
            if raw.watch is self:
                return raw
            # Kept from an earlier call.
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
    """Stands where the driver's cursor stood in one cursor of Django's; all else is passed on."""

    def __init__(self, raw: Any, watch: _Watch) -> None:
        self.raw = raw
        self.watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def fetchone(self) -> Any:
        """The next row."""
        return self._counted(self.raw.fetchone, _one)

    def fetchmany(self, *args: Any, **kwargs: Any) -> Any:
        """The next rows."""
        return self._counted(lambda: self.raw.fetchmany(*args, **kwargs), len)

    def fetchall(self) -> Any:
        """All rows that are left; no more are read than may be."""
        left = self.watch.rows_left
        # One more than there may be is enough to be told so.
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

# A name as a database quotes it, with its schema or without.
_NAME = r"((?:[\"`\[]?[\w$]+[\"`\]]?\.)?[\"`\[]?[\w$]+)"
_READ = re.compile(rf"\bFROM\s+{_NAME}", re.IGNORECASE)
_WRITTEN = re.compile(rf"\b(?:INTO|UPDATE|FROM|TABLE|INDEX)\s+{_NAME}", re.IGNORECASE)


class LimitReached(ToolError):
    """The call wants more of the database than ``MCP_DJANGO["LIMITS"]`` gives to one call."""


class WriteRefused(Exception):
    """A component that is declared read-only tried to change something: its author's mistake.

    ``told`` is what the client reads instead.
    """

    def __init__(self, component: Component, sql: str) -> None:
        what = f"write to {found}" if (found := _table_in(_WRITTEN, sql)) else "change the database"
        super().__init__(
            f"{component.function.name}() is declared read_only and tried to {what}: "
            "remove read_only=True or pass enforce=False."
        )
        self.told = (
            f"{component} may only read, and tried to change something. Nothing was changed; "
            "this is a mistake of the server, and it was logged."
        )


class Spending:
    """Rows, statements and seconds of one call, over all its databases."""

    def __init__(self, component: Component, limits: Limits) -> None:
        self.component = component
        self.limits = limits
        self.rows = 0
        self.seconds = 0.0
        self._statements: list[str] = []

    @property
    def seconds_left(self) -> float:
        """How long the next statement may take."""
        return self.limits.seconds - self.seconds

    def add_statement(self, sql: str) -> None:
        """Count a statement that is about to run.

        Raises:
            LimitReached: it may not.
        """
        if self.seconds_left <= 0:
            self.refuse("seconds")
        if len(self._statements) >= self.limits.statements:
            self.refuse("statements")
        self._statements.append(sql)

    def add_rows(self, number: int) -> None:
        """Count rows that were fetched.

        Raises:
            LimitReached: they are too many.
        """
        self.rows += number
        if self.rows > self.limits.rows:
            self.refuse("rows")

    def refuse(
        self, what: Literal["rows", "statements", "seconds"], *, cause: Exception | None = None
    ) -> NoReturn:
        """Tell the log what the developer has to know, and the client how to go on.

        Raises:
            LimitReached: always.
        """
        limit = f"{getattr(self.limits, what):g}"
        used = self._repetition() if what == "statements" else f"LIMITS[{what!r}] is {limit}"
        logger.warning("%s was stopped by a limit: %s.", self.component, used)
        raise LimitReached(SENTENCES[what].format(limit)) from cause

    def _repetition(self) -> str:
        """The statement that was repeated the most: the sign of a query in a loop."""
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
        "The database needs longer for this call than it gets, which is {} seconds at most. "
        "Filter more narrowly, or ask for less at a time."
    ),
}


def _table_in(pattern: re.Pattern[str], sql: str) -> str:
    """The table that a statement names first in the place of the pattern, if any."""
    found = pattern.search(sql)
    return re.sub(r"[\"`\[\]]", "", found.group(1)) if found else ""


# What a database can enforce ----------------------------------------------------------------------

Meaning = Literal["write", "time"]


class _Enforcement:
    """One connection of a limited call. ``depth`` is how deep in transactions it was before.

    This class enforces nothing: on a database without a class of its own, use is counted alone.
    """

    def __init__(self, connection: BaseDatabaseWrapper, limits: Limits) -> None:
        self.connection = connection
        self.limits = limits
        self.depth = len(connection.atomic_blocks)
        self._needed_rollback = connection.needs_rollback

    def before(self, sql: str) -> str:
        """Hold the connection, which is open, for a statement; returns what to run instead."""
        return sql

    def allow(self, seconds: float | None) -> None:
        """Let the database work for so long from now on; ``None``: it is not working for us."""

    def meaning(self, exc: Exception) -> Meaning | None:
        """Whether the database refused a write or ran out of time; ``None`` for all else."""
        return None

    def end(self, *, succeeded: bool) -> None:
        """Let go of the connection; harmless if it was never held."""

    def _forget_failures(self) -> None:
        """A statement that was refused makes no transaction of somebody else worth a rollback."""
        if self.depth and self.connection.in_atomic_block:
            self.connection.needs_rollback = self._needed_rollback


def _driver_error(exc: BaseException, attribute: str) -> object:
    """A detail of the driver's exception, given that or Django's around it."""
    for one in (exc, exc.__cause__):
        if getattr(one, attribute, None) is not None:
            return getattr(one, attribute)
    return None


# PostgreSQL ---------------------------------------------------------------------------------------

# A read-only transaction, in which the site's own transactions are savepoints. Everything is set
# for one transaction and nothing for the session, because a pooler between here and the database
# hands a session to other clients.

IDLE = 0
POSTGRESQL_MEANINGS: dict[object, Meaning] = {"25006": "write", "57014": "time"}

# One statement, so one round trip. A shorter limit of the site's own stays.
HOLD = """
SELECT set_config('transaction_read_only', 'on', true), set_config('statement_timeout',
CASE WHEN current_setting('statement_timeout')::interval BETWEEN '1 ms' AND '{ms} ms'
THEN current_setting('statement_timeout') ELSE '{ms}' END, true)
"""

# Words with which one of several statements in a string could leave the transaction.
LEAVES = re.compile(r"\b(commit|rollback|abort|end|prepare)\b", re.IGNORECASE)


class SeveralStatements(ToolError):
    """A string of several statements, of which one may end the read-only transaction."""

    def __init__(self) -> None:
        super().__init__("Send one statement at a time, without COMMIT, ROLLBACK and the like.")


class _PostgreSQL(_Enforcement):
    """A connection to PostgreSQL, by either release of its driver."""

    _is_held = False
    _savepoint = ""
    _block: Surrounding | None = None

    def before(self, sql: str) -> str:
        """Make the transaction read-only that the statement is going to run in.

        A transaction of the site's that began within the call ends within it, and so does what was
        set for it; then the next statement has to begin again.

        Raises:
            SeveralStatements: it could leave the transaction and go on.
        """
        # Text of the ORM has no semicolon. No quoting is parsed here: who gets it wrong lets
        # "COMMIT; DROP …" through, which has happened to others.
        if ";" in sql.rstrip("; \n\t") and LEAVES.search(sql):
            raise SeveralStatements
        is_idle = self.connection.connection.info.transaction_status == IDLE
        if not self._is_held and (self.depth or not is_idle):
            self._begin_inside()
        elif is_idle:
            self._begin()
        return sql

    def meaning(self, exc: Exception) -> Meaning | None:
        """By SQLSTATE, since the texts are translated."""
        state = _driver_error(exc, "sqlstate") or _driver_error(exc, "pgcode")
        return POSTGRESQL_MEANINGS.get(state)

    def end(self, *, succeeded: bool) -> None:
        """Undo what was set, whatever a statement of the site added to it."""
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
        """Within a transaction of others, which goes on writing after us."""
        # A statement of the site that knew the name could leave it.
        name = f"mcp_django_{secrets.token_hex(8)}"
        self._run(f"SAVEPOINT {name}")
        self._savepoint = name
        self._hold()

    def _hold(self) -> None:
        self._run(HOLD.format(ms=max(1, int(self.limits.seconds * 1000))))
        self._is_held = True

    def _leave_savepoint(self) -> None:
        """Roll back, since releasing alone would keep the time limit until the commit."""
        try:
            with self.connection.wrap_database_errors:
                self._run(f"ROLLBACK TO SAVEPOINT {self._savepoint}")
                self._run(f"RELEASE SAVEPOINT {self._savepoint}")
        except Error:
            # The connection is lost, and the transaction around us with it.
            self.connection.needs_rollback = True
        else:
            self._forget_failures()

    def _leave_block(self, block: Surrounding, *, succeeded: bool) -> None:
        """Roll back, which undoes any SET, unless something waits for a commit."""
        alias = self.connection.alias
        if self.connection.in_atomic_block and not (succeeded and self.connection.run_on_commit):
            transaction.set_rollback(True, using=alias)
        block.__exit__(None, None, None)

    def _run(self, sql: str) -> None:
        """On the driver's own cursor: Django's would refuse after a failure, and count it."""
        with closing(self.connection.connection.cursor()) as cursor:
            cursor.execute(sql)


# SQLite -------------------------------------------------------------------------------------------

# ``query_only`` and a progress handler, both settings of the connection and unknown to Django.
# They are switched through the driver's connection, because a Django cursor refuses to run
# anything after a failed statement, and the connection would then stay read-only for its next
# user.

# So many steps of SQLite's machine between two looks at the clock: well under a millisecond.
STEPS = 5000
SWITCH = "query_only"
# The low byte is the kind of error, what is above it the variety.
SQLITE_MEANINGS: dict[int, Meaning] = {
    sqlite3.SQLITE_READONLY: "write",
    sqlite3.SQLITE_INTERRUPT: "time",
}


class _SQLite(_Enforcement):
    """A connection to SQLite."""

    _raw: Any = None
    _was_query_only = 0
    _deadline: float | None = None

    def before(self, sql: str) -> str:
        """Switch ``query_only`` on at the first statement, and at one on another connection.

        Raises:
            ToolError: the statement could switch it off.
        """
        # Switching it on before every statement would have SQLite prepare all of them anew.
        if SWITCH in sql.lower():
            raise ToolError(f"{SWITCH} is not to be touched by a call that may only read.")
        raw = self.connection.connection
        if raw is not self._raw:
            self._take(raw)
        # A reader needs no lock for writing, and would not get one.
        return "BEGIN" if sql.startswith("BEGIN") else sql

    def allow(self, seconds: float | None) -> None:
        """Interrupt the statement that runs after so many seconds."""
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def meaning(self, exc: Exception) -> Meaning | None:
        """By the code of the driver, since texts change."""
        code = _driver_error(exc, "sqlite_errorcode")
        return SQLITE_MEANINGS.get(code & 0xFF) if isinstance(code, int) else None

    def end(self, *, succeeded: bool) -> None:
        """Switch it off, unless the site had it on."""
        self._release()
        self._forget_failures()

    def _take(self, raw: Any) -> None:
        self._release()
        cursor = raw.cursor()
        # The site may have its own on the connection.
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
            # The site closed it meanwhile, and nothing is left to switch off.
            return

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline


# MySQL and Oracle can be read-only only from the start of a transaction, which nobody can tell
# apart from the middle of one there; they are counted.
ENFORCED: dict[str, type[_Enforcement]] = {"postgresql": _PostgreSQL, "sqlite": _SQLite}
