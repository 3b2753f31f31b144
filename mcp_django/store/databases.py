"""Which database holds our rows, and what time it is there."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import connections, router, transaction
from django.db.models import DateTimeField as DateTime
from django.db.models import ExpressionWrapper, Model, QuerySet, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Now
from django.utils.functional import SimpleLazyObject

M = TypeVar("M", bound=Model)

if TYPE_CHECKING:
    from mcp_django import models as tables
else:
    # Models cannot be imported before the app registry is ready, and this package can.
    tables = SimpleLazyObject(lambda: import_module("mcp_django.models"))


def alias() -> str:
    """The database for writing; all our rows are in one."""
    return router.db_for_write(tables.Session)


def rows(model: type[M]) -> QuerySet[M]:
    """The rows of one of our tables."""
    return model._default_manager.using(alias())


def atomic() -> Any:
    """A transaction of ours alone. It has to begin with its write, so that SQLite can wait."""
    return transaction.atomic(using=alias())


def is_held(found: QuerySet[Any]) -> bool:
    """Whether a process in a transaction keeps others from changing a row; ends in one of ours.

    Only for rows that exist. A database that locks no single rows has none that are held.
    """
    if not connections[found.db].features.has_select_for_update_skip_locked:
        return False
    return not found.select_for_update(skip_locked=True).values_list("pk").first()


def after(seconds: float) -> Any:
    """The moment so many seconds from now by the database's own clock; workers' clocks differ."""
    return _moment(Now() + Value(timedelta(seconds=seconds)))


def before(seconds: float) -> Any:
    """The moment so many seconds ago by the database's own clock."""
    return _moment(Now() - Value(timedelta(seconds=seconds)))


def _moment(expression: Combinable) -> Any:
    return ExpressionWrapper(expression, output_field=DateTime())


__all__ = ["after", "alias", "atomic", "before", "is_held", "rows", "tables"]
