"""SQLite: ``query_only`` and a progress handler, both of the connection and neither of Django's.

They are switched by the driver's connection, since a cursor of Django refuses to run anything
after a failed statement, and then the connection would stay read-only for whoever gets it next.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from mcp_django.exceptions import ToolError
from mcp_django.runtime.governor.enforcement import Enforcement, Meaning, driver_error

# So many steps of SQLite's machine between two looks at the clock: well under a millisecond.
STEPS = 5000
SWITCH = "query_only"
# The low byte is the kind of error, what is above it the variety.
MEANINGS: dict[int, Meaning] = {sqlite3.SQLITE_READONLY: "write", sqlite3.SQLITE_INTERRUPT: "time"}


class SQLite(Enforcement):
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
        code = driver_error(exc, "sqlite_errorcode")
        return MEANINGS.get(code & 0xFF) if isinstance(code, int) else None

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
