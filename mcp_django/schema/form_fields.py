"""Form controls for a JSON Schema: the control for each value, and the parser of its input.

Text, numbers, dates, booleans, choices and lists of these have controls, and so do objects that are
one level deep. Values that are nested deeper or have alternative structures are entered as JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.validators import MaxLengthValidator, MinLengthValidator, validate_email
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime, parse_time
from django.utils.translation import gettext_lazy as _

from mcp_django.protocol.jsonrpc import encode
from mcp_django.schema.compiled import CompiledSchema
from mcp_django.schema.structure import Schema, number_bounds, resolve_reference
from mcp_django.schema.values import finite_float, is_too_deep

_SCALARS = frozenset({"string", "integer", "number", "boolean"})
_FORMATS: Mapping[str, str] = {
    "date": "date",
    "date-time": "datetime",
    "time": "time",
    "email": "email",
    "uri": "uri",
    "password": "secret",
}
BOOLEAN_WORDS: Mapping[str, bool] = {
    **dict.fromkeys(("true", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "no", "n", "off", "0"), False),
}
# Lists of these are entered as JSON.
_NOT_IN_LISTS = frozenset({"json", "object", "choices", "lines", "file", "secret"})
_LENGTHS = {"minLength": MinLengthValidator, "maxLength": MaxLengthValidator}
# Longer text gets a multi-line control.
_MAX_LINE = 255
# Maximum length of a chain of references; legitimate schemas have shorter ones.
_MAX_REFERENCES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldShape:
    """The form control for a value; ``schema`` has no references and no null.

    ``choices`` are pairs of value and title, ``element`` is the shape of the items of a list, and
    ``members`` are the fields of an object.
    """

    kind: str
    schema: Schema
    is_nullable: bool = False
    choices: tuple[tuple[Any, str], ...] = ()
    element: FieldShape | None = None
    members: tuple[FormField, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether empty text is a value, different from no value."""
        return self.kind in ("text", "long", "secret", "file")


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One property of an object, as a field that a user fills in."""

    name: str
    shape: FieldShape
    is_required: bool

    @property
    def label(self) -> str:
        """The title, or else the name."""
        return str(self.shape.schema.get("title") or self.name)


def fields_of(
    schema: Schema, root: Schema | None = None, *, can_nest: bool = True
) -> tuple[FormField, ...]:
    """Return the fields of an object, in the order of its schema.

    ``root`` is the schema that contains this schema, for references.
    """
    properties, required = schema.get("properties"), schema.get("required", ())
    shapes = {
        name: field_shape(member, schema if root is None else root, can_nest=can_nest)
        for name, member in (properties if isinstance(properties, dict) else {}).items()
    }
    return tuple(
        FormField(name=name, shape=shape, is_required=name in required)
        for name, shape in shapes.items()
    )


def field_shape(schema: Any, root: Schema, *, can_nest: bool = True) -> FieldShape:
    """Return the shape of a schema; ``can_nest`` is false inside an object."""
    if not isinstance(schema, dict):
        return FieldShape(kind="json", schema={})
    settled, is_nullable = _resolve_schema(schema, root)
    choices = choices_of(settled)
    if choices and any(value is None for value, _ in choices):
        is_nullable = True
        choices = [choice for choice in choices if choice[0] is not None]
    if choices:
        return FieldShape(
            kind="choice", schema=settled, is_nullable=is_nullable, choices=tuple(choices)
        )
    kind, details = _control_kind(settled, root, can_nest=can_nest)
    return FieldShape(kind=kind, schema=settled, is_nullable=is_nullable, **details)


def display_text(value: Any) -> str:
    """Return a value as text for display."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def choices_of(schema: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """Return the choices as pairs of value and title; empty if the values are not enumerated."""
    if "const" in schema:
        return [(schema["const"], display_text(schema["const"]))]
    members = schema.get("oneOf") or schema.get("anyOf")
    if members and all(isinstance(member, dict) and "const" in member for member in members):
        return [
            (member["const"], str(member.get("title") or display_text(member["const"])))
            for member in members
        ]
    values = schema.get("enum")
    if not isinstance(values, list):
        return []
    titles = schema.get("enumNames")
    if not isinstance(titles, list) or len(titles) != len(values):
        titles = [display_text(value) for value in values]
    return [(value, str(title)) for value, title in zip(values, titles, strict=True)]


def _control_kind(schema: Schema, root: Schema, *, can_nest: bool) -> tuple[str, dict[str, Any]]:
    if schema.get("anyOf") or schema.get("oneOf"):
        members = schema.get("anyOf") or schema.get("oneOf") or ()
        kinds = {
            _resolve_schema(member, root)[0].get("type")
            for member in members
            if isinstance(member, dict)
        }
        return ("mixed" if kinds <= _SCALARS else "json"), {}
    kind = schema.get("type")
    if isinstance(kind, list):
        return ("mixed" if set(kind) <= _SCALARS else "json"), {}
    if kind == "string":
        return _text_kind(schema), {}
    if kind in _SCALARS:
        return str(kind), {}
    if kind == "array":
        item_shape = field_shape(schema.get("items"), root, can_nest=False)
        if item_shape.is_nullable or item_shape.kind in _NOT_IN_LISTS:
            return "json", {}
        if item_shape.kind == "choice":
            return "choices", {"choices": item_shape.choices}
        return "lines", {"element": item_shape}
    properties = schema.get("properties")
    if kind == "object" and isinstance(properties, dict) and properties and can_nest:
        return "object", {"members": fields_of(schema, root, can_nest=False)}
    return "json", {}


def _text_kind(schema: Schema) -> str:
    if schema.get("writeOnly"):
        return "secret"
    if schema.get("contentEncoding") == "base64":
        return "file"
    kind = _FORMATS.get(str(schema.get("format")))
    if kind is not None:
        return kind
    if "format" in schema or "pattern" in schema:
        return "text"
    limit = schema.get("maxLength")
    return "text" if isinstance(limit, int) and limit <= _MAX_LINE else "long"


def _resolve_schema(schema: Schema, root: Schema) -> tuple[Schema, bool]:
    """Return the schema with its references resolved, and whether it also allows null."""
    is_nullable = False
    for _step in range(_MAX_REFERENCES):
        if "$ref" in schema:
            target = resolve_reference(root, str(schema["$ref"]))
            schema = _merge_target(target, schema, "$ref")
        elif len(schema.get("allOf") or ()) == 1:
            schema = _merge_target(schema["allOf"][0], schema, "allOf")
        else:
            keyword = next((name for name in ("anyOf", "oneOf") if schema.get(name)), "")
            members = schema.get(keyword, ())
            others = [
                member
                for member in members
                if not isinstance(member, dict)
                or (member.get("type") != "null" and member.get("const", "") is not None)
            ]
            is_nullable = is_nullable or len(others) < len(members)
            if not keyword or len(others) == len(members) > 1:
                break
            if len(others) != 1:
                schema = {**schema, keyword: others}
                break
            schema = _merge_target(others[0], schema, keyword)
    kinds = schema.get("type")
    if isinstance(kinds, list) and "null" in kinds:
        other_kinds = [kind for kind in kinds if kind != "null"]
        return {**schema, "type": other_kinds[0] if len(other_kinds) == 1 else other_kinds}, True
    return schema, is_nullable


def _merge_target(target: Any, schema: Schema, keyword: str) -> Schema:
    around = {key: value for key, value in schema.items() if key != keyword}
    return {**target, **around} if isinstance(target, dict) else around


# Parsing the entered text -------------------------------------------------------------------------

# The server validates everything again. Input is rejected here if it cannot be sent, or to save a
# round trip.


def parse_input(shape: FieldShape, text: str) -> Any:
    """Return the value of an entered text for a shape.

    Raises:
        ValidationError: the text is not valid for the shape.
    """
    return _PARSERS[shape.kind](text, shape)


def _text(text: str, shape: FieldShape) -> str:
    for keyword, validator in (
        ("minLength", MinLengthValidator),
        ("maxLength", MaxLengthValidator),
    ):
        if keyword in shape.schema:
            validator(shape.schema[keyword])(text)
    return text


def _email(text: str, shape: FieldShape) -> str:
    validate_email(text.strip())
    return text.strip()


def _integer(text: str, shape: FieldShape) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValidationError(_("Enter a whole number.")) from None
    return int(_check_bounds(value, shape))


def _float(text: str, shape: FieldShape) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValidationError(_("Enter a number."))
    # Send 5 as it was entered, not as 5.0.
    is_whole = value.is_integer() and abs(value) < 2**53
    return _check_bounds(int(value) if is_whole else value, shape)


def _check_bounds(value: float, shape: FieldShape) -> float:
    low, high = number_bounds(shape.schema)
    if value < low:
        raise ValidationError(_("Enter a number of at least %(limit)s."), params={"limit": low})
    if value > high:
        raise ValidationError(_("Enter a number of at most %(limit)s."), params={"limit": high})
    return value


def _text_for(parse: Callable[[str], Any], otherwise: Any) -> Callable[[str, FieldShape], str]:
    """Return a parser for text that ``parse`` can read; only blanks around it are removed."""

    def read(text: str, shape: FieldShape) -> str:
        _parse_with(text, parse, otherwise)
        return text.strip()

    return read


def _datetime(text: str, shape: FieldShape) -> str:
    """Return a date and time in ISO 8601; text without an offset is in the site's time zone."""
    message = _("Enter a date and a time, such as 2026-03-01T14:30.")
    value: datetime = _parse_with(text, parse_datetime, message)
    if settings.USE_TZ and timezone.is_naive(value):
        value = timezone.make_aware(value)
    return value.isoformat()


