"""A column for texts that decide: names, keys and identifiers that are compared exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import lookups
from django.db.models.expressions import Combinable

if TYPE_CHECKING:
    # Generic in the stubs only; they take the types of values and lookups from it.
    _CharField = models.CharField[str | int | Combinable, str]
else:
    _CharField = models.CharField


class ExactCharField(_CharField):
    """A short text that every database compares exactly, also in unique constraints and indexes.

    ``a``, ``A``, ``á`` and ``a`` with a blank behind it are four texts. PostgreSQL, SQLite and
    Oracle compare so by themselves. MariaDB and MySQL compare by the collation of a column, and
    their default ones take these four for one, so the column has a binary collation without padding
    there (``utf8mb4_nopad_bin``; in MySQL, 8.0.17 or newer, ``utf8mb4_0900_bin``). Lookups that
    ignore case, such as the search of the admin, ignore it there as well.

    Use it for each text that is looked up to decide something, but not instead of a digest: a
    secret is not stored as text.
    """

    def db_parameters(self, connection: Any) -> Any:
        """Return the type of the column, with the collation on MariaDB and MySQL."""
        parameters = super().db_parameters(connection)
        if connection.vendor == "mysql":
            is_mariadb = connection.mysql_is_mariadb
            parameters["collation"] = "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin"
        return parameters


class _FoldedOnMySQL:
    """A lookup that ignores case: on MariaDB and MySQL Django leaves that to the collation."""

    def process_lhs(self, compiler: Any, connection: Any, lhs: Any = None) -> tuple[str, Any]:
        sql, params = super().process_lhs(compiler, connection, lhs)  # type: ignore[misc]
        if connection.vendor == "mysql":
            sql = f"{sql} COLLATE utf8mb4_general_ci"
        return sql, params


for _lookup in (lookups.IExact, lookups.IContains, lookups.IStartsWith, lookups.IEndsWith):
    ExactCharField.register_lookup(type(_lookup.__name__, (_FoldedOnMySQL, _lookup), {}))
