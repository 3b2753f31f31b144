"""Write the rows of the call log, which may have a database of its own.

The row of a call that may write is stored before the call runs, and updated when it has ended; the
caller waits for both (``insert``). The row of any other call is written within a second of its
end, and no caller waits for it (``add``). ``storage.writer`` writes them, many in one transaction.

Each row has a token that this process generated. The time and the token identify the row: the end
of a call updates it, and a row that is written again, because the answer to a COMMIT was lost, is
not stored twice. The token has no index, which would cost as much as another column; the index of
the time is enough.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import count, repeat
from typing import Any, NamedTuple

from django.db import connections, router
from django.db.models import DateTimeField, JSONField

from mcp_django.conf import get_settings
from mcp_django.storage.databases import tables
from mcp_django.storage.statements import CompiledInsert
from mcp_django.storage.writer import BatchWriter, RowKind

Fields = Mapping[str, Any]
Receiver = Callable[[Fields], None]
# Columns that are known only at the end of a call. The update does not set the other columns,
# which have most of the indexes.
_END_COLUMNS = ("outcome", "code", "reason", "ms", "rows", "bytes", "problems")
# The columns whose values need preparation for the database.
_PREPARED_FIELDS = (DateTimeField, JSONField)


class CallRow(NamedTuple):
    """A row to write, or the end of the row with the same time and token."""

    fields: Fields
    is_end: bool = False
    is_uncertain: bool = False
    """Whether the row of this end may be missing; if it is, a row is added."""


class _CallRows:
    """The ``RowKind`` of the call log."""

    lock_seconds = None

    def alias(self) -> str:
        """Return the alias of the call log's database."""
        return router.db_for_write(tables.Call)

    def write(self, rows: Sequence[CallRow], *, again: bool) -> Sequence[None]:
        """Write rows and ends; a row that was stored before is not changed.

        Raises:
            Error: the database did not store them.
        """
        alias = self.alias()
        new = [row for row in rows if not row.is_end]
        if again:
            new = [row for row in new if not _is_stored(alias, row)]
        _insert.insert(alias, [row.fields for row in new])
        for row in rows:
            if row.is_end and not _update_row(alias, row) and row.is_uncertain:
                _insert.insert(alias, [row.fields])
        return [None] * len(rows)


CALL_ROWS = _CallRows()


_insert = CompiledInsert(lambda: tables.Call)


class _Statements(NamedTuple):
    """The statements for all rows of one database; compiling them takes longer than a call."""

    select: str
    update: str
    columns: Sequence[tuple[str, Any, Callable[..., Any] | None]]
    """Name, default and preparing function of each column that an update sets."""


@cache
def _statements(alias: str) -> _Statements:
    quote = connections[alias].ops.quote_name
    model = tables.Call._meta
    columns = []
    for name in _END_COLUMNS:
        field: Any = model.get_field(name)
        is_prepared = isinstance(field, _PREPARED_FIELDS)
        columns.append((name, field.get_default(), field.get_db_prep_save if is_prepared else None))
    table, condition = quote(model.db_table), f"{quote('at')} = %s AND {quote('token')} = %s"
    settings = ", ".join(f"{quote(name)} = %s" for name in _END_COLUMNS)
    return _Statements(
        select=f"SELECT 1 FROM {table} WHERE {condition}",  # noqa: S608
        update=f"UPDATE {table} SET {settings} WHERE {condition}",  # noqa: S608
        columns=columns,
    )


def _update_row(alias: str, row: CallRow) -> bool:
    """Write the end of a row; return whether the row exists."""
    statements = _statements(alias)
    values = _values(statements.columns, row.fields, alias)
    with connections[alias].cursor() as cursor:
        cursor.execute(statements.update, [*values, *_identity(alias, row)])
        return bool(cursor.rowcount)


def _is_stored(alias: str, row: CallRow) -> bool:
    with connections[alias].cursor() as cursor:
        cursor.execute(_statements(alias).select, _identity(alias, row))
        return cursor.fetchone() is not None


def _identity(alias: str, row: CallRow) -> list[Any]:
    """Return the values that identify a row."""
    at: Any = tables.Call._meta.get_field("at")
    return [at.get_db_prep_save(row.fields["at"], connections[alias]), row.fields["token"]]


def _values(
    columns: Sequence[tuple[str, Any, Callable[..., Any] | None]], fields: Fields, alias: str
) -> list[Any]:
    connection = connections[alias]
    values = []
    for name, default, prepare in columns:
        value = fields.get(name, default)
        values.append(value if prepare is None else prepare(value, connection))
    return values


class CallLog(BatchWriter):
    """Writes the call log of this process; thread-safe."""

    def __init__(self) -> None:
        self.is_disabled = False
        """Whether the call log is disabled, for tests of other things."""
        super().__init__("mcp-calls")

    def _reset(self) -> None:
        super()._reset()
        # Ascending, so that the index grows at its end; a forked child has a prefix of its own.
        self._tokens = map("{}{:x}".format, repeat(secrets.token_urlsafe(9)), count())

    def new_token(self) -> str:
        """Return a token for a row."""
        return next(self._tokens)

    def is_immediate(self, kind: RowKind = CALL_ROWS) -> bool:
        """Return whether a thread that may use the database has to write any row immediately."""
        return super().is_immediate(kind)

    def insert(self, row: CallRow) -> None:
        """Write a row or an end from a thread, and return after the commit.

        Raises:
            Error: the database did not store it.
            Busy: too many rows wait, or it was not stored within ``QUEUE_SECONDS``.
        """
        self.write(CALL_ROWS, row, seconds=get_settings().queue_seconds)

    async def ainsert(self, row: CallRow) -> None:
        """Write a row or an end from an event loop, as ``insert`` does from a thread.

        If the caller is cancelled, a row that is not being written yet is left out.
        """
        await self.awrite(CALL_ROWS, row, seconds=get_settings().queue_seconds)

    def add(self, row: CallRow, receiver: Receiver | None = None) -> None:
        """Queue a row or an end to be written soon; never waits.

        Before it is written, ``receiver`` is called with the fields, in the thread that writes.
        """
        notify = None if receiver is None else partial(receiver, row.fields)
        self.enqueue(CALL_ROWS, row, notify=notify)


call_log = CallLog()
