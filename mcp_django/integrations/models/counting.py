"""The count tool of a model, such as ``count_orders``: counts rows, grouped or with aggregates."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal

from django.db.models import Avg, Count, Expression, F, Max, Min, QuerySet, Sum
from django.db.models.functions import ExtractYear, TruncDate, TruncMonth

from mcp_django.components.context import Context
from mcp_django.components.declare import GeneratedArgument
from mcp_django.components.tool import Tool
from mcp_django.exceptions import ToolError
from mcp_django.integrations.models import row_access
from mcp_django.integrations.models.columns import Column, FieldPath
from mcp_django.integrations.models.declaration import ModelComponents, ModelTools
from mcp_django.integrations.models.exposed_fields import load_labels
from mcp_django.integrations.models.filtering import Filters
from mcp_django.integrations.models.list_get import reading_tool
from mcp_django.integrations.models.row_access import can_view_all, filter_viewable
from mcp_django.schema.structure import Schema
from mcp_django.schema.values import exact_integers

MAX_GROUPS: Final = 100
_NUMBERS = frozenset({"integer", "number", "decimal"})
_AGGREGATES: Final[dict[str, tuple[Any, frozenset[str], str]]] = {
    "sum": (Sum, _NUMBERS, "The sum of this field."),
    "avg": (Avg, _NUMBERS, "The average of this field."),
    "min": (Min, _NUMBERS | {"date", "datetime"}, "The smallest value of this field."),
    "max": (Max, _NUMBERS | {"date", "datetime"}, "The largest value of this field."),
}


def count_tool(declaration: ModelTools[Any]) -> Tool:
    """Return the count tool of a declaration."""
    counting = CountFunction(declaration)
    words = (
        f"Count {declaration.nouns}, optionally in groups; compute sums, averages, minimum and "
        "maximum."
    )
    return reading_tool(
        declaration,
        f"count_{declaration.plurals}",
        words,
        counting.count,
        counting.arguments,
        counting.schema,
    )


class CountFunction:
    """The function of a count tool."""

    def __init__(self, declaration: ModelTools[Any]) -> None:
        self._declaration = declaration
        self._filters = Filters(declaration)
        self._groupings = _groupings(declaration)
        exposed = declaration.exposed
        candidates = {
            text: path
            for text, path in exposed.comparable_paths.items()
            if not path.is_many
            and not exposed.restricted_relations(path)
            and not path.field.is_relation
            and not path.field.primary_key
            and not Column(path.field).choices
        }
        self._measured = {
            kind: {
                text: path for text, path in candidates.items() if Column(path.field).kind in kinds
            }
            for kind, (_, kinds, _) in _AGGREGATES.items()
        }

    @property
    def arguments(self) -> dict[str, GeneratedArgument]:
        """The arguments: search and filters, the grouping, and the fields to aggregate."""
        own: dict[str, GeneratedArgument] = {}
        if self._groupings:
            own["group_by"] = GeneratedArgument(annotation=Literal[tuple(self._groupings)])
        for kind, paths in self._measured.items():
            if paths:
                own[f"{kind}_of"] = GeneratedArgument(
                    annotation=Literal[tuple(paths)], description=_AGGREGATES[kind][2]
                )
        return {**self._filters.arguments, **own}

    @property
    def schema(self) -> Schema:
        """The JSON Schema of the result."""
        measures: Schema = {
            kind: {"description": "If requested."}
            for kind, paths in self._measured.items()
            if paths
        }
        group = {
            "type": "object",
            "properties": {"group": {}, "count": {"type": "integer"}, **measures},
            "required": ["group", "count"],
        }
        grouped: Schema = {
            "groups": {"type": "array", "items": group, "description": "The largest group first."},
            "groups_total": {
                "type": "integer",
                "description": f"The number of groups, if more than the {MAX_GROUPS} shown.",
            },
        }
        return {
            "type": "object",
            "properties": {
                "count": {"type": "integer"},
                **measures,
                **(grouped if self._groupings else {}),
            },
            "required": ["count"],
        }

    def count(self, ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the number of visible matching rows, with the requested groups and aggregates."""
        rows = self._rows(ctx, arguments)
        chosen = {
            kind: paths[arguments[f"{kind}_of"]]
            for kind, paths in self._measured.items()
            if arguments.get(f"{kind}_of")
        }
        measures = {
            f"mcp_{kind}": _AGGREGATES[kind][0](path.expression) for kind, path in chosen.items()
        }
        answer = _dump(rows.aggregate(mcp_count=Count("pk"), **measures), chosen)
        if arguments.get("group_by"):
            grouping = self._groupings[arguments["group_by"]]
            grouped = rows.annotate(mcp_group=grouping.expression).values("mcp_group")
            grouped = grouped.annotate(mcp_count=Count("pk"), **measures)
            answer |= self._groups(ctx, grouping, grouped, chosen)
        return answer

    def _rows(self, ctx: Context, arguments: dict[str, Any]) -> QuerySet[Any]:
        """Return the rows to count: only those that the caller may view.

        Raises:
            ToolError: the permission would have to be checked for too many objects.
        """
        declaration = self._declaration
        rows = self._filters.rows(ctx, arguments)
        if not can_view_all(declaration, ctx) and rows.count() > row_access.MAX_CHECKED_OBJECTS:
            raise ToolError(
                f"Whether you may view it is checked for each {declaration.noun}, and more than "
                f"{row_access.MAX_CHECKED_OBJECTS} match; add filters so that fewer match."
            )
        return filter_viewable(declaration, ctx, rows)

    def _groups(
        self,
        ctx: Context,
        grouping: Grouping,
        grouped: QuerySet[Any, Any],
        chosen: dict[str, FieldPath],
    ) -> dict[str, Any]:
        ordered = grouped.order_by("-mcp_count", F("mcp_group").asc(nulls_last=True))
        rows = list(ordered[: MAX_GROUPS + 1])
        cut = {"groups_total": grouped.order_by().count()} if len(rows) > MAX_GROUPS else {}
        shown_rows = rows[:MAX_GROUPS]
        labels: dict[Any, str] = {}
        if grouping.path.is_relation:
            relation = grouping.path.field
            column = relation.target_field.attname
            keys = [row["mcp_group"] for row in shown_rows]
            server = self._declaration.server
            labels = load_labels(server, relation.related_model, column, keys, ctx)
        groups = [
            {"group": _group(grouping, row["mcp_group"], labels), **_dump(row, chosen)}
            for row in shown_rows
        ]
        return {"groups": groups, **cut}


