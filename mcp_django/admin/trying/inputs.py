"""Django's form fields for the shapes of values, and how they show a value that is there."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _

from mcp_django.schema.form_fields import Shape, bounds, number_in, reader_of, title_of

LEAVE, NULL, EMPTY = "leave", "null", "empty"
BLANK = object()
"""Stands for a field that was left empty, where empty text is a value that can be typed."""
# A choice is marked, so that no value of the site's is taken for one of the words above.
MARK = "="
MAX_FILE_BYTES = 5 * 1024 * 1024


class TextInput(forms.CharField):
    """Text as it was typed, with one kind of line ends."""

    def __init__(self, **options: Any) -> None:
        super().__init__(strip=False, required=False, **options)

    def to_python(self, value: Any) -> str:
        """Browsers end the lines of a text area in two characters."""
        text = super().to_python(value) or ""
        return text.replace("\r\n", "\n").replace("\r", "\n")


class ParsedInput(TextInput):
    """Text that stands for something else."""

    def __init__(self, read: Callable[[str], Any], **options: Any) -> None:
        super().__init__(**options)
        self._read = read

    def clean(self, value: Any) -> Any:
        """What the text stands for, ``BLANK`` without any.

        Raises:
            ValidationError: it stands for nothing of the kind.
        """
        text = super().clean(value)
        return self._read(text) if text.strip() else BLANK


class FileInput(forms.FileField):
    """A file as text in base64."""

    def clean(self, data: Any, initial: Any = None) -> Any:
        """The content of the file, or empty text without one.

        Raises:
            ValidationError: it is too large.
        """
        uploaded = super().clean(data, initial)
        if not uploaded:
            return ""
        if uploaded.size > MAX_FILE_BYTES:
            raise ValidationError(_("The file is too large to be sent from here."))
        return base64.b64encode(uploaded.read()).decode()


def input_for(shape: Shape, *, meanings: tuple[str, ...] = ()) -> forms.Field:
    """The field for a shape; ``meanings`` are those that a choice has beside its values."""
    if shape.kind in ("choice", "boolean"):
        return forms.ChoiceField(required=False, choices=[*_words(meanings), *options_of(shape)])
    if shape.kind == "choices":
        return forms.MultipleChoiceField(
            required=False, choices=options_of(shape), widget=forms.CheckboxSelectMultiple
        )
    if shape.kind == "file":
        return FileInput(required=False, allow_empty_file=True)
    if shape.kind in WIDGETS:
        kind, attrs = WIDGETS[shape.kind]
        widget = kind(attrs={**attrs, **_limits(shape)})
        return TextInput(
            widget=widget,
            min_length=_natural(shape, "minLength"),
            max_length=_natural(shape, "maxLength"),
        )
    return ParsedInput(reader_of(shape), widget=_widget(shape))


def options_of(shape: Shape) -> list[tuple[str, Any]]:
    """The options of a choice, marked."""
    if shape.kind == "boolean":
        return [(f"{MARK}true", _("Yes")), (f"{MARK}false", _("No"))]
    return [(option_of(value), title) for value, title in shape.choices]


def option_of(value: Any) -> str:
    """How a value is written as an option."""
    return MARK + (value if isinstance(value, str) else json.dumps(value))


def chosen_value(shape: Shape, option: str) -> Any:
    """The value of an option."""
    if shape.kind == "boolean":
        return option == f"{MARK}true"
    return next(value for value, _title in shape.choices if option_of(value) == option)


def _words(meanings: tuple[str, ...]) -> list[tuple[str, Any]]:
    # Without one the first value would be chosen by whoever looks at nothing.
    words = {LEAVE: _("(left out)"), NULL: _("(null)")}
    return [(one, words[one]) for one in meanings] or [("", _("(choose)"))]


WIDGETS: Mapping[str, tuple[Callable[..., forms.Widget], dict[str, Any]]] = {
    "text": (forms.TextInput, {"class": "vTextField", "autocomplete": "off", "dir": "auto"}),
    "long": (forms.Textarea, {"class": "vLargeTextField mcp-growing", "rows": 1, "dir": "auto"}),
    "secret": (forms.PasswordInput, {"class": "vTextField", "autocomplete": "new-password"}),
}


class _Typed(forms.TextInput):
    """An input of a type that browsers have a control for."""

    def __init__(self, input_type: str, **attrs: Any) -> None:
        super().__init__(attrs={"class": "mcp-typed", **attrs})
        self.input_type = input_type


def _widget(shape: Shape) -> forms.Widget:
    if shape.kind in ("json", "whole"):
        return forms.Textarea(
            {"class": "vLargeTextField mcp-json", "rows": 5, "spellcheck": "false", "dir": "ltr"}
        )
    if shape.kind == "lines":
        return forms.Textarea({"class": "vLargeTextField mcp-growing", "rows": 3, "dir": "auto"})
    if shape.kind in ("integer", "number"):
        return _Typed("number", **_number_limits(shape))
    types = {"date": "date", "datetime": "datetime-local", "time": "time"}
    types |= {"email": "email", "uri": "url"}
    # Browsers leave out seconds unless they are asked for them.
    step = {"step": "1"} if shape.kind in ("datetime", "time") else {}
    return _Typed(types.get(shape.kind, "text"), **step)


def _limits(shape: Shape) -> dict[str, Any]:
    return {
        name.lower(): shape.schema[name]
        for name in ("minLength", "maxLength")
        if _natural(shape, name) is not None
    }


def _natural(shape: Shape, keyword: str) -> int | None:
    value = shape.schema.get(keyword)
    return value if isinstance(value, int) and value >= 0 else None


def _number_limits(shape: Shape) -> dict[str, Any]:
    low, high = bounds(shape)
    step = number_in(shape.schema, "multipleOf", 0)
    found: dict[str, Any] = {"step": step or ("1" if shape.kind == "integer" else "any")}
    if math.isfinite(low):
        found["min"] = low
    if math.isfinite(high):
        found["max"] = high
    return found


def typed(shape: Shape, value: Any) -> Any:
    """A value as the field for its shape shows it."""
    if shape.kind in ("choice", "boolean"):
        return option_of(value)
    if shape.kind == "choices" and isinstance(value, list):
        return [option_of(one) for one in value]
    if shape.kind == "lines" and isinstance(value, list):
        return "\n".join(title_of(one) for one in value)
    if shape.kind in ("json", "whole", "mixed"):
        plain = value if shape.kind == "mixed" and isinstance(value, str) else None
        return plain or json.dumps(value, ensure_ascii=False, indent=2)
    if shape.kind == "datetime":
        return _local(str(value))
    return "" if shape.kind in ("secret", "file") else title_of(value)


def _local(text: str) -> str:
    try:
        found: datetime | None = parse_datetime(text)
    except ValueError:
        found = None
    if found is None:
        return text
    if settings.USE_TZ and timezone.is_aware(found):
        found = timezone.make_naive(found)
    return found.isoformat(timespec="seconds")
