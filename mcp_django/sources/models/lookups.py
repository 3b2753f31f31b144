"""Which comparisons a column can be filtered by; a regular expression is none of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from mcp_django.sources.models.columns import Column, Kind
from mcp_django.sources.models.paths import FieldPath

MAX_IN = 100
# What a person would still put into a list of alternatives.
SHORT_TEXT = 255

_ORDERED = ("exact", "gt", "gte", "lt", "lte")
_TEXT = ("exact", "icontains", "startswith")
_DEFAULT: Mapping[Kind, tuple[str, ...]] = {
    "text": _TEXT,
    "address": ("exact",),
    "boolean": ("exact",),
    "uuid": ("exact", "in"),
}
_MORE: Mapping[Kind, tuple[str, ...]] = {
    "text": (
        "iexact",
        "contains",
        "istartswith",
        "endswith",
        "iendswith",
        "gt",
        "gte",
        "lt",
        "lte",
    ),
    "date": ("year", "month", "day"),
    "datetime": ("date", "year", "month", "day"),
}
_PARTS: Mapping[str, Any] = {
    "isnull": bool,
    "date": dt.date,
    # In another time zone the first and the last year begin or end beyond the calendar.
    "year": Annotated[int, Field(ge=2, le=9998)],
    "month": Annotated[int, Field(ge=1, le=12)],
    "day": Annotated[int, Field(ge=1, le=31)],
}
_WORDS: Mapping[str, str] = {
    "gt": "greater",
    "gte": "at least",
    "lt": "less",
    "lte": "at most",
    "icontains": "contains, whatever the case",
    "contains": "contains",
    "startswith": "begins with",
    "istartswith": "begins with, whatever the case",
    "endswith": "ends with",
    "iendswith": "ends with, whatever the case",
    "iexact": "equal, whatever the case",
    "in": "one of",
    "isnull": "whether there is none",
}


def default_lookups(path: FieldPath) -> tuple[str, ...]:
    """The comparisons that a filter offers when its author names none."""
    column = Column(path.column)
    if path.is_relation or path.is_key or column.choices:
        found: tuple[str, ...] = ("exact", "in")
    else:
        found = _DEFAULT.get(column.kind, _ORDERED)
        if (
            column.kind == "text"
            and (getattr(path.column, "max_length", None) or 10**6) <= SHORT_TEXT
        ):
            found = (*found, "in")
    return (*found, "isnull") if path.is_nullable and not path.is_many else found


def known_lookups(path: FieldPath) -> tuple[str, ...]:
    """Every comparison that a filter of this path may offer."""
    more = () if path.is_relation else _MORE.get(Column(path.column).kind, ())
    return tuple(dict.fromkeys((*default_lookups(path), *more, "in", "isnull")))


def annotation(path: FieldPath, lookup: str) -> Any:
    """The type of what the path is compared with."""
    if lookup in _PARTS:
        return _PARTS[lookup]
    value: Any = Column(path.column).argument()
    if lookup == "in":
        return Annotated[list[value], Field(min_length=1, max_length=MAX_IN)]
    return value


def words(path: FieldPath, lookup: str) -> str:
    """What the filter does, for a model to read."""
    if lookup in _WORDS:
        return _WORDS[lookup][:1].upper() + _WORDS[lookup][1:] + "."
    if lookup == "exact":
        return "The key." if path.field.is_relation else Column(path.field).description
    return ""
