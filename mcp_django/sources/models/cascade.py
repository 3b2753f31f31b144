"""What goes when an object is deleted, and what stands in the way.

Counted are rows that the caller may see, by model: how many others hang on an object is nobody's
business who may not view them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import Model, Q, QuerySet
from django.db.models.deletion import Collector, ProtectedError, RestrictedError

from mcp_django.core.context import Context
from mcp_django.exceptions import ToolError
from mcp_django.sources.models.related import viewable

# How many keys one statement compares with; SQLite has a limit.
BATCH = 500

Counts = dict[str, int]


def cascade(obj: Model, *, alias: str, server: Any, ctx: Context) -> dict[str, Counts]:
    """The rows that deletion takes along, and those that lose their link to what is deleted.

    Nothing where something protects the object: whether that matters is for deletion to say, as a
    site may only hide what is deleted.
    """
    collector = Collector(using=alias, origin=obj)
    try:
        collector.collect([obj])
    except (ProtectedError, RestrictedError):
        return {}
    deleted = _Count(alias, server, ctx)
    deleted.sure(type(obj), 1)
    for model, instances in collector.data.items():
        deleted.add(model, [one.pk for one in instances if one is not obj])
    for fast in collector.fast_deletes:
        deleted.add(fast.model, fast)
    detached = _Count(alias, server, ctx)
    for (field, _), batches in collector.field_updates.items():
        for batch in batches:
            detached.add(field.model, _keys(batch))
    found = {"deleted": deleted.counts, "detached": detached.counts}
    return {name: counts for name, counts in found.items() if counts}


def protected(
    exc: ProtectedError | RestrictedError, obj: Model, *, alias: str, server: Any, ctx: Context
) -> ToolError:
    """The refusal to delete what others refer to, with their number and model."""
    found = exc.args[1]
    count = _Count(alias, server, ctx)
    for model in {type(one) for one in found}:
        count.add(model, [one.pk for one in found if type(one) is model])
    noun = obj._meta.verbose_name
    seen = " and ".join(f"{number} {label}" for label, number in sorted(count.counts.items()))
    why = seen or "by what you may not see"
    advice = " Delete those first, or have them refer to something else." if seen else ""
    return ToolError(f"This {noun} cannot be deleted while it is referred to ({why}).{advice}")


class _Count:
    """Counts rows by model, those that the caller may see."""

    def __init__(self, alias: str, server: Any, ctx: Context) -> None:
        self.counts: Counts = {}
        self._alias = alias
        self._server = server
        self._ctx = ctx

    def sure(self, model: type[Model], number: int) -> None:
        """Count rows that the caller is known to see."""
        if number:
            label = model._meta.label
            self.counts[label] = self.counts.get(label, 0) + number

    def add(self, model: type[Model], rows: QuerySet[Any] | Iterable[Any]) -> None:
        """Count those of the rows, or of the rows with these keys, that the caller may see."""
        if model._meta.auto_created:
            # A table of links; what it links is counted by itself.
            return
        if isinstance(rows, QuerySet):
            self._add(model, Q(pk__in=rows.values("pk")))
            return
        for batch in _batches(list(rows)):
            self._add(model, Q(pk__in=batch))

    def _add(self, model: type[Model], among: Q) -> None:
        visible = viewable(self._server, model, self._ctx, among=among)
        if visible is not None:
            self.sure(model, visible.using(self._alias).filter(among).count())


def _keys(rows: Any) -> Any:
    """What is updated in bulk is a query; what was loaded is a list."""
    if isinstance(rows, QuerySet) and rows._result_cache is None:
        return rows
    return [one.pk for one in rows]


def _batches(keys: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(keys), BATCH):
        yield keys[start : start + BATCH]