def _group(grouping: Grouping, value: Any, labels: dict[Any, str]) -> Any:
    plain = grouping.dump(value)
    if value is None or not grouping.path.is_relation:
        return plain
    return {"id": plain, "label": labels[value]} if value in labels else {"id": plain}


def _dump(row: dict[str, Any], chosen: dict[str, FieldPath]) -> dict[str, Any]:
    measures = {
        # A sum may be beyond what its column holds.
        kind: Column(path.field).dump(
            exact_integers(_rounded(row[f"mcp_{kind}"], kind, path.field))
        )
        for kind, path in chosen.items()
    }
    return {"count": row["mcp_count"], **measures}


def _rounded(value: Any, kind: str, field: Any) -> Any:
    """Return a decimal rounded to the places of its column, so that all databases agree.

    An average has two more places.
    """
    places = getattr(field, "decimal_places", None)
    if not isinstance(value, Decimal) or places is None or not value.is_finite():
        return value
    return round(value, places + 2 if kind == "avg" else places)


_DATE_PARTS: Final[dict[str, tuple[str, ...]]] = {
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
    """A column, or a part of a date, with few distinct values, by which rows can be grouped."""

    path: FieldPath
    part: str = ""

    @property
    def name(self) -> str:
        """The value of ``group_by``."""
        return f"{self.path.text}__{self.part}" if self.part else self.path.text

    @property
    def expression(self) -> Expression | F:
        """The expression to group rows by."""
        if self.part:
            expression: Expression = _EXPRESSIONS[self.part](self.path.expression)
            return expression
        return F(self.path.expression)

    def dump(self, value: Any) -> Any:
        """Return the value of a group as plain JSON."""
        if self.part == "month" and isinstance(value, dt.date):
            return value.isoformat()[:7]
        return Column(self.path.field).dump(value)


def _groupings(declaration: ModelComponents[Any]) -> dict[str, Grouping]:
    """Return the exposed columns with few values: choices, foreign keys, booleans and dates."""
    groupings: list[Grouping] = []
    for path in declaration.exposed.comparable_paths.values():
        if declaration.exposed.restricted_relations(path) or path.is_many:
            continue
        if path.is_relation:
            if path.field.concrete:
                groupings.append(Grouping(path=path))
            continue
        column = Column(path.field)
        if path.is_key or column.choices or column.kind in {"boolean", "date"}:
            groupings.append(Grouping(path=path))
        groupings += [Grouping(path=path, part=part) for part in _DATE_PARTS.get(column.kind, ())]
    return {grouping.name: grouping for grouping in groupings}
