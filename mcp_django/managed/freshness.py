"""Whether what this process knows of the owner's decisions still holds.

Every decision counts up one topic, in the database. A process looks at that count at most once a
second, and always before it gives out a list, since a client that was told of a change asks at once
and perhaps another process.
"""

from __future__ import annotations

import logging
import math
import time
from functools import cache
from typing import Any, TypeAlias

from django.db import Error, connections, router

from mcp_django.exceptions import Busy
from mcp_django.storage.databases import tables
from mcp_django.storage.versions import MANAGED

logger = logging.getLogger("mcp_django")

FRESH_SECONDS = 1.0

Mark: TypeAlias = tuple[int, Any, int]
"""How often anything was decided, when last (as the database says it, to be compared alone), and
how often this process started over."""

NOTHING: Mark = (0, None, 0)
"""There are no rows that could say anything."""
UNTOLD = -1
"""Nobody has told of a decision yet; rows may say something all the same, as after an import."""
UNKEPT: Mark = (-2, None, 0)
"""Whoever asks is in a transaction, and what is read there may be taken back with it."""


class Freshness:
    """The newest mark that this process has seen; for any thread."""

    def __init__(self) -> None:
        self.mark: Mark | None = None
        self._looked_at = -math.inf
        self._is_pinned = False
        self._is_blind = False
        self._starts = 0
        self.forgotten = 0
        """How often this process has decided something itself."""

    def look(self, *, is_list: bool = False) -> Mark:
        """The mark, no older than ``FRESH_SECONDS``, or of this moment for a list.

        While the database cannot be asked, what was known last goes on.

        Raises:
            Busy: it cannot, and nothing was known yet: what was switched off must stay off.
            SynchronousOnlyOperation: it would have to ask the database on an event loop.
        """
        mark = self.mark
        if mark is not None and self._is_pinned:
            return mark
        if is_in_transaction():
            return UNKEPT
        began = time.monotonic()
        if mark is not None and not is_list and began - self._looked_at < FRESH_SECONDS:
            return mark
        try:
            mark = self._read()
        except Error as exc:
            return self._last_known(exc)
        self._is_blind = False
        self.mark, self._looked_at = mark, began
        return mark

    def expire(self) -> None:
        """Look again at the next use."""
        self._looked_at = -math.inf

    def start_over(self) -> None:
        """Look again at the next use, and read again whatever that says; for tests."""
        self.expire()
        self.mark = None
        self._starts += 1

    def forget(self) -> None:
        """Look again at the next use: something was decided in this process."""
        self.forgotten += 1
        self.expire()
        self._is_pinned = False

    def pin(self) -> None:
        """Take it that nothing is decided, and do not ask: for tests."""
        self.mark, self._is_pinned = NOTHING, True

    @property
    def is_fresh(self) -> bool:
        """Whether the mark is no older than ``FRESH_SECONDS``."""
        is_young = time.monotonic() - self._looked_at < FRESH_SECONDS
        return self._is_pinned or (self.mark is not None and is_young)

    @property
    def is_pinned(self) -> bool:
        """Whether the database is not asked at all."""
        return self._is_pinned

    def _read(self) -> Mark:
        connection = connections[_alias()]
        if connection.settings_dict["ENGINE"] == "django.db.backends.dummy":
            # A site without a database has no rows.
            return NOTHING
        with connection.cursor() as cursor:
            cursor.execute(*_question(connection.alias))
            version, at = cursor.fetchone() or (UNTOLD, None)
        return version, at, self._starts

    def _last_known(self, exc: Error) -> Mark:
        if not self._is_blind:
            logger.warning("What the admin says of servers cannot be read (%s).", exc)
        self._is_blind = True
        if self.mark is None and has_no_tables():
            # Nobody can have decided anything. Asked again each time, as the site may be migrated.
            return NOTHING
        if self.mark is None:
            raise Busy("The server cannot read its settings; try again in a moment.") from exc
        # Not with every request: a database that is down is slow to say so.
        self._looked_at = time.monotonic()
        return self.mark


def has_no_tables() -> bool:
    """Whether the site is not migrated yet; a database that cannot be asked says nothing."""
    connection = connections[_alias()]
    try:
        return tables.Component._meta.db_table not in connection.introspection.table_names()
    except Error:
        return False


@cache
def _question(alias: str) -> tuple[str, Any]:
    """What is asked of the database, compiled once: that takes ten times as long as the answer."""
    found = tables.Topic._default_manager.using(alias).filter(pk=MANAGED.digest)
    query: Any = found.values_list("version", "changed_at").query
    sql, parameters = query.get_compiler(alias).as_sql()
    return sql, parameters


def _alias() -> str:
    return router.db_for_write(tables.Topic)


def is_in_transaction() -> bool:
    """Whether this thread is in a transaction of the database that has the rows."""
    # To ask a connection by its alias makes one, for each task on an event loop anew.
    entered = [one.alias for one in connections.all(initialized_only=True) if one.in_atomic_block]
    return bool(entered) and _alias() in entered


freshness = Freshness()
