"""PostgreSQL: a read-only transaction, in which the site's own transactions are savepoints.

Everything is set for one transaction and nothing for the session, which a pooler between here and
the database hands to somebody else.
"""

from __future__ import annotations

import re
import secrets
from contextlib import closing

from django.db import Error, transaction

from mcp_django.exceptions import ToolError
from mcp_django.runtime.governor.enforcement import Enforcement, Meaning, driver_error
from mcp_django.runtime.transactions import Surrounding

IDLE = 0
MEANINGS: dict[object, Meaning] = {"25006": "write", "57014": "time"}

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


class PostgreSQL(Enforcement):
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
        state = driver_error(exc, "sqlstate") or driver_error(exc, "pgcode")
        return MEANINGS.get(state)

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
