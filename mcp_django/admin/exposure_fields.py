"""The field paths of a model that can be exposed, and the table of checkboxes to choose them.

For each path the form shows its possible uses. It also lists the paths that are left out, with the
reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import ImproperlyConfigured
from django.db.models import ManyToManyField, Model
from django.utils.datastructures import MultiValueDict
from django.utils.translation import gettext, gettext_lazy as _

from mcp_django.integrations.models.columns import Column, FieldPath, own_names, resolve_path
from mcp_django.integrations.models.exposed_fields import fits_in_cursor
from mcp_django.overrides.exposure_rules import path_exclusion
from mcp_django.overrides.exposures import StagingServer

USES = ("fields", "filter_fields", "search_fields", "ordering_fields", "write_fields")
"""The options that name paths, in the order of their columns in a form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRow:
    """One field path with its label, and the options that may name it."""

    path: str
    label: str
    uses: frozenset[str]
    relation_label: str = ""
    """The label of the relation that the path follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedPaths:
    """Paths that cannot be exposed; ``reason`` completes a sentence that begins with a path."""

    paths: tuple[str, ...]
    reason: str


def path_rows(
    model: type[Model], staging: StagingServer, chosen: Iterable[str] = ()
) -> tuple[list[PathRow], list[ExcludedPaths]]:
    """Return the paths that can be exposed and those left out: own fields, then related ones.

    A chosen path that can no longer be exposed stays among the rows, so that the user can clear it.
    """
    closed: dict[str, list[str]] = {}

    def catalog(names: Iterable[str]) -> Iterator[FieldPath]:
        for name in names:
            try:
                path = resolve_path(model, name, label="")
            except ImproperlyConfigured:
                # Such as the target of a generic relation.
                reason = gettext("is neither a column nor a relation to one model.")
                closed.setdefault(reason, []).append(name)
                continue
            if reason := path_exclusion(path, staging.shown_by_code):
                closed.setdefault(reason, []).append(name)
            else:
                yield path

    paths = [*catalog(_names(model))]
    relations = [path for path in paths if path.is_relation]
    # The columns behind each relation; the relation itself shows the related key.
    paths += catalog(
        f"{relation.text}__{name}"
        for relation in relations
        for name in own_names(relation.field.related_model)
        if not relation.field.related_model._meta.get_field(name).is_relation
    )
    rows = [_row(path) for path in paths]
    row_paths = {row.path for row in rows}
    gone = [name for name in dict.fromkeys(chosen) if name not in row_paths]
    rows += [PathRow(path=name, label=name, uses=frozenset(USES)) for name in gone]
    return rows, [ExcludedPaths(paths=tuple(names), reason=why) for why, names in closed.items()]


def _names(model: type[Model]) -> list[str]:
    """Return the names of fields that can be exposed, then those of all other fields."""
    names = own_names(model)
    all_names = [
        field.name for field in model._meta.get_fields() if not getattr(field, "hidden", False)
    ]
    return [*names, *(name for name in all_names if name not in names)]


def _row(path: FieldPath) -> PathRow:
    uses = {"fields"}
    column = Column(path.column)
    if column.is_comparable:
        uses.add("filter_fields")
    if column.kind == "text" and not path.is_relation:
        uses.add("search_fields")
    is_own = not path.is_relation or path.field.concrete
    if column.is_comparable and is_own and not path.is_many and fits_in_cursor(path.column):
        uses.add("ordering_fields")
    field = path.field
    is_stored = isinstance(field, ManyToManyField) or getattr(field, "concrete", False)
    if not path.hops and is_stored and getattr(field, "editable", False) and not field.auto_created:
        uses.add("write_fields")
    return PathRow(
        path=path.text,
        label=_field_label(field),
        uses=frozenset(uses),
        relation_label=_field_label(path.hops[-1]) if path.hops else "",
    )


def _field_label(field: Any) -> str:
    """Return the verbose name of a field; a reverse relation is named after its model."""
    words = getattr(field, "verbose_name", None)
    if words is None:
        options = field.related_model._meta
        words = options.verbose_name if field.one_to_one else options.verbose_name_plural
    return str(words)


HEADINGS: Mapping[str, Any] = {
    "fields": _("Shown"),
    "filter_fields": _("Filter"),
    "search_fields": _("Search"),
    "ordering_fields": _("Order"),
    "write_fields": _("Written"),
}
# Uses that let callers infer the values of a field by filtering, searching or ordering.
READS = ("filter_fields", "search_fields", "ordering_fields")


class FieldTableWidget(forms.Widget):
    """A table with a row per path and a column per use, with checkboxes for the possible uses."""

    template_name = "admin/mcp_django/exposures/field_table.html"
    rows: Sequence[PathRow] = ()
    left_out: Sequence[ExcludedPaths] = ()

    def use_required_attribute(self, initial: Any) -> bool:
        """Return false: no single checkbox is required."""
        return False

    def id_for_label(self, id_: str) -> str:
        """Return no id: a table has no single input for a label."""
        return ""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> dict[str, list[str]]:
        """Return the chosen paths by use."""
        return {use: _all(data, f"{name}-{use}") for use in USES}

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Return false: a form without checked boxes sends no value."""
        return False

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        """Return the context of the template."""
        chosen = {use: set((value or {}).get(use) or ()) for use in USES}
        lines = [
            {
                "row": row,
                "cells": [
                    {
                        "use": use,
                        "heading": HEADINGS[use],
                        "is_open": use in row.uses,
                        "is_ticked": row.path in chosen[use],
                    }
                    for use in USES
                ],
            }
            for row in self.rows
        ]
        return {
            **super().get_context(name, value, attrs),
            "headings": list(HEADINGS.values()),
            "lines": lines,
            "left_out": self.left_out,
            "left_out_count": sum(len(excluded.paths) for excluded in self.left_out),
        }


