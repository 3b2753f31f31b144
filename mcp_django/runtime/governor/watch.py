"""``Watch``: sees every statement of one connection during a governed call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from mcp_django.runtime.governor.cursors import CountedCursor
from mcp_django.runtime.governor.enforcement import Enforcement
from mcp_django.runtime.governor.spending import Spending, WriteRefused

T = TypeVar("T")
Execute = Callable[[str, Any, bool, dict[str, Any]], Any]

# What Django says to enter and leave a block; no query of anybody.
BLOCKS = ("BEGIN", "SAVEPOINT ", "RELEASE ", "ROLLBACK TO ")


class Watch:
    """An ``execute_wrapper`` of Django's; from the first statement on the connection is held."""

    def __init__(self, enforcement: Enforcement, spending: Spending) -> None:
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

    def _count(self, cursor: Any) -> CountedCursor:
        """The driver's cursor within Django's, counted; Django's class stays as it is."""
        raw = cursor.cursor
        if isinstance(raw, CountedCursor):
            if raw.watch is self:
                return raw
            # Kept from an earlier call.
            raw = raw.raw
        cursor.cursor = counted = CountedCursor(raw, self)
        return counted

    def _translate(self, exc: Exception, sql: str) -> None:
        meaning = self.enforcement.meaning(exc)
        if meaning == "write":
            raise WriteRefused(self._spending.component, sql) from exc
        if meaning == "time":
            self._spending.refuse("seconds", cause=exc)
