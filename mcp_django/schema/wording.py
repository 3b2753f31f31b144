"""The rules behind pydantic's error types, as a person would say them.

pydantic's own messages speak to the author of a Python class ("Input should be a valid dictionary
or instance of ..."); these speak to whoever wrote the JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mcp_django.schema.arguments import quote
from mcp_django.schema.rewriting import number
from mcp_django.schema.structure import Schema

_OF_TYPE: Mapping[str, str] = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_NUMBER, _TEXT, _ARRAY, _OBJECT = "a number", "a string", "an array", "an object"
_DATE, _TIME = "a date like 2026-12-31", "a time like 23:59:00"
_DATETIME = "a date and time like 2026-12-31T23:59:00Z"
_BOUNDS = {
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "finite_number": "a finite number",
}
_KINDS = {
    "none_required": "null",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer",
    "int_from_float": "a whole number",
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "decimal_type": "a decimal number",
    "decimal_parsing": "a decimal number",
    "string_type": _TEXT,
    "string_sub_type": _TEXT,
    "string_unicode": _TEXT,
    "bytes_type": "a string in Base64",
    "bytes_invalid_encoding": "a string in Base64",
    "list_type": _ARRAY,
    "tuple_type": _ARRAY,
    "set_type": _ARRAY,
    "frozen_set_type": _ARRAY,
    "iterable_type": _ARRAY,
    "dict_type": _OBJECT,
    "mapping_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "dataclass_type": _OBJECT,
    "arguments_type": _OBJECT,
    "date_type": _DATE,
    "date_parsing": _DATE,
    "date_from_datetime_parsing": _DATE,
    "date_from_datetime_inexact": "a date without a time of day",
    "date_past": "a date in the past",
    "date_future": "a date in the future",
    "time_type": _TIME,
    "time_parsing": _TIME,
    "datetime_type": _DATETIME,
    "datetime_parsing": _DATETIME,
    "datetime_object_invalid": _DATETIME,
    "datetime_from_date_parsing": _DATETIME,
    "datetime_past": "in the past",
    "datetime_future": "in the future",
    "timezone_aware": "a time with its offset from UTC, like +02:00",
    "timezone_naive": "a time without an offset from UTC",
    "time_delta_type": "a duration like PT1H30M",
    "time_delta_parsing": "a duration like PT1H30M",
    "uuid_type": "a UUID",
    "uuid_parsing": "a UUID",
    "url_type": "a URL",
    "url_parsing": "a URL",
    "url_syntax_violation": "a URL",
    "url_scheme": "a URL with one of the schemes {expected_schemes}",
}
_RULES = {error: f"must be {words}" for error, words in {**_BOUNDS, **_KINDS}.items()} | {
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


MAX_CHOICES = 30

_SINGULAR = re.compile(r"\b1 (character|byte|item|member|digit|decimal place)s\b")


def rule_of(error: str, context: Mapping[str, Any], message: str) -> str:
    """Return the rule that was broken: `must be greater than 0`.

    `message` is pydantic's, for the types that are not known here and for a validator's own errors.
    """
    template = _RULES.get(error)
    if template is None:
        return message.replace("Input should be", "must be").replace("Input should", "must")
    return fill(template, context)


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Return the template with its values as a person writes them: `1 item`, `at least 5`."""
    plain = {
        key: number(value) if isinstance(value, float) else str(value)
        for key, value in values.items()
    }
    return _SINGULAR.sub(r"1 \1", template.format_map(plain))


def one_of(choices: Sequence[Any]) -> str:
    """Return the rule of an enumeration: `must be one of "formal", "warm"`."""
    if len(choices) == 1:
        return f"must be {quote(choices[0])}"
    shown = ", ".join(quote(choice) for choice in choices[:MAX_CHOICES])
    return f"must be one of {shown}" + (", …" if len(choices) > MAX_CHOICES else "")


def of_kind(*types: str) -> str:
    """Return the rule of one or several JSON types: `must be a string or null`."""
    return "must be " + " or ".join(_OF_TYPE[kind] for kind in types)


def wrong_kind(value: Any, schema: Schema) -> str | None:
    """Return the rule that a value breaks so plainly that no form would convert it.

    A form reads text: it takes `5` for `"5"` and the other way round, and would take the text of a
    list, or the number 1 for true.
    """
    kind = schema.get("type")
    if value is None:
        return "is required" if kind else None
    if kind == "array" and isinstance(value, list):
        rules = (wrong_kind(item, schema["items"]) for item in value)
        return next((f"each item {rule}" for rule in rules if rule), None)
    fitting = _CONVERTIBLE.get(str(kind), object)
    is_flag = isinstance(value, bool) and kind in {"string", "integer", "number"}
    return of_kind(str(kind)) if is_flag or not isinstance(value, fitting) else None


_CONVERTIBLE: Mapping[str, Any] = {
    "string": str | int | float,
    "integer": str | int | float,
    "number": str | int | float,
    "boolean": bool | str,
    "array": list,
}
