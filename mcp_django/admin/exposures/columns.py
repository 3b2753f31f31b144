"""Which paths of a model a form offers, what they can be used for, and which it leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db.models import ManyToManyField, Model
from django.utils.translation import gettext as _

from mcp_django.integrations.models.columns import Column, FieldPath, own_names, resolve
from mcp_django.integrations.models.exposed_fields import is_short
from mcp_django.overrides.exposure_rules import closed_path
from mcp_django.overrides.exposures import Scratch

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Paths that are not offered, for one reason: the end of a sentence about each."""

    paths: tuple[str, ...]
    reason: str


def rows_of(
    model: type[Model], scratch: Scratch, chosen: Iterable[str] = ()
) -> tuple[list[PathRow], list[LeftOut]]:
    """What is offered, and what is not: own columns and relations, then those behind a relation.

    What was chosen and cannot be any more is offered, so that it is seen and taken back.
    """
    closed: dict[str, list[str]] = {}

    def offered(names: Iterable[str]) -> Iterator[FieldPath]:
        for name in names:
            try:
                path = resolve(model, name, what="")
            except ImproperlyConfigured:
                # As the target of a generic relation.
                reason = _("is neither a column nor a relation to one model.")
                closed.setdefault(reason, []).append(name)
                continue
            if reason := closed_path(path, scratch.shown_by_code):
                closed.setdefault(reason, []).append(name)
            else:
                yield path

    found = [*offered(_names(model))]
    relations = [path for path in found if path.is_relation]
    found += offered(name for relation in relations for name in _columns_behind(relation))
    rows = [_row(path) for path in found]
    known = {row.path for row in rows}
    gone = [name for name in dict.fromkeys(chosen) if name not in known]
    rows += [PathRow(path=name, label=name, uses=frozenset(USES)) for name in gone]
    return rows, [LeftOut(paths=tuple(names), reason=why) for why, names in closed.items()]


def _names(model: type[Model]) -> list[str]:
    """What can be offered of a model, then whatever else it has a name for."""
    names = own_names(model)
    every = [one.name for one in model._meta.get_fields() if not getattr(one, "hidden", False)]
    return [*names, *(name for name in every if name not in names)]


def _columns_behind(relation: FieldPath) -> Iterator[str]:
    """The columns one relation further; the relation itself shows the key of what is behind it."""
    behind = relation.field.related_model
    for name in own_names(behind):
        if not behind._meta.get_field(name).is_relation:
            yield f"{relation.text}__{name}"


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