def _parse_with(text: str, parse: Callable[[str], Any], otherwise: Any) -> Any:
    try:
        value = parse(text.strip())
    except ValueError:
        value = None
    if value is None:
        raise ValidationError(otherwise)
    return value


def _boolean(text: str, shape: FieldShape) -> bool:
    value = BOOLEAN_WORDS.get(text.strip().lower())
    if value is None:
        raise ValidationError(_("Enter true or false."))
    return value


def _lines(text: str, shape: FieldShape) -> list[Any]:
    item_shape = shape.element
    assert item_shape is not None
    # Whitespace may be significant in text; empty lines are ignored.
    lines = [line for line in text.split("\n") if line.strip()]
    return [parse_input(item_shape, line) for line in lines]


def _json(text: str, shape: FieldShape) -> Any:
    value = _parse_json(text)
    try:
        problems = CompiledSchema(shape.schema, what="schema").find_problems(value)
    except ImproperlyConfigured:
        # The schema has references into the root schema; the server validates the value anyway.
        problems = ()
    if problems:
        raise ValidationError([str(problem) for problem in problems])
    return value


def _parse_json(text: str) -> Any:
    """Return the JSON value of a text.

    Raises:
        ValidationError: the text is not valid JSON, or the value cannot be sent.
    """
    try:
        value = json.loads(text, parse_float=finite_float, parse_constant=finite_float)
        raw = encode(value)
    except (ValueError, OverflowError, RecursionError):
        raise ValidationError(_("Enter valid JSON.")) from None
    if is_too_deep(raw, value):
        raise ValidationError(_("This is nested too deep."))
    return value


