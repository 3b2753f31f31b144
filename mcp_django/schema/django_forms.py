"""Arguments that are declared and validated by a Django form.

The function receives the bound, valid form as ``form``: ``form.cleaned_data`` to read,
``form.save()`` for a model form. As in HTML, disabled fields have no argument, and an omitted
argument takes the field's initial value.

Creating the schema does not query the database: a model choice is described by the type of its
key, and computed choices are validated with the form.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS, ImproperlyConfigured
from django.db import models
from django.forms.utils import pretty_name
from django.utils.choices import CallableChoiceIterator, flatten_choices
from django.utils.dateparse import parse_date, parse_datetime, parse_time
from django.utils.html import strip_tags

from mcp_django.conf import get_settings
from mcp_django.schema.arguments import (
    MAX_KEPT_PROBLEMS,
    MISSING,
    InvalidArguments,
    ValidationProblem,
    to_json_text,
)
from mcp_django.schema.deferred import runs_own_code
from mcp_django.schema.portable import portable_input
from mcp_django.schema.problems import type_error_rule
from mcp_django.schema.structure import JSON_TYPES, Schema
from mcp_django.schema.values import decode_arguments, drop_nulls, jsonable, unknown_members
from mcp_django.schema.vocabulary import LARGE_INTEGER, RULES_KEYWORD, append_sentence

FormClass = type[forms.BaseForm]


class FormArguments:
    """Parses arguments with a form class, which may be a model form.

    With ``is_created_by_view``, a view creates the form and may pass more than data. ``excluded``
    names fields that have no argument.
    """

    def __init__(
        self,
        form_class: FormClass,
        *,
        is_created_by_view: bool = False,
        excluded: Collection[str] = (),
    ) -> None:
        if not is_created_by_view:
            check_constructor(form_class)
        self._form_class = form_class
        self._fields = {
            name: field
            for name, field in form_fields(form_class).items()
            if not field.disabled and name not in excluded
        }
        properties: dict[str, Schema] = {}
        required: list[str] = []
        for name, field in self._fields.items():
            try:
                schema = field_schema(field)
            except ImproperlyConfigured as exc:
                raise ImproperlyConfigured(f"{form_class.__qualname__}.{name}: {exc}") from exc
            if field.initial is None:
                required += [name] if field.required else []
            elif not callable(field.initial):
                schema = add_default(schema, field.prepare_value(field.initial))
            if isinstance(field.widget, forms.PasswordInput):
                schema = {**schema, "writeOnly": True}
            properties[name] = add_description(
                schema, name, label=field.label, help_text=field.help_text
            )
        self._shape: Schema = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
        self.json_schema = portable_input(self._shape)

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the valid form under the name `form`; may query the database.

        Raises:
            InvalidArguments: the form is not valid; the model can correct the call.
        """
        arguments = self.check_members(decode_arguments(raw))
        form = self._form_class(data=self.form_data(arguments, prefix=self._form_class.prefix))
        if not form.is_valid():
            raise InvalidArguments(self.form_problems(form, arguments))
        return {"form": form}

    def check_members(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments after checking names and types; the form is not validated.

        Raises:
            InvalidArguments: a name is unknown or a type is wrong.
        """
        values: dict[str, Any] = drop_nulls(arguments, self._shape, self._shape)
        problems = [*islice(unknown_members(values, self._shape), MAX_KEPT_PROBLEMS)]
        for name, value in values.items():
            rule = type_error_rule(value, self.json_schema["properties"].get(name, {}))
            if rule is not None:
                problems.append(ValidationProblem(path=name, value=value, message=rule))
        if problems:
            raise InvalidArguments(problems)
        return values

    def form_data(self, arguments: dict[str, Any], *, prefix: str | None = None) -> dict[str, Any]:
        """Return the data that the form's widgets would submit, by the names of the inputs."""
        data: dict[str, Any] = {}
        for name, field in self._fields.items():
            if name in arguments:
                value = _form_value(field, arguments[name])
            else:
                initial = field.initial() if callable(field.initial) else field.initial
                value = field.prepare_value(initial)
            key = f"{prefix}-{name}" if prefix else name
            if value is not None:
                data |= widget_entries(field.widget, key, value)
        return data

    def form_problems(
        self, form: forms.BaseForm, arguments: dict[str, Any]
    ) -> Iterator[ValidationProblem]:
        """Yield the errors of the form as problems of the arguments."""
        for name, errors in form.errors.get_json_data().items():
            schema = self._shape["properties"].get(name, {})
            is_shown = name in arguments and not schema.get("writeOnly")
            for error in errors:
                yield ValidationProblem(
                    path="" if name == NON_FIELD_ERRORS else name,
                    value=arguments[name] if is_shown else MISSING,
                    message=_rule_text(error),
                )


def widget_entries(widget: forms.Widget, key: str, value: Any) -> dict[str, Any]:
    """Return the data that a widget would submit for a value, by the names of its inputs."""
    if not isinstance(widget, forms.MultiWidget):
        return {key: value}
    # Text that could not be parsed is passed to every input, so that the form reports it.
    suffixes: list[str] = widget.widgets_names  # type: ignore[attr-defined]
    parts = [value] * len(suffixes) if isinstance(value, str) else widget.decompress(value) or []
    return {f"{key}{suffix}": part for suffix, part in zip(suffixes, parts, strict=True)}


def form_fields(form_class: FormClass) -> dict[str, forms.Field]:
    """Return the fields of a form class, or of an instance if the site's code overrides `__init__`.

    `__init__` may add fields, and set the queryset of a field that has none in the class. If it
    requires arguments, the fields are those of the class.
    """
    fields: dict[str, forms.Field] = form_class.base_fields  # type: ignore[attr-defined]
    if not runs_own_code(form_class, "__init__"):
        return fields
    try:
        inspect.signature(form_class).bind()
    except TypeError:
        return fields
    return dict(form_class().fields)


def check_constructor(form_class: FormClass) -> None:
    """Check that a form can be created from data alone.

    Raises:
        ImproperlyConfigured: the form has other parameters without defaults.
    """
    try:
        inspect.signature(form_class).bind(data={})
    except TypeError as exc:
        raise ImproperlyConfigured(
            f"{form_class.__qualname__} cannot be created from data alone ({exc}). Give its other "
            "parameters defaults, or write a function that creates the form."
        ) from exc


def _rule_text(error: dict[str, str]) -> str:
    return "is required" if error["code"] == "required" else error["message"].rstrip(".")


# The functions that form and serializer fields have in common.

MAX_LABELS = 40


def add_description(schema: Schema, name: str, *, label: Any, help_text: Any) -> Schema:
    """Return the schema with the label and the help text of the field as its description."""
    text = "" if label is None or _repeats_name(str(label), name) else str(label)
    for sentence in (strip_tags(str(help_text or "")), schema.get("description", "")):
        text = append_sentence(text, sentence) if sentence else text
    return {**schema, "description": text} if text else schema


def choice_schema(choices: Iterable[tuple[Any, Any]]) -> Schema:
    """Return an enumeration of values; the description has the labels that differ from them."""
    pairs = [
        (value if type(value) in JSON_TYPES else str(value), str(label))
        for value, label in choices
        if value not in ("", None)
    ]
    if not pairs:
        return {"type": "string"}
    schema: Schema = {"enum": [value for value, _ in pairs]}
    labels = [
        f"{to_json_text(value)} = {label}"
        for value, label in pairs
        if not _repeats_name(label, str(value))
    ]
    if 0 < len(labels) <= MAX_LABELS:
        schema["description"] = f"Values: {', '.join(labels)}."
    return schema


def key_schema(field: models.Field[Any, Any]) -> Schema:
    """Return the schema of the key that identifies a database object."""
    while isinstance(field, models.ForeignKey):
        field = field.target_field
    if isinstance(field, models.IntegerField):
        return dict(LARGE_INTEGER) if is_large_integer(field) else {"type": "integer"}
    return {"type": "string", **({"format": "uuid"} if isinstance(field, models.UUIDField) else {})}


def is_large_integer(field: models.Field[Any, Any]) -> bool:
    """Return whether a column may hold integers beyond 2^53-1, which JavaScript rounds.

    A sequence does not reach such values, so a `BigAutoField` counts only with the setting
    `LARGE_KEYS`.
    """
    if field.get_internal_type() == "BigAutoField":
        return get_settings().large_keys
    return field.get_internal_type() in {"BigIntegerField", "PositiveBigIntegerField"}


def decimal_schema(field: Any) -> Schema:
    """Return the schema of a decimal field, with bounds in words, as it is a string in JSON."""
    rules = [
        words.format(value)
        for words, value in (
            ("at least {}", field.min_value),
            ("at most {}", field.max_value),
            ("of at most {} digits", field.max_digits),
            ("of at most {} decimal places", field.decimal_places),
        )
        if value is not None
    ]
    schema = {"type": "string", "format": "decimal"}
    return {**schema, RULES_KEYWORD: ", ".join(rules)} if rules else schema


def constant_schema(**schema: Any) -> Callable[[Any], Schema]:
    """Return a function that returns the same schema for every field."""
    return lambda field: dict(schema)


def number_schema(kind: str) -> Callable[[Any], Schema]:
    """Return a function that returns the schema of a numeric field with its bounds."""
    return lambda field: add_bounds(
        {"type": kind}, minimum=field.min_value, maximum=field.max_value
    )


def add_bounds(schema: Schema, **bounds: Any) -> Schema:
    """Return the schema with the bounds that are not `None`."""
    return schema | {keyword: bound for keyword, bound in bounds.items() if bound is not None}


def add_default(schema: Schema, default: Any) -> Schema:
    """Return the schema with a default, unless JSON cannot represent the default."""
    try:
        return {**schema, "default": jsonable(default)}
    except (TypeError, ValueError):
        return schema


def _repeats_name(label: str, name: str) -> bool:
    return label.strip().casefold() in {name.casefold(), pretty_name(name).casefold()}


def field_schema(field: forms.Field) -> Schema:
    """Return the schema of the values that a field accepts.

    Raises:
        ImproperlyConfigured: no JSON value can fill such a field.
    """
    for kind in type(field).__mro__:
        if kind in _SCHEMAS:
            return _SCHEMAS[kind](field)
    return {"type": "string"}


def _form_value(field: forms.Field, value: Any) -> Any:
    """Return a JSON value in the form in which the field's widget would pass it to the field."""
    for kind in type(field).__mro__:
        if kind in _VALUE_CONVERTERS:
            return _VALUE_CONVERTERS[kind](value)
    return (
        [_number_to_text(element) for element in value]
        if isinstance(value, list)
        else _number_to_text(value)
    )


def _number_to_text(value: Any) -> Any:
    """Return a number as text, because some fields expect text as submitted by HTML."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


def _string(**more: Any) -> Callable[[Any], Schema]:
    return lambda field: _text(field) | more


def _text(field: Any) -> Schema:
    return add_bounds({"type": "string"}, minLength=field.min_length, maxLength=field.max_length)


def _boolean(field: Any) -> Schema:
    # A required checkbox must be checked.
    return {"type": "boolean"} | ({RULES_KEYWORD: "true"} if field.required else {})


def _choice(field: Any) -> Schema:
    if isinstance(field.choices, CallableChoiceIterator):
        return {"type": "string"}
    return choice_schema(flatten_choices(field.choices))


def _model_choice(field: Any) -> Schema:
    if field.queryset is None:
        # The form sets it in `__init__`, from arguments that only its view has.
        return {"type": ["integer", "string"], "description": "The key of one object."}
    options = field.queryset.model._meta
    name = field.to_field_name
    return key_schema(options.get_field(name) if name else options.pk)


def _array_of(item_schema: Callable[[Any], Schema]) -> Callable[[Any], Schema]:
    return lambda field: {"type": "array", "items": item_schema(field)}


def _unsupported_field(field: Any) -> Schema:
    raise ImproperlyConfigured(
        f"A {type(field).__name__} cannot be filled from JSON. Remove it from the form, or use "
        "separate fields for its contents."
    )


_SCHEMAS: Mapping[type, Callable[[Any], Schema]] = {
    forms.CharField: _text,
    forms.EmailField: _string(format="email"),
    forms.URLField: _string(format="uri"),
    forms.SlugField: _text,
    forms.UUIDField: constant_schema(type="string", format="uuid"),
    forms.JSONField: constant_schema(),
    forms.IntegerField: number_schema("integer"),
    forms.FloatField: number_schema("number"),
    forms.DecimalField: decimal_schema,
    forms.BooleanField: _boolean,
    forms.NullBooleanField: constant_schema(type="boolean"),
    forms.DateField: constant_schema(type="string", format="date"),
    forms.DateTimeField: constant_schema(type="string", format="date-time"),
    forms.SplitDateTimeField: constant_schema(type="string", format="date-time"),
    forms.TimeField: constant_schema(type="string", format="time"),
    forms.DurationField: constant_schema(type="string", format="duration"),
    forms.ChoiceField: _choice,
    forms.MultipleChoiceField: _array_of(_choice),
    forms.ModelChoiceField: _model_choice,
    forms.ModelMultipleChoiceField: _array_of(_model_choice),
    forms.MultiValueField: _unsupported_field,
    forms.FileField: _unsupported_field,
}


def _iso_parser(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Return a converter for ISO 8601, the format of the schema; fields may parse other formats."""

    def convert(value: Any) -> Any:
        text = str(value)
        try:
            return parse(text) or text
        except ValueError:
            return text

    return convert


_VALUE_CONVERTERS: Mapping[type, Callable[[Any], Any]] = {
    forms.JSONField: json.dumps,
    forms.DateField: _iso_parser(parse_date),
    forms.DateTimeField: _iso_parser(parse_datetime),
    forms.SplitDateTimeField: _iso_parser(parse_datetime),
    forms.TimeField: _iso_parser(parse_time),
}
