"""The schema of one Django form field, and a JSON value in the form that the field reads.

The database is not touched: a choice among rows is described by the type of its key, and choices
that are computed are checked when the form is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from django.core.exceptions import ImproperlyConfigured
from django.utils.choices import CallableChoiceIterator, flatten_choices
from django.utils.dateparse import parse_date, parse_datetime, parse_time

from mcp_django.schema.fields import bounded, choice_schema, decimal_schema, key_schema
from mcp_django.schema.rewriting import RULES
from mcp_django.schema.structure import Schema


def field_schema(field: forms.Field) -> Schema:
    """Return the schema of the values that a field accepts.

    Raises:
        ImproperlyConfigured: no JSON value can fill such a field.
    """
    for kind in type(field).__mro__:
        if kind in _SCHEMAS:
            return _SCHEMAS[kind](field)
    return {"type": "string"}


def form_value(field: forms.Field, value: Any) -> Any:
    """Return a JSON value as the field's widget would hand it over."""
    for kind in type(field).__mro__:
        if kind in _VALUES:
            return _VALUES[kind](value)
    return [_text_of(item) for item in value] if isinstance(value, list) else _text_of(value)


def _text_of(value: Any) -> Any:
    """Return numbers as text, as some fields expect it from HTML."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


def _string(**more: Any) -> Callable[[Any], Schema]:
    return lambda field: _text(field) | more


def _text(field: Any) -> Schema:
    return bounded({"type": "string"}, minLength=field.min_length, maxLength=field.max_length)


def _plain(**schema: Any) -> Callable[[Any], Schema]:
    return lambda field: dict(schema)


def _number(kind: str) -> Callable[[Any], Schema]:
    return lambda field: bounded({"type": kind}, minimum=field.min_value, maximum=field.max_value)


def _boolean(field: Any) -> Schema:
    # A required checkbox is one that has to be ticked.
    return {"type": "boolean"} | ({RULES: "true"} if field.required else {})


def _choice(field: Any) -> Schema:
    if isinstance(field.choices, CallableChoiceIterator):
        return {"type": "string"}
    return choice_schema(flatten_choices(field.choices))


def _row(field: Any) -> Schema:
    options = field.queryset.model._meta
    name = field.to_field_name
    return key_schema(options.get_field(name) if name else options.pk)


def _array_of(item: Callable[[Any], Schema]) -> Callable[[Any], Schema]:
    return lambda field: {"type": "array", "items": item(field)}


def _refuse(field: Any) -> Schema:
    raise ImproperlyConfigured(
        f"A {type(field).__name__} cannot be filled with JSON. Leave it out of the form, or take "
        "its contents in fields of their own."
    )


_SCHEMAS: Mapping[type, Callable[[Any], Schema]] = {
    forms.CharField: _text,
    forms.EmailField: _string(format="email"),
    forms.URLField: _string(format="uri"),
    forms.SlugField: _text,
    forms.UUIDField: _plain(type="string", format="uuid"),
    forms.JSONField: _plain(),
    forms.IntegerField: _number("integer"),
    forms.FloatField: _number("number"),
    forms.DecimalField: decimal_schema,
    forms.BooleanField: _boolean,
    forms.NullBooleanField: _plain(type="boolean"),
    forms.DateField: _plain(type="string", format="date"),
    forms.DateTimeField: _plain(type="string", format="date-time"),
    forms.SplitDateTimeField: _plain(type="string", format="date-time"),
    forms.TimeField: _plain(type="string", format="time"),
    forms.DurationField: _plain(type="string", format="duration"),
    forms.ChoiceField: _choice,
    forms.MultipleChoiceField: _array_of(_choice),
    forms.ModelChoiceField: _row,
    forms.ModelMultipleChoiceField: _array_of(_row),
    forms.MultiValueField: _refuse,
    forms.FileField: _refuse,
}


def _parsed(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    """A field may read other formats only; ISO 8601 is what the schema asks for."""

    def convert(value: Any) -> Any:
        text = str(value)
        try:
            return parse(text) or text
        except ValueError:
            return text

    return convert


_VALUES: Mapping[type, Callable[[Any], Any]] = {
    forms.JSONField: json.dumps,
    forms.DateField: _parsed(parse_date),
    forms.DateTimeField: _parsed(parse_datetime),
    forms.SplitDateTimeField: _parsed(parse_datetime),
    forms.TimeField: _parsed(parse_time),
}
