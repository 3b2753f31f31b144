"""Counts of the rows that are deleted with an object, and of the rows that protect it.

Django's collector finds the rows that cascade. A tree (django-treebeard, django-mptt, Wagtail), a
signal or the site's own ``delete()`` may delete more, so the statements of the deletion itself are
counted as well, and the larger number is returned.

Only rows that the caller may see are counted, by model: callers must not learn how many hidden rows
refer to an object.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from django.apps import apps
from django.db import connections
from django.db.models import Model, Q, QuerySet
from django.db.models.deletion import Collector, ProtectedError, RestrictedError

from mcp_django.components.context import Context
from mcp_django.exceptions import ToolError
from mcp_django.integrations.models.row_access import (
    Visibility,
    rows_with_visible_labels,
    visibility,
)
from mcp_django.storage.databases import in_batches

# The number of keys in one statement; SQLite limits the number of parameters.
BATCH = 500
MAX_COUNTED = 10_000
"""The maximum number of visible rows of a model that are counted where a row rule decides."""

Counts = dict[str, int]

DELETED: Final = "deleted"
DETACHED: Final = "detached"
AT_LEAST: Final = "at_least"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionCounts:
    """The numbers of rows that a deletion deletes, and of rows whose link it sets to null."""

    deleted: Counts = field(default_factory=dict)
    detached: Counts = field(default_factory=dict)
    at_least: bool = False
    """Whether more rows may be affected than could be counted."""

    def as_result(self, name: str) -> dict[str, Any]:
        """Return the members of a result; ``name`` is the member with the deleted rows."""
        detached = {DETACHED: self.detached} if self.detached else {}
        at_least = {AT_LEAST: True} if self.at_least else {}
        return {name: self.deleted, **detached, **at_least}


class DeletionObserver:
    """Counts what a deletion deletes, while it runs.

    ``server`` and ``ctx`` determine which rows the caller may see. If the caller may see all rows
    of a model, they are counted by the statements of the deletion, without further queries. Where a
    row rule decides, the visible rows that Django's collector finds are counted before the
    deletion, and all visible rows before and after it, up to ``MAX_COUNTED``; the larger number is
    returned. Nothing depends on hidden rows.

    With ``is_own`` the site deletes in its own way, so the collector may not know all rows.
    """

    def __init__(
        self, obj: Model, *, alias: str, server: Any, ctx: Context, is_own: bool = False
    ) -> None:
        self._model = type(obj)
        self._obj = obj
        self._key = obj.pk
        self._alias = alias
        self._server = server
        self._ctx = ctx
        self._is_own = is_own or type(obj).delete is not Model.delete
        self._statements = _StatementCounts(connections[alias])
        self._collected = _Collected(alias, server, ctx)
        self._visible_before: dict[type[Model], int | None] = {}
        self._at_least = False

    @contextmanager
    def observe(self) -> Iterator[None]:
        """Count the rows of the deletion that runs in the ``with`` block."""
        # The model, its parents, and the models that directly or indirectly refer to it.
        affected: set[type[Model]] = set()
        waiting = [self._model]
        while waiting:
            candidate = waiting.pop()
            if candidate in affected or candidate._meta.auto_created:
                continue
            affected.add(candidate)
            waiting += candidate._meta.all_parents
            waiting += [relation.related_model for relation in _reverse_relations(candidate)]
        ruled = [model for model in affected if self._visibility(model) is Visibility.SOME]
        if ruled:
            self._collected.collect(self._obj)
            self._visible_before = {model: self._count_visible(model) for model in ruled}
        # With a database-level on_delete, the database itself deletes rows and reports no number.
        self._at_least = any(
            hasattr(getattr(relation, "on_delete", None), "on_delete_sql")
            for model in affected
            for relation in _reverse_relations(model)
            if self._visibility(relation.related_model) is not Visibility.NONE
        )
        with connections[self._alias].execute_wrapper(self._statements):
            yield

    def counts(self) -> DeletionCounts:
        """Return the counts, after the deletion.

        If the row still exists, the site only marks rows as deleted: the other rows that it has
        deleted are counted, not those that Django would delete.
        """
        is_gone = not self._model._base_manager.using(self._alias).filter(pk=self._key).exists()
        deleted: Counter[str] = Counter()
        detached: Counter[str] = Counter()
        if is_gone:
            deleted = Counter({self._model._meta.label: 1}) + self._collected.deleted
            detached = +self._collected.detached
        at_least = self._at_least or self._statements.is_incomplete
        for model, number in self._statements.deleted(self._model).items():
            if self._visibility(model) is Visibility.ALL:
                deleted[model._meta.label] = max(deleted[model._meta.label], number)
        for model, number in self._statements.detached().items():
            if self._visibility(model) is Visibility.ALL:
                detached[model._meta.label] = max(detached[model._meta.label], number)
        for model, before in self._visible_before.items():
            after = None if before is None else self._count_visible(model)
            if before is not None and after is not None:
                label = model._meta.label
                deleted[label] = max(deleted[label], before - after)
            else:
                at_least |= self._is_own
        return DeletionCounts(deleted=dict(+deleted), detached=dict(+detached), at_least=at_least)

    def _visibility(self, model: type[Model]) -> Visibility:
        return visibility(self._server, model, self._ctx)

    def _count_visible(self, model: type[Model]) -> int | None:
        """Return the number of visible rows of a model; ``None`` if there are many."""
        rows = rows_with_visible_labels(self._server, model, self._ctx)
        assert rows is not None, "some are visible"
        number = rows.using(self._alias).order_by()[: MAX_COUNTED + 1].count()
        return None if number > MAX_COUNTED else number


def protected_error(
    exc: ProtectedError | RestrictedError, obj: Model, *, alias: str, server: Any, ctx: Context
) -> ToolError:
    """Return the error for a protected object, with the numbers and models of referring rows."""
    rows = exc.args[1]
    counter = _RowCounter(alias, server, ctx)
    for model in {type(row) for row in rows}:
        counter.add(model, [row.pk for row in rows if type(row) is model])
    noun = obj._meta.verbose_name
    counts = sorted((+counter.counts).items())
    seen = " and ".join(f"{number} {label}" for label, number in counts)
    why = seen or "by objects that you may not see"
    advice = " Delete those first, or have them refer to something else." if seen else ""
    return ToolError(f"This {noun} cannot be deleted while it is referred to ({why}).{advice}")


_DELETE: Final = re.compile(r"(?i)\s*DELETE\s+(?:\S+\s+)?FROM\s+(\S+)")
_DETACH: Final = re.compile(r"(?i)\s*UPDATE\s+(\S+)\s+SET\s+(\S+)\s*=\s*(NULL|%s)\s+WHERE")
# Statements that may delete rows without reporting how many.
_UNKNOWN: Final = re.compile(r"(?is)\s*(?:WITH\b.*\bDELETE|TRUNCATE|CALL|EXEC)\b")
_SAVEPOINT: Final = re.compile(r"(?i)\s*(SAVEPOINT|ROLLBACK\s+TO)\s+(?:SAVEPOINT\s+)?(\S+)")


class _StatementCounts:
    """An execute wrapper that counts the rows of the statements that delete and detach."""

    def __init__(self, connection: Any) -> None:
        self._quote = connection.ops.quote_name
        self._deleted: Counter[str] = Counter()
        self._detached: Counter[tuple[str, str]] = Counter()
        self._savepoints: dict[str, tuple[Counter[str], Counter[tuple[str, str]]]] = {}
        self.is_incomplete = False

    def __call__(
        self,
        execute: Callable[..., Any],
        sql: str,
        params: Any,
        many: bool,  # noqa: FBT001 - Django's order
        context: Mapping[str, Any],
    ) -> Any:
        result = execute(sql, params, many, context)
        if deletion := _DELETE.match(sql):
            self._deleted[deletion[1]] += self._rows(context)
        elif (update := _DETACH.match(sql)) and (update[3] == "NULL" or params[0] is None):
            self._detached[update[1], update[2]] += self._rows(context)
        elif savepoint := _SAVEPOINT.match(sql):
            self._follow(savepoint[1].upper(), savepoint[2])
        elif _UNKNOWN.match(sql):
            self.is_incomplete = True
        return result

    def _follow(self, action: str, name: str) -> None:
        """Save the counts at a savepoint, or restore them when it is rolled back."""
        if action == "SAVEPOINT":
            self._savepoints[name] = (self._deleted.copy(), self._detached.copy())
        elif name in self._savepoints:
            deleted, detached = self._savepoints[name]
            self._deleted, self._detached = deleted.copy(), detached.copy()

    def deleted(self, model: type[Model]) -> dict[type[Model], int]:
        """Return the numbers by model; a table that models share counts for ``model``."""
        by_table = self._models_by_table(model)
        return {
            by_table[table]: number for table, number in self._deleted.items() if table in by_table
        }

    def detached(self) -> Counter[type[Model]]:
        """Return by model the numbers of references that were set to null."""
        counts: Counter[type[Model]] = Counter()
        by_table = self._models_by_table(None)
        for (table, column), number in self._detached.items():
            model = by_table.get(table)
            references = () if model is None else (f for f in model._meta.fields if f.is_relation)
            if any(self._quote(reference.column) == column for reference in references):
                counts[model] += number  # type: ignore[index]  # there are no references of None
        return counts

    def _models_by_table(self, first: type[Model] | None) -> dict[str, type[Model]]:
        models = [model for model in apps.get_models() if not model._meta.proxy]
        by_table = {self._quote(model._meta.db_table): model for model in reversed(models)}
        if first is not None:
            by_table[self._quote(first._meta.db_table)] = first
        return by_table

    def _rows(self, context: Mapping[str, Any]) -> int:
        number: int = context["cursor"].rowcount
        # A driver may not know the number.
        self.is_incomplete |= number < 0
        return max(number, 0)


# What cascades, where a row rule decides ----------------------------------------------------------


def _reverse_relations(model: type[Model]) -> list[Any]:
    """Return the relations by which other models refer to a model, hidden and generic ones too."""
    fields = model._meta.get_fields(include_hidden=True)
    reverse = [
        relation
        for relation in fields
        if relation.auto_created and not relation.concrete and relation.is_relation
    ]
    generic = [
        relation
        for relation in model._meta.private_fields
        if isinstance(relation.related_model, type)
    ]
    return [
        relation for relation in [*reverse, *generic] if isinstance(relation.related_model, type)
    ]


class _Collected:
    """The rows that Django's collector finds, as far as the caller may see them."""

    def __init__(self, alias: str, server: Any, ctx: Context) -> None:
        self._alias = alias
        self._deleted = _RowCounter(alias, server, ctx)
        self._detached = _RowCounter(alias, server, ctx)

    @property
    def deleted(self) -> Counter[str]:
        return self._deleted.counts

    @property
    def detached(self) -> Counter[str]:
        return self._detached.counts

    def collect(self, obj: Model) -> None:
        """Count the rows; none for a protected object, whose deletion raises the error."""
        collector = Collector(using=self._alias, origin=obj)
        try:
            collector.collect([obj])
        except (ProtectedError, RestrictedError):
            return
        # The same rows may be found through a parent and a child, and as a proxy.
        keys_by_model: dict[type[Model], set[Any]] = {}
        for model, instances in collector.data.items():
            keys = keys_by_model.setdefault(_concrete(model), set())
            keys |= {instance.pk for instance in instances}
        for queryset in collector.fast_deletes:
            keys = keys_by_model.setdefault(_concrete(queryset.model), set())
            keys |= set(queryset.values_list("pk", flat=True))
        keys_by_model[_concrete(type(obj))].discard(obj.pk)
        for model, keys in keys_by_model.items():
            self._deleted.add(model, keys)
        updates: Any = collector.field_updates
        for (column, _), batches in updates.items():
            for batch in batches:
                # A bulk update has a queryset, or rows that are already loaded.
                is_query = isinstance(batch, QuerySet) and batch._result_cache is None
                rows = batch if is_query else [row.pk for row in batch]
                self._detached.add(column.model, rows)


def _concrete(model: type[Model]) -> type[Model]:
    concrete_model: type[Model] = model._meta.concrete_model or model
    return concrete_model


@dataclass(slots=True)
class _RowCounter:
    """Counts rows that the caller may see, by model."""

    alias: str
    server: Any
    ctx: Context
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, model: type[Model], rows: QuerySet[Any] | Iterable[Any]) -> None:
        """Count the rows (a queryset or keys of rows) that the caller may see."""
        if model._meta.auto_created:
            # An automatic through table; the linked rows are counted separately.
            return
        batches = [rows.values("pk")] if isinstance(rows, QuerySet) else in_batches([*rows], BATCH)
        for batch in batches:
            among = Q(pk__in=batch)
            visible = rows_with_visible_labels(self.server, model, self.ctx, among=among)
            if visible is not None:
                number = visible.using(self.alias).filter(among).count()
                self.counts[model._meta.label] += number
