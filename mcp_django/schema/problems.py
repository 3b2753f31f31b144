"""Conversion of pydantic's validation errors to problems in the terms of the JSON that was sent.

pydantic reports a union once for each of its members, and its locations contain names of classes
and validators. This module follows each location through the data that was sent, drops the steps
that are not part of it, and reports only the closest alternative of a union.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mcp_django.schema.arguments import (
    MAX_KEPT_PROBLEMS,
    MISSING,
    ValidationProblem,
    format_path,
    to_json_text,
    unknown_argument_problem,
)
from mcp_django.schema.structure import Path, Schema, schemas_at
from mcp_django.schema.vocabulary import format_number

_UNKNOWN = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_CHOICE = frozenset({"enum", "literal_error"})
_ABSENT = frozenset({"missing", "missing_argument"})
_AUTHOR_ERRORS = frozenset({"value_error", "assertion_error"})
_KEY = "[key]"
_NOT_FOUND = object()


def explain_errors(
    exc: ValidationError, data: Any, schema: Schema
) -> tuple[ValidationProblem, ...]:
    """Return the problems of `data`; `schema` provides the known names and choices."""
    if exc.error_count() > MAX_KEPT_PROBLEMS:
        names = ", ".join(schema.get("properties", ())) or "none"
        message = f"the arguments have {exc.error_count()} errors; known: {names}"
        return (ValidationProblem(path="", message=message),)
    located = [_locate(details, data) for details in exc.errors(include_url=False)]
    # A union inside a union reports the same problem several times.
    return tuple({str(problem): problem for problem in _problems(located, schema)}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Located:
    details: ErrorDetails
    path: Path
    union: Path | None
    """The path of the outermost union, if there is one."""
    branch: str
    """The member of the union to which this error belongs."""


def _locate(details: ErrorDetails, data: Any) -> _Located:
    path: Path = ()
    union: Path | None = None
    branch = ""
    steps = details["loc"]
    for index, step in enumerate(steps):
        is_absent = index == len(steps) - 1 and details["type"] in _ABSENT
        # Some steps name a class or a validator, and no member of the data.
        inner: Any
        if isinstance(data, dict):
            inner = data.get(step, _NOT_FOUND)
        elif isinstance(data, str | int | float | None):
            inner = _NOT_FOUND
        elif isinstance(step, int):
            has_item = isinstance(data, list | tuple) and step < len(data)
            inner = data[step] if has_item else None
        else:
            inner = getattr(data, step, _NOT_FOUND)
        if inner is not _NOT_FOUND or is_absent:
            path, data = (*path, step), inner
        elif union is None and step != _KEY:
            union, branch = path, str(step)
    return _Located(details=details, path=path, union=union, branch=branch)


def _problems(located: list[_Located], schema: Schema) -> Iterator[ValidationProblem]:
    """Yield the problems; of a union, those of the alternative that is closest to the value."""
    seen: set[Path] = set()
    for first in located:
        if first.union is None:
            yield _problem(first, schema)
        if first.union is None or first.union in seen:
            continue
        seen.add(first.union)
        errors = [error for error in located if error.union == first.union]
        branches: dict[str, list[_Located]] = {}
        for error in errors:
            branches.setdefault(error.branch, []).append(error)
        # An alternative with an error inside the value is closer than one of another type.
        inside = [branch for branch in branches.values() if any(e.path != e.union for e in branch)]
        if inside:
            yield from (_problem(error, schema) for error in min(inside, key=len))
        else:
            problems = [_problem(error, schema) for error in errors]
            messages = list(dict.fromkeys(problem.message for problem in problems))
            rules = [messages[0], *(message.removeprefix("must be ") for message in messages[1:])]
            yield ValidationProblem(
                path=problems[0].path, value=problems[0].value, message=" or ".join(rules)
            )


def _problem(error: _Located, schema: Schema) -> ValidationProblem:
    details = error.details
    kind = details["type"]
    if kind in _UNKNOWN:
        *around, name = error.path
        return unknown_argument_problem(
            str(name), _names(schemas_at(schema, around)), path=format_path(around)
        )
    is_key = _KEY in details["loc"]
    choices = _choices(schemas_at(schema, error.path)) if kind in _CHOICE and not is_key else []
    rule = (
        enum_rule(choices) if choices else _rule_text(kind, details.get("ctx", {}), details["msg"])
    )
    return ValidationProblem(
        path=format_path(error.path),
        value=MISSING if _hides_value(details) else details["input"],
        message=f"the key {rule}" if is_key else rule,
    )


def _hides_value(details: ErrorDetails) -> bool:
    # The message of an author's validator for an object names the members that it concerns.
    is_own = details["type"] in _AUTHOR_ERRORS and not isinstance(
        details["input"], str | int | float
    )
    return details["type"] in _ABSENT or details["type"] == "json_invalid" or is_own


def _names(schemas: Iterable[Schema]) -> list[str]:
    return list(dict.fromkeys(name for schema in schemas for name in schema.get("properties", ())))


def _choices(schemas: Iterable[Schema]) -> list[Any]:
    values = [value for schema in schemas for value in schema.get("enum", ())]
    return values + [schema["const"] for schema in schemas if "const" in schema]


# The rules for pydantic's error types. pydantic's own messages address the author of a Python class
# ("Input should be a valid dictionary or instance of ..."); these address the author of the JSON.

MAX_CHOICES = 30

_TYPE_NAMES: Mapping[str, str] = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_BOUNDS = {
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "finite_number": "a finite number",
}
_TYPE_ERRORS = {
    "null": ("none_required",),
    _TYPE_NAMES["boolean"]: ("bool_type", "bool_parsing"),
    _TYPE_NAMES["integer"]: ("int_type", "int_parsing", "int_parsing_size"),
    "a whole number": ("int_from_float",),
    _TYPE_NAMES["number"]: ("float_type", "float_parsing"),
    "a decimal number": ("decimal_type", "decimal_parsing"),
    _TYPE_NAMES["string"]: ("string_type", "string_sub_type", "string_unicode"),
    "a string in Base64": ("bytes_type", "bytes_invalid_encoding"),
    _TYPE_NAMES["array"]: (
        *("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"),
    ),
    _TYPE_NAMES["object"]: (
        *("dict_type", "mapping_type", "model_type", "model_attributes_type"),
        *("dataclass_type", "arguments_type"),
    ),
    "a date like 2026-12-31": ("date_type", "date_parsing", "date_from_datetime_parsing"),
    "a date without a time of day": ("date_from_datetime_inexact",),
    "a date in the past": ("date_past",),
    "a date in the future": ("date_future",),
    "a time like 23:59:00": ("time_type", "time_parsing"),
    "a date and time like 2026-12-31T23:59:00Z": (
        *("datetime_type", "datetime_parsing", "datetime_object_invalid"),
        "datetime_from_date_parsing",
    ),
    "in the past": ("datetime_past",),
    "in the future": ("datetime_future",),
    "a time with its offset from UTC, like +02:00": ("timezone_aware",),
    "a time without an offset from UTC": ("timezone_naive",),
    "a duration like PT1H30M": ("time_delta_type", "time_delta_parsing"),
    "a UUID": ("uuid_type", "uuid_parsing"),
    "a URL": ("url_type", "url_parsing", "url_syntax_violation"),
    "a URL with one of the schemes {expected_schemes}": ("url_scheme",),
}
_TYPE_RULES = {error: words for words, errors in _TYPE_ERRORS.items() for error in errors}
_RULES = {error: f"must be {words}" for error, words in {**_BOUNDS, **_TYPE_RULES}.items()} | {
    "missing": "is required",
    "missing_argument": "is required",
    "missing_keyword_only_argument": "is required",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "bytes_too_short": "must have at least {min_length} bytes",
    "bytes_too_long": "must have at most {max_length} bytes",
    "url_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "decimal_max_digits": "must have at most {max_digits} digits",
    "decimal_max_places": "must have at most {decimal_places} decimal places",
    "decimal_whole_digits": "must have at most {whole_digits} digits before the point",
    "union_tag_not_found": "must have the member {discriminator}",
    "union_tag_invalid": "must have {discriminator} set to one of {expected_tags}",
    "json_invalid": "must be valid JSON ({error})",
    "value_error": "{error}",
    "assertion_error": "{error}",
}

_CONVERTIBLE: Mapping[str, Any] = {
    "string": str | int | float,
    "integer": str | int | float,
    "number": str | int | float,
    "boolean": bool | str,
    "array": list,
}

_SINGULAR = re.compile(r"\b1 (character|byte|item|member|digit|decimal place)s\b")


def format_rule(template: str, values: Mapping[str, Any]) -> str:
    """Return the template with its values; `1 items` becomes `1 item`, and `5.0` becomes `5`."""
    plain = {
        key: format_number(value) if isinstance(value, float) else str(value)
        for key, value in values.items()
    }
    return _SINGULAR.sub(r"1 \1", template.format_map(plain))


def enum_rule(choices: Sequence[Any]) -> str:
    """Return the rule for an enumeration, such as `must be one of "formal", "warm"`."""
    if len(choices) == 1:
        return f"must be {to_json_text(choices[0])}"
    shown = ", ".join(to_json_text(choice) for choice in choices[:MAX_CHOICES])
    return f"must be one of {shown}" + (", …" if len(choices) > MAX_CHOICES else "")


def type_rule(*types: str) -> str:
    """Return the rule for one or more JSON types, such as `must be a string or null`."""
    return "must be " + " or ".join(_TYPE_NAMES[kind] for kind in types)


def type_error_rule(value: Any, schema: Schema) -> str | None:
    """Return the rule that a value breaks if its type cannot be converted, else `None`.

    Forms parse text: `5` and `"5"` are the same to them. They would also accept the text of a list,
    and the number 1 for true, so these are rejected here.
    """
    kind = schema.get("type")
    if value is None:
        return "is required" if kind else None
    if kind == "array" and isinstance(value, list):
        rules = (type_error_rule(element, schema["items"]) for element in value)
        return next((f"each item {rule}" for rule in rules if rule), None)
    fitting = _CONVERTIBLE.get(str(kind), object)
    is_flag = isinstance(value, bool) and kind in {"string", "integer", "number"}
    return type_rule(str(kind)) if is_flag or not isinstance(value, fitting) else None


def _rule_text(error: str, context: Mapping[str, Any], message: str) -> str:
    """Return the rule that was broken, such as `must be greater than 0`.

    `message` is pydantic's; it is used for error types without a rule.
    """
    template = _RULES.get(error)
    if template is None:
        return message.replace("Input should be", "must be").replace("Input should", "must")
    return format_rule(template, context)
