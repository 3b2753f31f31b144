"""``Listing``: one page of rows, as a caller asked for it and may see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from django.db.models import Model, QuerySet

from mcp_django.core.context import Context
from mcp_django.sources.models import paging
from mcp_django.sources.models.filters import Filters
from mcp_django.sources.models.guarding import may_see_some, may_this, sees_all
from mcp_django.sources.models.loading import Loading
from mcp_django.sources.models.ordering import Ordering, Term
from mcp_django.sources.models.search import Search
from mcp_django.sources.models.shortening import fitted

if TYPE_CHECKING:
    from mcp_django.sources.models.tools import ModelTools


class Listing:
    """The function of a list tool."""

    def __init__(
        self,
        declaration: ModelTools[Any],
        filters: Filters,
        search: Search,
        ordering: Ordering,
        *,
        tool: str,
    ) -> None:
        self._declaration = declaration
        self._filters = filters
        self._search = search
        self._ordering = ordering
        self._tool = tool

    def page(self, ctx: Context, given: dict[str, Any]) -> dict[str, Any]:
        """One page, how many rows there are if it is the first, and the cursor of the next.

        Raises:
            ToolError: the cursor belongs to another list.
        """
        terms = self._ordering.terms(given.get("order_by"))
        scope = paging.scope(ctx, self._tool, given)
        cursor = given.get("cursor")
        behind = None if cursor is None else paging.read(cursor, terms, scope=scope)
        rows = narrowed(self._declaration, self._filters, self._search, ctx, given)
        page: dict[str, Any] = {}
        # How many rows there are would tell of those that are asked about and not shown.
        is_whole = sees_all(self._declaration, ctx)
        if behind is None and self._declaration.count and is_whole:
            page["total"] = rows.count()
        size = given.get("limit") or self._declaration.page_size
        found = self._found(rows, terms, behind, size + 1, ctx, is_whole=is_whole)
        items = self._declaration.exposed.dump_all(found[:size], ctx)

        def first(kept: int) -> dict[str, Any]:
            """A page of so many items, with a cursor if there are more."""
            if kept == len(found):
                return {"items": items, **page}
            end = paging.cursor(paging.position(found[kept - 1], terms), scope=scope)
            return {"items": items[:kept], **page, "next_cursor": end}

        return fitted(items, first)

    def _found(
        self,
        rows: QuerySet[Any],
        terms: Sequence[Term],
        behind: list[Any] | None,
        wanted: int,
        ctx: Context,
        *,
        is_whole: bool,
    ) -> list[Model]:
        """At most as many objects as wanted, in order."""
        rows = rows.order_by(*(term.order for term in terms))
        # Whoever decides about single objects may look at any column of them.
        rows = Loading(ctx).prepare(rows, self._declaration.exposed.tree, whole=not is_whole)
        if is_whole:
            rows = rows if behind is None else paging.behind(rows, terms, behind)
            return list(rows[:wanted])
        if not may_see_some(self._declaration, ctx):
            return []
        found: list[Model] = []
        for obj in self._in_steps(rows, terms, behind, wanted):
            if may_this(self._declaration, ctx, "view", obj):
                found.append(obj)
            if len(found) == wanted:
                break
        return found

    @staticmethod
    def _in_steps(
        rows: QuerySet[Any], terms: Sequence[Term], behind: list[Any] | None, step: int
    ) -> Iterator[Model]:
        """Every row, a page at a time; the query limits of the call end it."""
        while True:
            some = list((rows if behind is None else paging.behind(rows, terms, behind))[:step])
            yield from some
            if len(some) < step:
                return
            behind = [
                None if at is None else term.value(at)
                for term, at in zip(terms, paging.position(some[-1], terms), strict=True)
            ]


def narrowed(
    declaration: ModelTools[Any],
    filters: Filters,
    search: Search,
    ctx: Context,
    given: dict[str, Any],
) -> QuerySet[Any]:
    """The visible rows that match what was given."""
    rows = filters.apply(declaration.rows(ctx), given, ctx)
    return search.apply(rows, given.get("search"), ctx)