def _mixed(text: str, shape: FieldShape) -> Any:
    """Return the text parsed as JSON if its type is allowed, else the text: `"5"` is a string."""
    members = shape.schema.get("anyOf") or shape.schema.get("oneOf")
    declared = shape.schema.get("type") if members is None else [m.get("type") for m in members]
    kinds = set(declared) if isinstance(declared, list) else {declared}
    try:
        value = _parse_json(text)
    except ValidationError:
        value = text
    fits = {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
    }
    if any(fits.get(str(kind)) for kind in kinds):
        return value
    if "string" in kinds:
        return text
    raise ValidationError(
        _("Enter a value of one of these types: %(kinds)s."),
        params={"kinds": ", ".join(sorted(map(str, kinds)))},
    )


_PARSERS: Mapping[str, Callable[[str, FieldShape], Any]] = {
    "text": _text,
    "long": _text,
    "secret": _text,
    "integer": _integer,
    "number": _float,
    "boolean": _boolean,
    "date": _text_for(parse_date, _("Enter a date, such as 2026-03-01.")),
    "datetime": _datetime,
    "time": _text_for(parse_time, _("Enter a time, such as 14:30.")),
    "email": _email,
    "uri": _text_for(lambda uri: urlsplit(uri).scheme or None, _("Enter a URI.")),
    "lines": _lines,
    "json": _json,
    # Not validated here, so that the user can see how the server rejects invalid arguments.
    "whole": lambda text, shape: _parse_json(text),
    "mixed": _mixed,
}
