"""Parses values from the command line: ``key=value`` arguments, and values typed into a form.

The argument's schema determines how a value is parsed:

``key=value``   strings, unchanged; numbers; booleans as true, yes, on, 1 or their opposites;
                arrays and objects as JSON
``key=@FILE``   the contents of a file, parsed in the same way
``key:=JSON``   JSON, regardless of the schema
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from mcp_django.management.lookups import known_name
from mcp_django.protocol.text import clip
from mcp_django.schema.form_fields import BOOLEAN_WORDS, FormField, display_text, parse_input

Schema = Mapping[str, Any]

TOO_DEEP = "the JSON is nested too deeply; use fewer levels of arrays and objects"
PAIR = re.compile(r"([^=]*?)(:?=)(.*)", re.DOTALL)
# The order in which types are tried: string after the others, since any text is a string, and null
# last, so that "null" is text wherever a string is allowed.
TYPE_ORDER = {"string": 1, "null": 2}


def parse_pairs(pairs: Iterable[str], schema: Schema) -> dict[str, Any]:
    """Parse ``key=value`` arguments according to a schema.

    Raises:
        CommandError: a word is not a pair, names an unknown argument, or has an invalid value.
    """
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    values = {}
    for word in pairs:
        match = PAIR.fullmatch(word)
        if match is None or not match[1]:
            raise CommandError(f"{word!r} is not a valid argument; write name=value.")
        name, sign, text = match.groups()
        if others is False:
            known_name("argument", name, properties)
        member = properties.get(name, others)
        member_schema = member if isinstance(member, Mapping) else {}
        if sign == ":=":
            values[name] = _parse_json_argument(name, text)
            continue
        if text.startswith("@"):
            text = _file(name, Path(text[1:]), is_binary="contentEncoding" in member_schema)
        try:
            # An argument that is not UTF-8 arrives with surrogates, which JSON cannot encode.
            text.encode()
            values[name] = _parse_value(text, member_schema)
        except UnicodeEncodeError:
            raise CommandError(f"{name}: {clip(text)!r} is not text in UTF-8.") from None
        except ValueError as exc:
            raise CommandError(f"{name}: {exc}, not {clip(text)!r}.") from None
        except RecursionError:
            raise CommandError(f"{name}: {TOO_DEEP}.") from None
    return values


def parse_text_pairs(pairs: Iterable[str], names: Iterable[str]) -> dict[str, str]:
    """Parse the ``key=value`` arguments of a prompt or template, which are strings on the wire.

    Raises:
        CommandError: a word is not a pair, or names an unknown argument.
    """
    text: Schema = {"type": "string"}
    schema = {"properties": dict.fromkeys(names, text), "additionalProperties": False}
    values = parse_pairs(pairs, schema)
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in values.items()
    }


def parse_object(text: str, option: str) -> dict[str, Any]:
    """Parse the JSON object of an option.

    Raises:
        CommandError: the text is not a JSON object.
    """
    value = _parse_json_argument(option, text)
    if not isinstance(value, dict):
        raise CommandError(f"{option} takes a JSON object, such as '{{\"name\": 1}}'.")
    return value


def _parse_value(text: str, schema: Schema) -> Any:
    """Parse a text as a value of the schema.

    Raises:
        ValueError: the text is not valid for the schema.
    """
    if "enum" in schema or "const" in schema:
        return _choice(text, schema.get("enum", [schema.get("const")]))
    # The types that the value may have, each with its schema.
    alternatives: list[tuple[str, Schema]] = []
    for member in schema.get("anyOf") or schema.get("oneOf") or [schema]:
        declared = member.get("type", "any")
        kinds = [declared] if isinstance(declared, str) else declared
        alternatives += [(kind, member) for kind in kinds]
    alternatives.sort(key=lambda alternative: TYPE_ORDER.get(alternative[0], 0))
    for kind, member in alternatives:
        try:
            return (
                _choice(text, member["enum"]) if "enum" in member else ARGUMENT_PARSERS[kind](text)
            )
        except ValueError:
            continue
    expected = _type_text(schema)
    if not expected.startswith('"'):
        expected = f"{'an' if expected[0] in 'aeiou' else 'a'} {expected}"
    raise ValueError(f"write {expected}")


def parse_json(text: str) -> Any:
    """Parse JSON as strictly as a server does.

    Raises:
        ValueError: the text is not JSON, or contains NaN or a number that overflows.
        RecursionError: the value is nested too deeply.
    """
    return json.loads(text, parse_float=_finite, parse_constant=_finite)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a JSON number")
    return value


def _file(name: str, path: Path, *, is_binary: bool) -> str:
    try:
        content = path.read_bytes()
        return base64.b64encode(content).decode() if is_binary else content.decode()
    except OSError as exc:
        raise CommandError(f"{name}: {path} cannot be read: {exc.strerror}.") from None
    except UnicodeDecodeError:
        raise CommandError(f"{name}: {path} is not text in UTF-8.") from None
    except ValueError as exc:
        raise CommandError(f"{name}: {str(path)!r} cannot be read: {exc}.") from None


def _parse_json_argument(name: str, text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as exc:
        raise CommandError(f"{name}: {clip(text)!r} is not valid JSON: {exc}.") from None
    except RecursionError:
        raise CommandError(f"{name}: {TOO_DEEP}.") from None


def _choice(text: str, values: Iterable[Any]) -> Any:
    choices = list(values)
    for value in choices:
        if text == (value if isinstance(value, str) else json.dumps(value)):
            return value
    texts = ", ".join(value if isinstance(value, str) else json.dumps(value) for value in choices)
    raise ValueError(f"write one of {texts}")


def _json_of(*kinds: type) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = parse_json(text)
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise ValueError
        return value

    return read


def _boolean(text: str) -> bool:
    if text.lower() not in BOOLEAN_WORDS:
        raise ValueError
    return BOOLEAN_WORDS[text.lower()]


def _any(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


ARGUMENT_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "integer": int,
    "number": _json_of(int, float),
    "boolean": _boolean,
    "array": _json_of(list),
    "object": _json_of(dict),
    "null": lambda text: _choice(text, [None]),
    "string": str,
    "any": _any,
}


# The server validates the answer again; parsing it here saves a round trip.


class InvalidFieldText(ValueError):
    """The typed text is not valid for the field; the message says what to write."""


def has_default(field: FormField) -> bool:
    """Return whether an empty input means a default value other than the empty string."""
    return bool(field.shape.schema.get("default", "") != "")


def default_text(value: Any) -> str:
    """Return a default value as it would be typed."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else display_text(value)


