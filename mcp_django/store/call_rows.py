"""The rows of the call log, in their database."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from django.db import connections, router, transaction
from django.db.models import DateTimeField, JSONField
from django.db.utils import DataError, IntegrityError

from mcp_django.store.databases import tables

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("mcp_django")

Fields = Mapping[str, Any]
# What is not known before the end. The other columns stand, and most of the indexes are theirs.
_OF_END = frozenset({"outcome", "code", "reason", "ms", "rows", "bytes", "problems"})
# The columns whose values are not handed to the database as they are.
_PREPARED = (DateTimeField, JSONField)


@dataclass(frozen=True, slots=True)
class Line:
    """A row to write; with ``pk`` the end of one that is there. ``tell`` is called before."""

    fields: Fields
    pk: int | None = None
    tell: Callable[[Fields], None] | None = None


def is_in_transaction() -> bool:
    """Whether this thread is in a transaction of that database."""
    return bool(connections[_alias()].in_atomic_block)


def insert(fields: Fields) -> int:
    """Write a row, and return its primary key.

    Raises:
        Error: the database did not take it.
    """
    row = tables.Call(**fields)
    with _alone():
        row.save(using=_alias(), force_insert=True)
    return int(row.pk)


def update(pk: int, fields: Fields) -> None:
    """Write the end of a row.

    Raises:
        Error: the database did not take it.
    """
    known = {name: value for name, value in fields.items() if name in _OF_END}
    with _alone():
        _rows().filter(pk=pk).update(**known)


def remove(pk: int) -> None:
    """Take a row back."""
    with _alone():
        _rows().filter(pk=pk).delete()


def write(lines: Sequence[Line]) -> None:
    """Write many of them. What the database takes by no means is logged and left out.

    Raises:
        Error: the database took none of the new ones, and can be asked again.
    """
    # First what bears repetition, should the rest fail.
    for line in lines:
        if line.pk is not None:
            update(line.pk, line.fields)
    new = [line.fields for line in lines if line.pk is None]
    try:
        _insert_all(new)
    except (DataError, IntegrityError):
        # One of them cannot be kept at all; the others are not to suffer for it.
        for fields in new:
            _insert_one(fields)


def _insert_all(every: Sequence[Fields]) -> None:
    """Write rows past the model, which would take more time than all the rest of a call."""
    if not every:
        return
    connection = connections[_alias()]
    model = tables.Call._meta
    fields = [field for field in model.concrete_fields if not field.primary_key]
    columns = [
        (
            field.attname,
            field.get_default(),
            field.get_db_prep_save if isinstance(field, _PREPARED) else None,
        )
        for field in fields
    ]
    rows = []
    for said in every:
        values = [(said.get(name, default), prepare) for name, default, prepare in columns]
        rows.append([v if prepare is None else prepare(v, connection) for v, prepare in values])
    operations: Any = connection.ops
    names = ", ".join(operations.quote_name(field.column) for field in fields)
    into = f"INSERT INTO {operations.quote_name(model.db_table)} ({names})"
    # One statement for many rows: a driver lets other threads in with each, who are in no hurry.
    size = operations.bulk_batch_size(fields, rows)
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        for first in range(0, len(rows), size):
            part = rows[first : first + size]
            places = operations.bulk_insert_sql(fields, [["%s"] * len(fields)] * len(part))
            cursor.execute(f"{into} {places}", list(chain.from_iterable(part)))


def _insert_one(fields: Fields) -> None:
    try:
        insert(fields)
    except (DataError, IntegrityError):
        logger.exception("A row of the call log cannot be kept.")


def _alias() -> str:
    return router.db_for_write(tables.Call)


def _rows() -> Any:
    return tables.Call._default_manager.using(_alias())


def _alone() -> Any:
    """A savepoint within a transaction of others, which what we do wrong must not spoil.

    Elsewhere one statement needs no transaction around it, which would be two round trips more.
    """
    return transaction.atomic(using=_alias()) if is_in_transaction() else nullcontext()