class FieldTable(forms.Field):
    """The paths that an exposed model names, by option."""

    widget = FieldTableWidget

    def set_choices(self, rows: Sequence[PathRow], left_out: Sequence[ExcludedPaths]) -> None:
        """Set the paths that can be chosen, and the paths that are left out."""
        self.rows = rows
        self.widget.rows = rows
        self.widget.left_out = left_out

    def clean(self, value: Any) -> dict[str, tuple[str, ...]]:
        """Return the chosen paths by option.

        Raises:
            ValidationError: a path is not among the choices, none is shown, or one that is used
                is not shown.
        """
        uses_by_path = {row.path: row.uses for row in self.rows}
        chosen: dict[str, tuple[str, ...]] = {}
        for use in USES:
            names = tuple(dict.fromkeys(value.get(use) or ()))
            for name in names:
                if use not in uses_by_path.get(name, ()):
                    raise forms.ValidationError(
                        _("%(heading)s: %(name)s is not one of the available choices."),
                        params={"heading": HEADINGS[use], "name": name[:80]},
                    )
            chosen[use] = names
        if not chosen["fields"]:
            raise forms.ValidationError(
                _("Select “Shown” for at least one field: clients get only those fields.")
            )
        for use in READS:
            for name in chosen[use]:
                if name not in chosen["fields"]:
                    raise forms.ValidationError(
                        _(
                            "%(heading)s: %(name)s is not shown, but results would reveal its "
                            "values; select “Shown” for it as well."
                        ),
                        params={"heading": HEADINGS[use], "name": name},
                    )
        return chosen

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether any checkbox differs from its initial value."""
        before = {use: set((initial or {}).get(use) or ()) for use in USES}
        return before != {use: set((data or {}).get(use) or ()) for use in USES}


def _all(data: Any, name: str) -> list[str]:
    if isinstance(data, MultiValueDict):
        return [str(path) for path in data.getlist(name)]
    value = data.get(name) or []
    return [value] if isinstance(value, str) else list(value)
