"""``FieldTable``: one table of checkboxes that says what each path of a model is used for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.utils.datastructures import MultiValueDict
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.exposures.columns import USES, LeftOut, PathRow

HEADINGS: Mapping[str, Any] = {
    "fields": _("Shown"),
    "filter_fields": _("Filter"),
    "search_fields": _("Search"),
    "ordering_fields": _("Order"),
    "write_fields": _("Written"),
}
# What callers narrow and order by, and so could guess at.
READS = ("filter_fields", "search_fields", "ordering_fields")


class FieldTableWidget(forms.Widget):
    """A row for each path, a column for each use; a checkbox where the path can be used so."""

    template_name = "admin/mcp_django/exposures/field_table.html"
    rows: Sequence[PathRow] = ()
    left_out: Sequence[LeftOut] = ()

    def use_required_attribute(self, initial: Any) -> bool:
        """No checkbox of many is required."""
        return False

    def id_for_label(self, id_: str) -> str:
        """A table has no one field that a label could point to."""
        return ""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> dict[str, list[str]]:
        """The chosen paths by their use."""
        return {use: _all(data, f"{name}-{use}") for use in USES}

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """A form without a tick sends nothing."""
        return False

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        """What the template shows."""
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
            "left_out_count": sum(len(one.paths) for one in self.left_out),
        }


class FieldTable(forms.Field):
    """The paths that a model exposure names, by option."""

    widget = FieldTableWidget

    def offer(self, rows: Sequence[PathRow], left_out: Sequence[LeftOut]) -> None:
        """Offer these paths, and say which others there are."""
        self.rows = rows
        self.widget.rows = rows
        self.widget.left_out = left_out

    def clean(self, value: Any) -> dict[str, tuple[str, ...]]:
        """The paths by option, those alone that were offered.

        Raises:
            ValidationError: something else was sent.
        """
        known = {row.path: row.uses for row in self.rows}
        found: dict[str, tuple[str, ...]] = {}
        for use in USES:
            names = tuple(dict.fromkeys(value.get(use) or ()))
            for name in names:
                if use not in known.get(name, ()):
                    raise forms.ValidationError(
                        _("%(heading)s: %(name)s is not among what can be chosen."),
                        params={"heading": HEADINGS[use], "name": name[:80]},
                    )
            found[use] = names
        if not found["fields"]:
            raise forms.ValidationError(
                _("Choose at least one field that is shown: nothing else leaves the site.")
            )
        for use in READS:
            for name in found[use]:
                if name not in found["fields"]:
                    raise forms.ValidationError(
                        _(
                            "%(heading)s: %(name)s is not shown, and answers would tell of it; "
                            "tick it under Shown as well."
                        ),
                        params={"heading": HEADINGS[use], "name": name},
                    )
        return found

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether any tick is another."""
        before = {use: set((initial or {}).get(use) or ()) for use in USES}
        return before != {use: set((data or {}).get(use) or ()) for use in USES}


def _all(data: Any, name: str) -> list[str]:
    if isinstance(data, MultiValueDict):
        return [str(one) for one in data.getlist(name)]
    found = data.get(name) or []
    return [found] if isinstance(found, str) else list(found)
