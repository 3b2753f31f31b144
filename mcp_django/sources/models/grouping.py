"""By what a count can be divided into groups, and what the groups are called in its answer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Expression, F
from django.db.models.functions import ExtractYear, TruncDate, TruncMonth

from mcp_django.sources.models.columns import Column
from mcp_django.sources.models.paths import FieldPath

if TYPE_CHECKING:
    from mcp_django.sources.models.declaration import ModelComponents

_PARTS: Final[dict[str, tuple[str, ...]]] = {
    "date": ("year", "month"),
    "datetime": ("year", "month", "date"),
}
_EXPRESSIONS: Final[dict[str, Any]] = {
    "year": ExtractYear,
    "month": TruncMonth,
    "date": TruncDate,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """A column, or a part of a date, whose values are few."""

    path: FieldPath
    part: str = ""

    @property
    def name(self) -> str:
        """What the caller writes."""
        return f"{self.path.text}__{self.part}" if self.part else self.path.text

    @property
    def expression(self) -> Expression | F:
        """What the rows are grouped by."""
        if self.part:
            made: Expression = _EXPRESSIONS[self.part](self.path.expression)
            return made
        return F(self.path.expression)

    def dump(self, value: Any) -> Any:
        """One value of the group, as plain JSON."""
        if self.part == "month" and isinstance(value, dt.date):
            return value.isoformat()[:7]
        return Column(self.path.field).dump(value)


def groupings(declaration: ModelComponents[Any]) -> dict[str, Grouping]:
    """What is exposed and has few values: choices, references, yes and no, dates."""
    found = [
        one
        for path in declaration.exposed.paths.values()
        if not declaration.exposed.gated(path)
        for one in _of_path(path)
    ]
    return {one.name: one for one in found}


def _of_path(path: FieldPath) -> Iterator[Grouping]:
    if path.is_many:
        return
    if path.is_relation:
        if path.field.concrete:
            yield Grouping(path=path)
        return
    column = Column(path.field)
    if path.is_key or column.choices or column.kind in {"boolean", "date"}:
        yield Grouping(path=path)
    for part in _PARTS.get(column.kind, ()):
        yield Grouping(path=path, part=part)
