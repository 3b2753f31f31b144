"""What a form's arguments become on the way to a view: the texts that a browser would send."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from django import forms
from django.forms.models import BaseModelForm

from mcp_django.schema.arguments import InvalidArguments, Problem
from mcp_django.schema.django_forms import FormArguments, FormClass, widget_entries
from mcp_django.schema.structure import Schema
from mcp_django.sources.site.fresh import Pairs
from mcp_django.sources.site.shown import is_shown, shown_value

# Whether a row exists already depends on the one that is edited, which only the view knows.
ABOUT_OTHER_ROWS = frozenset({"unique", "unique_together", "unique_for_date"})
Moment = dt.date | dt.time


class FormValues:
    """The fields of a form as a part of a request.

    ``is_checked`` asks the form before anything is sent, as far as it can be made from data alone.
    With ``is_partial`` nothing is required: what is left out keeps its current value.

    Raises:
        ImproperlyConfigured: a field that has to be filled takes no JSON.
    """

    def __init__(
        self,
        form_class: FormClass,
        *,
        prefix: str | None = None,
        is_checked: bool = True,
        is_partial: bool = False,
    ) -> None:
        self.form_class = form_class
        self._prefix = prefix or form_class.prefix
        self._is_checked = is_checked and _is_made_from_data(form_class)
        fields: dict[str, forms.Field] = form_class.base_fields  # type: ignore[attr-defined]
        self._fields = fields
        # A file that need not be sent is not sent.
        self.files = frozenset(
            name
            for name, field in fields.items()
            if isinstance(field, forms.FileField) and (is_partial or not field.required)
        )
        self._arguments = FormArguments(form_class, is_made_elsewhere=True, without=self.files)
        self.json_schema: Schema = dict(self._arguments.json_schema)
        if is_partial:
            properties = self.json_schema["properties"].items()
            # A default would say that leaving it out sets it.
            self.json_schema["properties"] = {
                name: {key: value for key, value in schema.items() if key != "default"}
                for name, schema in properties
            }
            self.json_schema.pop("required", None)

    def pairs(
        self, arguments: dict[str, Any], *, current: Mapping[str, Any] | None = None
    ) -> Pairs:
        """Return the names and texts to send; ``current`` has the values of what is left out.

        Raises:
            InvalidArguments: the model can repair the call.
        """
        known = self._arguments.check(arguments)
        data = self._arguments.data(known, prefix=self._prefix)
        if self._is_checked:
            form = self.form_class(data=data)
            if not form.is_valid() and not _may_hold_for_view(form):
                raise InvalidArguments(self._arguments.problems(form, known))
        left_out = [name for name in current or {} if name in self._fields and name not in known]
        for name in left_out:
            data |= self._entries(name, (current or {})[name])
        fields = {self._key(name): field for name, field in self._fields.items()}
        return [
            (key, text) for key, value in data.items() for text in _texts(fields.get(key), value)
        ]

    def problems(self, form: Any, arguments: Mapping[str, Any]) -> tuple[Problem, ...]:
        """What the view's form found wrong; nothing where it is none, or holds."""
        if not isinstance(form, forms.BaseForm) or not form.is_bound or not form.errors:
            return ()
        return tuple(self._arguments.problems(form, dict(arguments)))

    def current(self, form: forms.BaseForm) -> dict[str, Any]:
        """The values that the view shows in its form before anything is sent."""
        shown = [
            name for name in self._fields if name in form.fields and is_shown(form.fields[name])
        ]
        return {name: shown_value(form, name) for name in shown}

    def _entries(self, name: str, value: Any) -> dict[str, Any]:
        return widget_entries(self._fields[name].widget, self._key(name), value)

    def _key(self, name: str) -> str:
        return f"{self._prefix}-{name}" if self._prefix else name


def _is_made_from_data(form_class: FormClass) -> bool:
    try:
        inspect.signature(form_class).bind(data={})
    except TypeError:
        return False
    return True


def _may_hold_for_view(form: forms.BaseForm) -> bool:
    """Whether all that is wrong is that there is such a row, which may be the edited one."""
    codes: Collection[str] = {
        str(error["code"]) for errors in form.errors.get_json_data().values() for error in errors
    }
    return isinstance(form, BaseModelForm) and ABOUT_OTHER_ROWS.issuperset(codes)


def _texts(field: forms.Field | None, value: Any) -> Iterator[str]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _texts(field, one)
    elif isinstance(value, bool):
        yield from _ticked(field, is_ticked=value)
    elif isinstance(value, dt.date | dt.time):
        yield _moment(field, value)
    elif value is not None and not hasattr(value, "read"):
        yield str(value)


def _ticked(field: forms.Field | None, *, is_ticked: bool) -> Iterator[str]:
    """A box without a tick is not sent, and a view may look at nothing else."""
    if field is None or not isinstance(field.widget, forms.CheckboxInput):
        yield "true" if is_ticked else "false"
    elif is_ticked:
        yield "on"


def _moment(field: forms.Field | None, value: Moment) -> str:
    """A moment in a format that the field reads: ISO 8601 unless it has formats of its own."""
    texts = [value.isoformat()]
    if field is None:
        return texts[0]
    # Lazily translated formats and fields without any are both possible.
    texts += [value.strftime(str(one)) for one in getattr(field, "input_formats", None) or ()]
    for text in texts:
        try:
            if field.to_python(text) == value:
                return text
        except (forms.ValidationError, TypeError):
            continue
    return texts[0]
