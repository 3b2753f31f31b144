"""``ordering_fields`` and ``ordering``: in which order a list comes.

Every order ends in a column that no two rows share, so that a page has a definite end. By the
model's own ``Meta.ordering`` only what is exposed is ordered, as an order tells of its values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from django.core.exceptions import ImproperlyConfigured
from django.db.models import F, Model
from django.db.models.expressions import OrderBy

from mcp_django.core.declare import Argument
from mcp_django.sources.models.columns import Column
from mcp_django.sources.models.keys import is_short, tie_breaker
from mcp_django.sources.models.lookups import SHORT_TEXT
from mcp_django.sources.models.paths import FieldPath, accessor

if TYPE_CHECKING:
    from mcp_django.sources.models.tools import ModelTools

MAX_TERMS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One column to order by. Rows without a value come last, on every database."""

    expression: str
    field: Any
    hops: tuple[Any, ...] = ()
    is_nullable: bool = False
    is_descending: bool = False

    @property
    def order(self) -> OrderBy:
        """For ``order_by``."""
        last = True if self.is_nullable else None
        column = F(self.expression)
        return column.desc(nulls_last=last) if self.is_descending else column.asc(nulls_last=last)

    def position(self, obj: Model) -> str | None:
        """The value of an object, as text from which the column makes it again."""
        owner: Any = obj
        for hop in self.hops:
            owner = getattr(owner, accessor(hop), None)
        if owner is None or getattr(owner, self.field.attname) is None:
            return None
        return str(self.field.value_to_string(owner))

    def value(self, position: str) -> Any:
        """The value for a query.

        Raises:
            ValidationError: the text was never one of this column.
        """
        return self.field.to_python(position)


class Ordering:
    """The orders of one declaration."""

    def __init__(self, declaration: ModelTools[Any]) -> None:
        self._declaration = declaration
        self._named = {
            text: self._path(text, "ordering_fields")
            for text in declaration.sequence("ordering_fields")
        }
        self._default = self._read_default()
        self._tie = tie_breaker(declaration)

    @property
    def arguments(self) -> dict[str, Argument]:
        """``order_by``, where there is a choice."""
        if not self._named:
            return {}
        names = tuple(name for text in self._named for name in (text, f"-{text}"))
        return {
            "order_by": Argument(
                annotation=Literal[names], description="With - the other way round."
            )
        }

    def terms(self, order_by: str | None) -> tuple[Term, ...]:
        """The columns to order by, the last of which decides."""
        if order_by is None:
            return self._complete(self._default)
        return self._complete([_term(self._named[order_by.lstrip("-")], order_by)])

    @cached_property
    def _last(self) -> Term:
        options = self._declaration.model._meta
        return Term(expression=self._tie, field=options.get_field(self._tie))

    def _complete(self, terms: Iterable[Term]) -> tuple[Term, ...]:
        found: list[Term] = []
        for term in terms:
            found.append(term)
            if not term.hops and term.field.unique and not term.is_nullable:
                return tuple(found)
        return (*found, self._last)

    def _read_default(self) -> list[Term]:
        written = self._declaration.sequence("ordering")
        if len(written) > MAX_TERMS:
            self._declaration.refuse(f"ordering has more than {MAX_TERMS} fields.")
        if written:
            return [_term(self._path(text.removeprefix("-"), "ordering"), text) for text in written]
        return self._of_model()

    def _of_model(self) -> list[Term]:
        """The model's own order, as far as it is no secret."""
        found: list[Term] = []
        for text in self._declaration.model._meta.ordering[:MAX_TERMS]:
            try:
                path = self._path(text.removeprefix("-"), "ordering")
            except (AttributeError, ImproperlyConfigured):
                break
            found.append(_term(path, text))
        return found

    def _path(self, text: str, option: str) -> FieldPath:
        path = self._declaration.exposed.require(text, option=option)
        column = Column(path.column)
        if path.is_many:
            self._declaration.refuse(f"{option} has {text!r}, of which a row may have several.")
        if not column.is_comparable or (path.is_relation and not path.field.concrete):
            self._declaration.refuse(f"{option} has {text!r}, which has no order.")
        if not is_short(path.column):
            self._declaration.refuse(
                f"{option} has {text!r}, which is too long to say where a page ends; order by text "
                f"of at most {SHORT_TEXT} characters."
            )
        return path


def _term(path: FieldPath, text: str) -> Term:
    return Term(
        expression=path.expression,
        field=path.field,
        hops=path.hops,
        is_nullable=path.is_nullable,
        is_descending=text.startswith("-"),
    )
