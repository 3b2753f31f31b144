"""What a call has spent of its limits, and what is said when one is reached."""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import Literal, NoReturn

from mcp_django.conf import Limits
from mcp_django.core.component import Component
from mcp_django.exceptions import ToolError

logger = logging.getLogger("mcp_django")

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
        what = f"write to {found}" if (found := table(_WRITTEN, sql)) else "change the database"
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
        place = table(_READ, sql) or "an expression"
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


def table(pattern: re.Pattern[str], sql: str) -> str:
    """The table that a statement names first in the place of the pattern, if any."""
    found = pattern.search(sql)
    return re.sub(r"[\"`\[\]]", "", found.group(1)) if found else ""
