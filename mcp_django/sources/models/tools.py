"""``ModelTools``: which tools a class offers, and what they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from django.db.models import Model

from mcp_django.core.component import Component
from mcp_django.core.tool import Tool
from mcp_django.sources.models.hooks import WriteHooks
from mcp_django.sources.models.paths import nearest

M = TypeVar("M", bound=Model)
MAX_PAGE_SIZE = 1000


class ModelTools(WriteHooks[M]):
    """A model as tools: ``list`` and ``get``, and by name ``count``, ``create``, ``update``,
    ``delete``.

    ``search_fields``, ``filter_fields`` and ``ordering_fields`` are paths within ``fields``;
    ``filter_fields`` may say which lookups: ``{"placed_at": ["gte", "lt"]}``. ``write_fields`` are
    those that ``create`` and ``update`` take, by default the editable columns of ``fields``.
    """

    tools: Sequence[str] = ("list", "get")
    search_fields: Sequence[str] = ()
    filter_fields: Sequence[str] | Mapping[str, Sequence[str]] = ()
    ordering_fields: Sequence[str] = ()
    ordering: Sequence[str] = ()
    page_size: int = 50
    count: bool = True

    def components(self) -> Iterator[Component]:
        """The tools, after what else the class offers."""
        yield from super().components()
        yield from self.operations.values()

    @cached_property
    def operations(self) -> dict[str, Tool]:
        """The tools by what they do, in the words of ``tools``."""
        found: dict[str, Tool] = {}
        for name in self.sequence("tools"):
            if name not in BUILDERS:
                self.refuse(f"tools has {name!r}; {nearest(name, BUILDERS)}")
            found[name] = BUILDERS[name](self)
        return found

    def check(self) -> None:
        """Refuse what cannot work."""
        super().check()
        if isinstance(self.page_size, bool) or not 1 <= self.page_size <= MAX_PAGE_SIZE:
            self.refuse(f"page_size={self.page_size!r}; a page has 1 to {MAX_PAGE_SIZE} objects.")


def _list(declaration: ModelTools[Any]) -> Tool:
    from mcp_django.sources.models import reading

    return reading.list_tool(declaration)


def _get(declaration: ModelTools[Any]) -> Tool:
    from mcp_django.sources.models import reading

    return reading.get_tool(declaration)


def _count(declaration: ModelTools[Any]) -> Tool:
    from mcp_django.sources.models import counting

    return counting.count_tool(declaration)


def _create(declaration: ModelTools[Any]) -> Tool:
    from mcp_django.sources.models import write_tools

    return write_tools.create_tool(declaration)


def _update(declaration: ModelTools[Any]) -> Tool:
    from mcp_django.sources.models import write_tools

    return write_tools.update_tool(declaration)


def _delete(declaration: ModelTools[Any]) -> Tool:
    from mcp_django.sources.models import write_tools

    return write_tools.delete_tool(declaration)


# Each is imported when it is used: what it needs builds on this module.
BUILDERS: Mapping[str, Callable[[ModelTools[Any]], Tool]] = {
    "list": _list,
    "get": _get,
    "count": _count,
    "create": _create,
    "update": _update,
    "delete": _delete,
}
