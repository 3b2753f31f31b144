"""What a ``ModelAdmin`` says of its model, as the options of ``ModelTools``.

Taken is what is written down in its attributes; what a method computes for each request cannot be
known in advance. Only columns and relations of the model are taken, and none that its form hides
(a password), so that nothing is exposed which the admin shows differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import ImproperlyConfigured
from django.forms import PasswordInput

from mcp_django.schema.secrets import names_secret
from mcp_django.sources.models.columns import Column
from mcp_django.sources.models.lookups import SHORT_TEXT, default_lookups
from mcp_django.sources.models.paths import FieldPath, resolve

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

PREFIXES = "^=@"
DATE_PARTS = ("year", "month", "day")


@dataclass(slots=True)
class Derived:
    """The options, and what could not be taken over."""

    fields: list[str]
    search_fields: list[str] = field(default_factory=list)
    filter_fields: dict[str, list[str]] = field(default_factory=dict)
    ordering_fields: list[str] = field(default_factory=list)
    ordering: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def options(self) -> dict[str, Any]:
        """All of them by name."""
        return {name: getattr(self, name) for name in self.__slots__}


def derive(model_admin: ModelAdmin[Any], fields: Iterable[str] | None) -> Derived:
    """Read a ``ModelAdmin``; ``fields`` stands in place of those that it shows."""
    reading = _Reading(model_admin)
    shown = list(fields) if fields is not None else list(reading.fields())
    found = Derived(fields=shown, left_out=reading.left_out)
    found.search_fields = list(reading.search_fields(shown))
    found.filter_fields = reading.filter_fields(shown)
    found.ordering_fields = list(reading.ordering_fields(shown))
    found.ordering = list(reading.ordering(shown))
    return found


class _Reading:
    def __init__(self, model_admin: ModelAdmin[Any]) -> None:
        self._admin = model_admin
        self._model = model_admin.model
        self.left_out: list[str] = []

    # Fields ---------------------------------------------------------------------------------------

    def fields(self) -> Iterator[str]:
        """The columns and relations that the admin shows, and a key if none of them is one."""
        found = list(dict.fromkeys(name for name in self._shown() if self._is_open(name)))
        if not any(self._names_one(name) for name in found):
            yield self._model._meta.pk.name
        yield from found

    def _shown(self) -> Iterator[str]:
        admin: Any = self._admin
        written = admin.fieldsets or [(None, {"fields": admin.fields or ()})]
        for name in (*admin.list_display, *flatten_fieldsets(written), *admin.readonly_fields):
            # A callable, a method of the admin or of the model is code, and no field.
            if isinstance(name, str) and self._path(name) is not None:
                yield name

    def _is_open(self, name: str) -> bool:
        form: Any = self._admin.form
        meta = getattr(form, "_meta", None)
        excluded = self._admin.exclude or getattr(meta, "exclude", None) or ()
        if name in excluded:
            return False
        widgets = getattr(meta, "widgets", None) or {}
        is_hidden = isinstance(_made(widgets.get(name)), PasswordInput)
        is_secret = names_secret(name)
        # A field that the form declares is shown as the form says, and not as it is stored.
        if is_hidden or is_secret or name in form.declared_fields:
            self.left_out.append(
                f"{name!r} is left out, as it may be a secret; name it in fields=…"
            )
            return False
        return True

    def _names_one(self, name: str) -> bool:
        path = self._path(name)
        if path is None or path.hops or path.is_relation:
            return False
        return bool(path.field.unique and not path.field.null and Column(path.field).is_comparable)

    # What can be asked ----------------------------------------------------------------------------

    def search_fields(self, shown: list[str]) -> Iterator[str]:
        """The text that is searched, as far as it is shown."""
        for written in self._admin.search_fields:
            name = self._without_lookup(written.lstrip(PREFIXES))
            path = self._path(name)
            is_text = path is not None and not path.is_relation
            if is_text and Column(path.column).kind == "text" and name in shown:  # type: ignore[union-attr]
                yield name
            else:
                self._leave("search_fields", written, name, shown)

    def filter_fields(self, shown: list[str]) -> dict[str, list[str]]:
        """The filters at the side of the list, and the dates above it."""
        found: dict[str, list[str]] = {}
        for written in self._admin.list_filter:
            name: Any = written[0] if isinstance(written, list | tuple) else written
            path = self._path(name) if isinstance(name, str) else None
            if path is not None and name in shown and Column(path.column).is_comparable:
                found[name] = list(default_lookups(path))
            else:
                self._leave("list_filter", _name_of(written), name, shown)
        date = self._admin.date_hierarchy
        path = self._path(date) if date else None
        if date and path is not None and date in shown:
            found[date] = [*default_lookups(path), *DATE_PARTS]
        elif date:
            self._leave("date_hierarchy", date, date, shown)
        return found

    def ordering_fields(self, shown: list[str]) -> Iterator[str]:
        """The columns of the list by which it can be sorted."""
        admin: Any = self._admin
        for name in admin.list_display if admin.sortable_by is None else admin.sortable_by:
            if isinstance(name, str) and name in shown and self._has_order(name):
                yield name

    def ordering(self, shown: list[str]) -> Iterator[str]:
        """The order of the list, up to the first that is not shown."""
        for written in self._admin.ordering or ():
            name = str(written).removeprefix("-")
            if name == "pk":
                name = self._model._meta.pk.name
            if not isinstance(written, str) or name not in shown or not self._has_order(name):
                self._leave("ordering", _name_of(written), name, shown)
                return
            yield f"-{name}" if written.startswith("-") else name

    def _has_order(self, name: str) -> bool:
        path = self._path(name)
        if path is None or path.is_many or not Column(path.column).is_comparable:
            return False
        if path.is_relation and not path.field.concrete:
            return False
        length = getattr(path.column, "max_length", None) or SHORT_TEXT + 1
        return Column(path.column).kind != "text" or length <= SHORT_TEXT

    # Steps ----------------------------------------------------------------------------------------

    def _path(self, name: str) -> FieldPath | None:
        try:
            return resolve(self._model, name, what=type(self._admin).__name__)
        except ImproperlyConfigured:
            return None

    def _without_lookup(self, name: str) -> str:
        """``email__icontains`` searches ``email``."""
        before, _, last = name.rpartition("__")
        if before and self._path(name) is None and self._path(before) is not None and last:
            return before
        return name

    def _leave(self, option: str, written: str, name: Any, shown: list[str]) -> None:
        is_hidden = isinstance(name, str) and self._path(name) is not None and name not in shown
        why = "which is not in fields" if is_hidden else "which has no counterpart"
        self.left_out.append(f"{option} has {written!r}, {why}")


def _name_of(written: Any) -> str:
    if isinstance(written, list | tuple):
        return str(written[0])
    return written if isinstance(written, str) else getattr(written, "__name__", str(written))


def _made(widget: Any) -> Any:
    return widget() if isinstance(widget, type) else widget