def describe_field(field: FormField) -> str:
    """Return what the field accepts, in a few words."""
    kind, schema = field.shape.kind, field.shape.schema
    words = [KIND_TEXTS.get(kind, "text")]
    words += [text.format(schema[key]) for key, text in RULES.items() if key in schema]
    if not field.is_required and not has_default(field):
        words.append("may be empty")
    return ", ".join(words)


def parse_field(field: FormField, text: str) -> Any:
    """Parse a typed line; an empty line is the default, or ``None`` without a default.

    Raises:
        InvalidFieldText: the text is not valid for the field.
    """
    if not text:
        if field.is_required and not has_default(field):
            raise InvalidFieldText("A value is required.")
        return field.shape.schema.get("default")
    if field.shape.kind == "choices":
        # A comma-separated list, or a JSON array.
        parts = [part for part in text.split(",") if part.strip()]
        if text.lstrip().startswith("["):
            with suppress(ValueError, RecursionError):
                parts = [str(part) for part in parse_json(text)]
        chosen = list(dict.fromkeys(_parse_choice(field, part) for part in parts))
        low, high = (field.shape.schema.get(keyword) for keyword in ("minItems", "maxItems"))
        if not (low or 0) <= len(chosen) <= (math.inf if high is None else high):
            raise InvalidFieldText(f"Choose {describe_field(field)}.")
        return chosen
    if field.shape.kind == "choice":
        return _parse_choice(field, text)
    try:
        return parse_input(field.shape, text)
    except ValidationError:
        raise InvalidFieldText(f"Write {describe_field(field)}.") from None


def _parse_choice(field: FormField, text: str) -> Any:
    """Return the choice with this value, title or number."""
    text, choices = text.strip(), field.shape.choices
    for value, title in choices:
        if text.lower() in (str(value).lower(), title.lower()):
            return value
    for number, (value, _) in enumerate(choices, start=1):
        if text == str(number):
            return value
    titles = ", ".join(title for _, title in choices)
    raise InvalidFieldText(f"{clip(text)!r} is not one of: {titles}.")


RULES = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minItems": "at least {}",
    "maxItems": "at most {}",
}
KIND_TEXTS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
    "email": "an e-mail address",
    "uri": "a URI",
    "date": "a date (2026-03-01)",
    "datetime": "a date and time (2026-03-01T14:30:00Z)",
    "choice": "one of these",
    "choices": "some of these, separated by commas",
}


def describe_arguments(schema: Schema) -> list[dict[str, Any]]:
    """Return the members of a schema in the declared order, without JSON Schema terms."""
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "type": _type_text(member),
            "required": name in required,
            **({"default": member["default"]} if "default" in member else {}),
            "description": str(member.get("description", "")),
        }
        for name, member in schema.get("properties", {}).items()
    ]


def _type_text(schema: Schema) -> str:
    """Return the type of a value as text: ``integer``, ``"early" or "late"``, ``date or null``."""
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(json.dumps(value, ensure_ascii=False) for value in values)
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        return " or ".join(dict.fromkeys(map(_type_text, alternatives)))
    declared = schema.get("type", "any")
    if isinstance(declared, list):
        return " or ".join(declared)
    if declared == "array" and isinstance(schema.get("items"), Mapping):
        return f"array of {_type_text(schema['items'])}"
    return str(schema.get("format", declared)) if declared == "string" else str(declared)
