"""Arguments that are declared and validated by a REST framework serializer.

The function receives the valid serializer as `serializer`: `serializer.validated_data` to read,
`serializer.save()` to write. Read-only fields are not arguments. REST framework is optional, and
this is the only module of the package that imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from rest_framework import fields, relations, serializers
from rest_framework.settings import api_settings

from mcp_django.protocol.headers import map_subschemas
from mcp_django.schema.arguments import (
    MAX_KEPT_PROBLEMS,
    MISSING,
    InvalidArguments,
    ValidationProblem,
    format_path,
)
from mcp_django.schema.django_forms import (
    add_bounds,
    add_default,
    add_description,
    choice_schema,
    constant_schema,
    decimal_schema,
    key_schema,
    number_schema,
)
from mcp_django.schema.portable import portable_input
from mcp_django.schema.structure import Path, Schema, schemas_at
from mcp_django.schema.values import decode_arguments, drop_nulls, unknown_members


class SerializerArguments:
    """Parses arguments with a serializer class."""

    def __init__(self, serializer_class: type[serializers.BaseSerializer[Any]]) -> None:
        self._serializer_class = serializer_class
        try:
            self._shape = _field_schema(serializer_class())
            self.json_schema = portable_input(self._shape)
        except (ImproperlyConfigured, ValueError) as exc:
            raise ImproperlyConfigured(f"{serializer_class.__qualname__}: {exc}") from exc

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the valid serializer under the name `serializer`; may query the database.

        Raises:
            InvalidArguments: the data is not valid; the model can correct the call.
        """
        arguments = drop_nulls(decode_arguments(raw), self._shape, self._shape)
        if problems := [*islice(unknown_members(arguments, self._shape), MAX_KEPT_PROBLEMS)]:
            raise InvalidArguments(problems)
        serializer = self._serializer_class(data=arguments)
        if not serializer.is_valid():
            raise InvalidArguments(explain_errors(serializer.errors, arguments, self._shape))
        return {"serializer": serializer}


def serializer_schema(
    serializer: serializers.Serializer[Any], *, without: Iterable[str] = (), partial: bool = False
) -> Schema:
    """Return the JSON Schema of a serializer's writable fields, not yet portable.

    `partial` is for updates: no field is required, and an omitted field keeps its value instead of
    getting its default.

    Raises:
        ImproperlyConfigured: a field cannot be filled from JSON.
    """
    shape = _serializer_schema(serializer, without=frozenset(without))
    return _make_partial(shape) if partial else shape


def writable_fields(serializer: Any) -> dict[str, fields.Field[Any, Any, Any, Any]]:
    """Return the fields of a serializer that a caller can set."""
    return {
        name: field
        for name, field in serializer.fields.items()
        if not (field.read_only or isinstance(field, fields.HiddenField))
    }


def explain_errors(
    errors: Any, data: Any, shape: Schema, path: Path = ()
) -> Iterator[ValidationProblem]:
    """Yield problems for REST framework's nested dicts and lists of errors."""
    if isinstance(errors, dict):
        for step, inner in errors.items():
            is_own = step == api_settings.NON_FIELD_ERRORS_KEY
            yield from explain_errors(inner, data, shape, path if is_own else (*path, step))
        return
    for index, error in enumerate(errors if isinstance(errors, list | tuple) else [errors]):
        if isinstance(error, dict | list):
            yield from explain_errors(error, data, shape, (*path, index))
        else:
            # A custom exception handler may have converted the error to plain text.
            is_missing = getattr(error, "code", "") == "required"
            yield ValidationProblem(
                path=format_path(path),
                value=_value_at(data, shape, path),
                message="is required" if is_missing else str(error).rstrip("."),
            )


