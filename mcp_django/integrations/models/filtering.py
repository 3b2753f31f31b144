"""``filter_fields``, ``search_fields`` and ``ordering_fields``: the arguments of a list tool.

Filters restrict the rows of a list, the search looks for words, and the ordering sorts the rows.
Every order ends with a unique column, so that pages have definite boundaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Annotated, Any, Literal

from django.core.exceptions import ImproperlyConfigured
from django.db.models import F, Model, Q, QuerySet
from django.db.models.expressions import OrderBy
from pydantic import AfterValidator, Field

from mcp_django.components.context import Context
from mcp_django.components.declare import GeneratedArgument
from mcp_django.exceptions import ToolError
from mcp_django.integrations.models.columns import (
    SHORT_TEXT,
    Column,
    FieldPath,
    accessor_name,
    default_lookups,
    describe_lookup,
    known_lookups,
    lookup_annotation,
    suggest_name,
    validate_storable_text,
)
from mcp_django.integrations.models.declaration import ModelTools
from mcp_django.integrations.models.exposed_fields import find_tie_breaker, fits_in_cursor
from mcp_django.integrations.models.row_access import apply_row_rules

RESERVED = frozenset(
    {"search", "order_by", "limit", "cursor", "group_by", "sum_of", "avg_of", "min_of", "max_of"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldFilter:
    """One lookup of one path."""

    path: FieldPath
    lookup: str

    @property
    def name(self) -> str:
        """The name of the argument: ``placed_at__gte``, or the path alone for ``exact``."""
        bare = self.lookup == "exact" and self.path.text not in RESERVED
        return self.path.text if bare else f"{self.path.text}__{self.lookup}"

    @property
    def argument(self) -> GeneratedArgument:
        """The argument of the tool."""
        return GeneratedArgument(
            annotation=lookup_annotation(self.path, self.lookup),
            description=describe_lookup(self.path, self.lookup),
        )

    def condition(self, value: Any) -> Q:
        """Return the condition that rows must fulfill."""
        return Q(**{f"{self.path.text}__{self.lookup}": value})


class Filters:
    """The filters and the search of one declaration."""

    def __init__(self, declaration: ModelTools[Any]) -> None:
        self._declaration = declaration
        declared: Any = declaration.filter_fields
        if not isinstance(declared, Mapping):
            declared = dict.fromkeys(declaration.get_name_list("filter_fields"))
        filters = [
            field_filter
            for text, lookups in declared.items()
            for field_filter in self._parse_filter(text, lookups)
        ]
        self._filters = {field_filter.name: field_filter for field_filter in filters}
        self._search = Search(declaration)

    @property
    def arguments(self) -> dict[str, GeneratedArgument]:
        """The arguments by name."""
        own = {name: field_filter.argument for name, field_filter in self._filters.items()}
        return {**self._search.arguments, **own}

    def rows(self, ctx: Context, arguments: Mapping[str, Any]) -> QuerySet[Any]:
        """Return the visible rows that match the filters and the search among the arguments."""
        rows = self._declaration.rows(ctx)
        for name, value in arguments.items():
            field_filter = self._filters.get(name)
            if field_filter is None or value is None:
                continue
            path, lookup = field_filter.path, field_filter.lookup
            relation_conditions = _visible_relation_conditions(
                self._declaration, path, ctx, lookup, value
            )
            if not path.is_many and not relation_conditions:
                rows = rows.filter(field_filter.condition(value))
                continue
            is_about_rows = lookup == "isnull" and path.text in relation_conditions
            condition = Q() if is_about_rows else field_filter.condition(value)
            for relation_condition in relation_conditions.values():
                condition &= relation_condition
            # A join would return a row once for each match.
            matching = self._declaration.model._base_manager.using(rows.db).filter(condition)
            selection = Q(pk__in=matching.values("pk"))
            rows = rows.filter(~selection if is_about_rows and value else selection)
        return self._search.apply(rows, arguments.get("search"), ctx)

    def _parse_filter(self, text: str, names: Iterable[str] | None) -> Iterator[FieldFilter]:
        path = self._declaration.exposed.require_path(text, option="filter_fields")
        if not Column(path.column).is_comparable:
            self._declaration.refuse(
                f"filter_fields has {text!r}, a {type(path.field).__name__}, which does not "
                "support filtering."
            )
        lookups = known_lookups(path)
        if isinstance(names, str):
            self._declaration.refuse(
                f"filter_fields: lookups must be a list; write {{{text!r}: [{names!r}]}}."
            )
        for lookup in default_lookups(path) if names is None else names:
            if lookup not in lookups:
                self._declaration.refuse(
                    f"filter_fields: {text!r} has no lookup {lookup!r}; "
                    f"{suggest_name(lookup, lookups)}"
                )
            yield FieldFilter(path=path, lookup=lookup)


def _visible_relation_conditions(
    declaration: ModelTools[Any], path: FieldPath, ctx: Context, lookup: str, value: Any
) -> dict[str, Q]:
    """Return conditions that the rows of restricted relations on a path are visible to the caller.

    Combine them with the comparison itself, since both concern the same related row.
    """
    conditions: dict[str, Q] = {}
    for name, model in declaration.exposed.restricted_relations(path).items():
        rest = path.text[len(name) :].removeprefix("__")
        is_any = not rest and lookup == "isnull"
        among = Q() if is_any else Q(**{f"{rest or 'pk'}__{lookup}": value})
        rows = apply_row_rules(declaration.server, model, ctx, among=among)
        if rows is not None:
            conditions[name] = Q(**{f"{name}__in": rows.values("pk")})
    return conditions


MAX_CHARACTERS = 200
MAX_WORDS = 10
Text = Annotated[str, Field(max_length=MAX_CHARACTERS), AfterValidator(validate_storable_text)]


class Search:
    """The search of one declaration: each word must occur in one of the columns of a row."""

    def __init__(self, declaration: ModelTools[Any]) -> None:
        self._declaration = declaration
        self._paths = [
            declaration.exposed.require_path(text, option="search_fields")
            for text in declaration.get_name_list("search_fields")
        ]
        for path in self._paths:
            if path.field.is_relation or Column(path.column).kind != "text":
                declaration.refuse(
                    f"search_fields has {path.text!r}, which is not a text column; name a text "
                    "column, such as 'customer__name'."
                )

    @property
    def arguments(self) -> dict[str, GeneratedArgument]:
        """The argument ``search``, if there are search fields."""
        if not self._paths:
            return {}
        where = ", ".join(path.text for path in self._paths)
        return {
            "search": GeneratedArgument(
                annotation=Text, description=f"Words that must all be in {where}."
            )
        }

    def apply(self, rows: QuerySet[Any], text: str | None, ctx: Context) -> QuerySet[Any]:
        """Return the rows that contain all words.

        Raises:
            ToolError: there are too many words.
        """
        words = (text or "").split()
        if len(words) > MAX_WORDS:
            raise ToolError(f"search has {len(words)} words; send at most {MAX_WORDS}.")
        if not words:
            return rows
        if not any(path.is_many for path in self._paths):
            return rows.filter(reduce(and_, (self._match_any_column(word, ctx) for word in words)))
        everything = self._declaration.model._base_manager.using(rows.db)
        for word in words:
            # A join would return a row once for each match.
            rows = rows.filter(
                pk__in=everything.filter(self._match_any_column(word, ctx)).values("pk")
            )
        return rows

    def _match_any_column(self, word: str, ctx: Context) -> Q:
        matches: list[Q] = []
        for path in self._paths:
            visible = _visible_relation_conditions(self._declaration, path, ctx, "icontains", word)
            match = Q(**{f"{path.text}__icontains": word})
            matches.append(reduce(and_, visible.values(), match))
        return reduce(or_, matches)


MAX_TERMS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderTerm:
    """One column to order by; rows without a value come last, on every database."""

    path: FieldPath
    is_descending: bool = False

    @property
    def order(self) -> OrderBy:
        """The expression for ``QuerySet.order_by``."""
        last = True if self.path.is_nullable else None
        column = F(self.path.expression)
        return column.desc(nulls_last=last) if self.is_descending else column.asc(nulls_last=last)

    def position(self, obj: Model) -> str | None:
        """Return the value of an object as text, which ``value`` converts back."""
        owner: Any = obj
        for hop in self.path.hops:
            owner = getattr(owner, accessor_name(hop), None)
        if owner is None or getattr(owner, self.path.field.attname) is None:
            return None
        return str(self.path.field.value_to_string(owner))

    def value(self, position: str) -> Any:
        """Return the value of a position, for use in a query.

        Raises:
            ValidationError: the text is not a value of this column.
        """
        return self.path.field.to_python(position)


class Ordering:
    """The options ``ordering_fields`` and ``ordering`` of one declaration.

    Only exposed columns of the model's own ``Meta.ordering`` are used, since an order reveals
    something about the values.
    """

    def __init__(self, declaration: ModelTools[Any]) -> None:
        self._declaration = declaration
        self._named = {
            text: self._path(text, "ordering_fields")
            for text in declaration.get_name_list("ordering_fields")
        }
        written = declaration.get_name_list("ordering")
        if len(written) > MAX_TERMS:
            declaration.refuse(f"ordering has more than {MAX_TERMS} fields.")
        self._default = [
            _term(self._path(text.removeprefix("-"), "ordering"), text) for text in written
        ]
        # Otherwise use the model's ``Meta.ordering`` up to the first column that is not exposed.
        for text in () if written else declaration.model._meta.ordering[:MAX_TERMS]:
            try:
                path = self._path(text.removeprefix("-"), "ordering")
            except (AttributeError, ImproperlyConfigured):
                break
            self._default.append(_term(path, text))
        self._last = OrderTerm(path=declaration.exposed.paths[find_tie_breaker(declaration)])

    @property
    def arguments(self) -> dict[str, GeneratedArgument]:
        """The argument ``order_by``, if there are ordering fields."""
        if not self._named:
            return {}
        names = tuple(name for text in self._named for name in (text, f"-{text}"))
        return {
            "order_by": GeneratedArgument(
                annotation=Literal[names], description="Prefix - for descending order."
            )
        }

    def terms(self, order_by: str | None) -> tuple[OrderTerm, ...]:
        """Return the columns to order by; the last one is unique."""
        if order_by is None:
            return self._complete(self._default)
        return self._complete([_term(self._named[order_by.lstrip("-")], order_by)])

    def _complete(self, terms: Iterable[OrderTerm]) -> tuple[OrderTerm, ...]:
        order: list[OrderTerm] = []
        for term in terms:
            order.append(term)
            path = term.path
            if not path.hops and path.field.unique and not path.is_nullable:
                return tuple(order)
        return (*order, self._last)

    def _path(self, text: str, option: str) -> FieldPath:
        path = self._declaration.exposed.require_path(text, option=option)
        column = Column(path.column)
        if path.is_many:
            self._declaration.refuse(f"{option} has {text!r}, which can have several values.")
        if not column.is_comparable or (path.is_relation and not path.field.concrete):
            self._declaration.refuse(f"{option} has {text!r}, which does not support ordering.")
        if not fits_in_cursor(path.column):
            self._declaration.refuse(
                f"{option} has {text!r}, which is too long for a page cursor; order by text of at "
                f"most {SHORT_TEXT} characters."
            )
        return path


def _term(path: FieldPath, text: str) -> OrderTerm:
    return OrderTerm(path=path, is_descending=text.startswith("-"))
