"""What related objects are called, for those who may view them: one statement for each model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Model, Q

from mcp_django.core.context import Context
from mcp_django.sources.models.related import viewable

if TYPE_CHECKING:
    from mcp_django.sources.registering import Registering


def labels(
    server: Registering, model: type[Model], column: str, keys: Iterable[Any], ctx: Context
) -> dict[Any, str]:
    """The labels of the objects with these keys, without those that the caller may not view."""
    wanted = {key for key in keys if key is not None}
    if not wanted:
        return {}
    shown = viewable(server, model, ctx, among=Q(**{f"{column}__in": wanted}))
    return {getattr(obj, column): str(obj) for obj in shown or ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Blank:
    """A place in a row that waits for a label.

    ``row[name]`` is the related object as it is shown. With ``is_gated`` it is shown only if the
    caller may view it.
    """

    key: Any
    row: dict[str, Any]
    name: str
    is_gated: bool

    def fill(self, label: str | None) -> None:
        """Put the label in, or take away what must not be shown without one."""
        if label is not None:
            self.row[self.name]["label"] = label
        elif self.is_gated:
            self.row[self.name] = None
        else:
            del self.row[self.name]["label"]


class Blanks:
    """Every place in some rows that waits for a label."""

    def __init__(self, server: Registering) -> None:
        self._server = server
        self._blanks: defaultdict[tuple[type[Model], str], list[Blank]] = defaultdict(list)

    def add(self, model: type[Model], column: str, blank: Blank) -> None:
        """Remember a place; ``column`` of the model has its key."""
        self._blanks[model, column].append(blank)

    def fill(self, ctx: Context) -> None:
        """Put in what this caller may see."""
        for (model, column), blanks in self._blanks.items():
            keys = [blank.key for blank in blanks]
            known = labels(self._server, model, column, keys, ctx)
            for blank in blanks:
                blank.fill(known.get(blank.key))