def _make_partial(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    rules = {name: rule for name, rule in schema.items() if name not in {"required", "default"}}
    return map_subschemas(rules, _make_partial)


def _field_schema(field: Any) -> Schema:
    for kind in type(field).__mro__:
        if kind in _SCHEMAS:
            schema = _SCHEMAS[kind](field)
            return {"anyOf": [schema, {"type": "null"}]} if field.allow_null else schema
    return {}


def _serializer_schema(serializer: Any, *, without: frozenset[str] = frozenset()) -> Schema:
    writable = {
        name: field for name, field in writable_fields(serializer).items() if name not in without
    }
    properties = {}
    for name, field in writable.items():
        try:
            schema = _field_schema(field)
        except ImproperlyConfigured as exc:
            raise ImproperlyConfigured(f"{name}: {exc}") from exc
        if field.style.get("input_type") == "password":
            schema = {**schema, "writeOnly": True}
        if field.default is not fields.empty and not callable(field.default):
            schema = add_default(schema, field.default)
        properties[name] = add_description(
            schema, name, label=field.label, help_text=field.help_text
        )
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name, field in writable.items() if field.required],
        "additionalProperties": False,
    }


def _text(field: Any) -> Schema:
    shortest = field.min_length or (None if field.allow_blank else 1)
    return add_bounds({"type": "string"}, minLength=shortest, maxLength=field.max_length)


def _string(**more: Any) -> Callable[[Any], Schema]:
    return lambda field: _text(field) | more


def _choices(field: Any) -> Schema:
    return choice_schema(field.choices.items())


def _related_key_schema(field: Any) -> Schema:
    if field.pk_field is not None:
        return _field_schema(field.pk_field)
    return {} if field.queryset is None else key_schema(field.queryset.model._meta.pk)


def _slug(field: Any) -> Schema:
    if field.queryset is None:
        return {}
    return key_schema(field.queryset.model._meta.get_field(field.slug_field))


def _array_of(item_schema: Schema, field: Any) -> Schema:
    shortest = getattr(field, "min_length", None) or (None if field.allow_empty else 1)
    longest = getattr(field, "max_length", None)
    return add_bounds({"type": "array", "items": item_schema}, minItems=shortest, maxItems=longest)


def _unsupported_field(field: Any) -> Schema:
    raise ImproperlyConfigured(
        f"a {type(field).__name__} cannot be filled from JSON. Remove it from the serializer, or "
        "use separate fields for its contents."
    )


_SCHEMAS: Mapping[type, Callable[[Any], Schema]] = {
    serializers.Serializer: _serializer_schema,
    serializers.ListSerializer: lambda field: _array_of(_field_schema(field.child), field),
    fields.BooleanField: constant_schema(type="boolean"),
    fields.CharField: _text,
    fields.EmailField: _string(format="email"),
    fields.URLField: _string(format="uri"),
    fields.UUIDField: constant_schema(type="string", format="uuid"),
    fields.IntegerField: number_schema("integer"),
    fields.FloatField: number_schema("number"),
    fields.DecimalField: decimal_schema,
    fields.DateTimeField: constant_schema(type="string", format="date-time"),
    fields.DateField: constant_schema(type="string", format="date"),
    fields.TimeField: constant_schema(type="string", format="time"),
    fields.DurationField: constant_schema(type="string", format="duration"),
    fields.ChoiceField: _choices,
    fields.MultipleChoiceField: lambda field: _array_of(_choices(field), field),
    fields.ListField: lambda field: _array_of(_field_schema(field.child), field),
    fields.DictField: lambda field: {
        "type": "object",
        "additionalProperties": _field_schema(field.child),
    },
    fields.FileField: _unsupported_field,
    relations.PrimaryKeyRelatedField: _related_key_schema,
    relations.SlugRelatedField: _slug,
    relations.HyperlinkedRelatedField: constant_schema(type="string", format="uri"),
    relations.ManyRelatedField: lambda field: _array_of(_field_schema(field.child_relation), field),
}


def _value_at(data: Any, shape: Schema, path: Path) -> Any:
    for step in path:
        if isinstance(data, dict):
            data = data.get(step, MISSING)
        else:
            data = data[step] if isinstance(data, list) and isinstance(step, int) else MISSING
    is_secret = any(schema.get("writeOnly") for schema in schemas_at(shape, path))
    return MISSING if is_secret or isinstance(data, dict | list) else data
