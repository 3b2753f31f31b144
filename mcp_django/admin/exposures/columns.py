"""Which paths of a model a form offers, and what each of them can be used for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db.models import ManyToManyField, Model

from mcp_django.managed.exposures.safety import closed_path
from mcp_django.sources.models.columns import Column
from mcp_django.sources.models.keys import is_short
from mcp_django.sources.models.paths import FieldPath, own_names, resolve

USES = ("fields", "filter_fields", "search_fields", "ordering_fields", "write_fields")
"""The options that name paths, in the order of their columns in a form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRow:
    """One path, in words, and the options that it can be named in."""

    path: str
    label: str
    uses: frozenset[str]
    behind: str = ""
    """The relation that it follows, in words."""


def rows_of(model: type[Model], chosen: Iterable[str] = ()) -> list[PathRow]:
    """Own columns and relations, then the columns one relation further.

    What was chosen and cannot be any more is among them, so that it is seen and taken back.
    """
    found = [row for path in _open(model, own_names(model)) for row in [_row(path)]]
    for relation in [path for path in _open(model, own_names(model)) if path.is_relation]:
        behind = (f"{relation.text}__{name}" for name in own_names(relation.field.related_model))
        found += [_row(path) for path in _open(model, behind) if not path.is_relation]
    known = {row.path for row in found}
    gone = [name for name in dict.fromkeys(chosen) if name not in known]
    return [
        *found,
        *(PathRow(path=name, label=name, uses=frozenset(USES), behind="") for name in gone),
    ]


def _open(model: type[Model], names: Iterable[str]) -> Iterator[FieldPath]:
    for name in names:
        try:
            path = resolve(model, name, what="")
        except ImproperlyConfigured:
            continue
        if not closed_path(path):
            yield path


def _row(path: FieldPath) -> PathRow:
    return PathRow(
        path=path.text,
        label=_words(path.field),
        uses=frozenset(_uses(path)),
        behind=_words(path.hops[-1]) if path.hops else "",
    )


def _words(field: Any) -> str:
    """What a person calls a field; what points here is called after its model."""
    words = getattr(field, "verbose_name", None)
    if words is None:
        options = field.related_model._meta
        words = options.verbose_name if field.one_to_one else options.verbose_name_plural
    return str(words)


def _uses(path: FieldPath) -> Iterator[str]:
    yield "fields"
    column = Column(path.column)
    if column.is_comparable:
        yield "filter_fields"
    if column.kind == "text" and not path.is_relation:
        yield "search_fields"
    is_own = not path.is_relation or path.field.concrete
    if column.is_comparable and is_own and not path.is_many and is_short(path.column):
        yield "ordering_fields"
    field = path.field
    is_stored = isinstance(field, ManyToManyField) or getattr(field, "concrete", False)
    if not path.hops and is_stored and getattr(field, "editable", False) and not field.auto_created:
        yield "write_fields"
