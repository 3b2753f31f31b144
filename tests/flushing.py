"""Empties the tables after a transactional test, several times sooner than Django does.

Django empties all of them and has every app make its content types and permissions anew, which is
most of the time. Here those two tables stay as they are, unless a test has changed them. The others
are emptied row by row, since PostgreSQL takes up to a second to truncate so many, and has to have
all of them for itself.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.db import IntegrityError, OperationalError, connections
from django.test import TransactionTestCase

KEPT = ("django_content_type", "auth_permission", "django_migrations")
TRIES = 3
_thorough = TransactionTestCase._fixture_teardown
_made: dict[tuple[str, str], list[tuple[Any, ...]]] = {}


def install() -> None:
    """Let every transactional test end so."""
    TransactionTestCase._fixture_teardown = _empty  # type: ignore[method-assign]


def _empty(self: TransactionTestCase) -> None:
    names = list(self._databases_names(include_mirrors=False))  # type: ignore[attr-defined]
    if self.available_apps is not None or not all(map(_is_as_made, names)):
        _thorough(self)
        _made.clear()
        return
    for name in names:
        connection = connections[name]
        tables = connection.introspection.django_table_names(only_existing=True)
        emptied = [table for table in tables if table not in KEPT]
        _execute(connection, [f"DELETE FROM {connection.ops.quote_name(one)}" for one in emptied])


def _execute(connection: Any, statements: list[str]) -> None:
    """Run these together; again where a thread of the test was on its last write."""
    for _ in range(TRIES - 1):
        with suppress(IntegrityError, OperationalError):
            connection.ops.execute_sql_flush(statements)
            return
    connection.ops.execute_sql_flush(statements)


def _is_as_made(name: str) -> bool:
    """Whether the kept tables hold what they held when this was first asked."""
    connection = connections[name]
    now: list[tuple[Any, ...]] = []
    with connection.cursor() as cursor:
        existing = connection.introspection.table_names(cursor)
        for table in KEPT[:2]:
            if table in existing:
                cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
                now += cursor.fetchall()
    key = (name, str(connection.settings_dict["NAME"]))
    return _made.setdefault(key, now) == now
