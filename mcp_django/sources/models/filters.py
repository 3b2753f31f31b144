"""``filter_fields``: the arguments by which a list is narrowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Q, QuerySet

from mcp_django.core.context import Context
from mcp_django.core.declare import Argument
from mcp_django.sources.models.columns import Column
from mcp_django.sources.models.lookups import annotation, default_lookups, known_lookups, words
from mcp_django.sources.models.paths import FieldPath, nearest
from mcp_django.sources.models.related import gate

if TYPE_CHECKING:
    from mcp_django.sources.models.tools import ModelTools

RESERVED = frozenset(
    {"search", "order_by", "limit", "cursor", "group_by", "sum_of", "avg_of", "min_of", "max_of"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """One comparison of one path."""

    path: FieldPath
    lookup: str

    @property
    def name(self) -> str:
        """The argument: ``placed_at__gte``, and the path alone for equality."""
        bare = self.lookup == "exact" and self.path.text not in RESERVED
        return self.path.text if bare else f"{self.path.text}__{self.lookup}"

    @property
    def argument(self) -> Argument:
        """What the caller may send."""
        return Argument(
            annotation=annotation(self.path, self.lookup),
            description=words(self.path, self.lookup),
        )

    def condition(self, value: Any) -> Q:
        """What a row has to fulfill."""
        return Q(**{f"{self.path.text}__{self.lookup}": value})


class Filters:
    """The filters of one declaration."""

    def __init__(self, declaration: ModelTools[Any]) -> None:
        self._declaration = declaration
        found = [one for text, names in self._written() for one in self._read(text, names)]
        self._filters = {one.name: one for one in found}

    @property
    def arguments(self) -> dict[str, Argument]:
        """The arguments by name."""
        return {name: one.argument for name, one in self._filters.items()}

    def apply(self, rows: QuerySet[Any], given: Mapping[str, Any], ctx: Context) -> QuerySet[Any]:
        """The rows that fulfill everything that was given."""
        for name, value in given.items():
            one = self._filters.get(name)
            if one is not None and value is not None:
                rows = self._narrow(rows, one, value, ctx)
        return rows

    def _narrow(self, rows: QuerySet[Any], one: Filter, value: Any, ctx: Context) -> QuerySet[Any]:
        shown = visible_on_the_way(self._declaration, one.path, ctx, one.lookup, value)
        if not one.path.is_many and not shown:
            return rows.filter(one.condition(value))
        is_about_rows = one.lookup == "isnull" and one.path.text in shown
        condition = Q() if is_about_rows else one.condition(value)
        for visible in shown.values():
            condition &= visible
        # A join would give a row once for each match.
        matching = self._declaration.model._base_manager.using(rows.db).filter(condition)
        found = Q(pk__in=matching.values("pk"))
        return rows.filter(~found if is_about_rows and value else found)

    def _written(self) -> Iterator[tuple[str, Iterable[str] | None]]:
        declared = self._declaration.filter_fields
        if isinstance(declared, Mapping):
            yield from declared.items()
        else:
            yield from ((text, None) for text in self._declaration.sequence("filter_fields"))

    def _read(self, text: str, names: Iterable[str] | None) -> Iterator[Filter]:
        path = self._declaration.exposed.require(text, option="filter_fields")
        if not Column(path.column).is_comparable:
            self._declaration.refuse(
                f"filter_fields has {text!r}, a {type(path.field).__name__}, by which nothing can "
                "be filtered."
            )
        known = known_lookups(path)
        if isinstance(names, str):
            self._declaration.refuse(f"filter_fields: write {{{text!r}: [{names!r}]}}.")
        for lookup in default_lookups(path) if names is None else names:
            if lookup not in known:
                self._declaration.refuse(
                    f"filter_fields: {text!r} has no lookup {lookup!r}; {nearest(lookup, known)}"
                )
            yield Filter(path=path, lookup=lookup)


def visible_on_the_way(
    declaration: ModelTools[Any], path: FieldPath, ctx: Context, lookup: str, value: Any
) -> dict[str, Q]:
    """For each relation on a path that shows visible rows only: that it is one of them.

    To be asked together with the comparison itself, as both are about the same related row.
    """
    found: dict[str, Q] = {}
    for name, model in declaration.exposed.gated(path).items():
        rest = path.text[len(name) :].removeprefix("__")
        is_any = not rest and lookup == "isnull"
        among = Q() if is_any else Q(**{f"{rest or 'pk'}__{lookup}": value})
        shown = gate(declaration.server, model, ctx, among=among)
        if shown is not None:
            found[name] = Q(**{f"{name}__in": shown.values("pk")})
    return found
