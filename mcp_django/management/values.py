"""Parses values from the command line: ``key=value`` arguments, and values typed into a form.

The argument's schema determines how a value is parsed:

``key=value``   strings as they are; numbers; booleans as true, yes, on, 1 or their opposites;
                arrays and objects as JSON
``key=@FILE``   the contents of a file, parsed in the same way
``key:=JSON``   JSON, regardless of the schema
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.core.validators import validate_email
from django.utils.dateparse import parse_date, parse_datetime

from mcp_django.management.lookups import known_name
from mcp_django.protocol.text import clip
from mcp_django.schema.form_fields import choices_of

Schema = Mapping[str, Any]

TOO_DEEP = "the JSON is nested too deeply; use fewer levels of arrays and objects"
PAIR = re.compile(r"([^=]*?)(:?=)(.*)", re.DOTALL)
BOOLEAN_WORDS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
# The order in which types are tried: string after the others, since any text is a string, and null
# last, so that "null" is text wherever a string is allowed.
TYPE_ORDER = {"string": 1, "null": 2}


def parse_pairs(pairs: Iterable[str], schema: Schema) -> dict[str, Any]:
    """Parse ``key=value`` arguments according to a schema.

    Raises:
        CommandError: a word is not a pair, names an unknown argument, or has an invalid value.
    """
    return {
        name: _argument_value(name, sign, text, _argument_schema(name, schema))
        for name, sign, text in map(_split, pairs)
    }


def parse_text_pairs(pairs: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Parse the ``key=value`` arguments of a prompt or template, which are strings on the wire.

    Raises:
        CommandError: a word is not a pair, or names an unknown argument.
    """
    text: Schema = {"type": "string"}
    schema = {"properties": dict.fromkeys(known, text), "additionalProperties": False}
    found = parse_pairs(pairs, schema)
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in found.items()
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
    for kind, member in sorted(_alternatives(schema), key=lambda one: TYPE_ORDER.get(one[0], 0)):
        try:
            return (
                _choice(text, member["enum"]) if "enum" in member else ARGUMENT_PARSERS[kind](text)
            )
        except ValueError:
            continue
    raise ValueError(f"write {_article(_type_text(schema))}")


def parse_json(text: str) -> Any:
    """Parse JSON as strictly as a server does.

    Raises:
        ValueError: the text is not JSON; NaN and numbers that overflow are not.
        RecursionError: the value is nested too deeply.
    """
    return json.loads(text, parse_float=_finite, parse_constant=_finite)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a JSON number")
    return value


def _split(word: str) -> tuple[str, str, str]:
    match = PAIR.fullmatch(word)
    if match is None or not match[1]:
        raise CommandError(f"{word!r} is not a valid argument; write name=value.")
    return match[1], match[2], match[3]


def _argument_schema(name: str, schema: Schema) -> Schema:
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    if others is False:
        known_name("argument", name, known)
    member = known.get(name, others)
    return member if isinstance(member, Mapping) else {}


def _argument_value(name: str, sign: str, text: str, schema: Schema) -> Any:
    if sign == ":=":
        return _parse_json_argument(name, text)
    if text.startswith("@"):
        text = _file(name, Path(text[1:]), is_binary="contentEncoding" in schema)
    try:
        # An argument that is not UTF-8 arrives with surrogates, which JSON cannot encode.
        text.encode()
        return _parse_value(text, schema)
    except UnicodeEncodeError:
        raise CommandError(f"{name}: {clip(text)!r} is not text in UTF-8.") from None
    except ValueError as exc:
        raise CommandError(f"{name}: {exc}, not {clip(text)!r}.") from None
    except RecursionError:
        raise CommandError(f"{name}: {TOO_DEEP}.") from None


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


def _alternatives(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the types that a value may have, each with its schema."""
    for member in schema.get("anyOf") or schema.get("oneOf") or [schema]:
        declared = member.get("type", "any")
        for kind in [declared] if isinstance(declared, str) else declared:
            yield kind, member


def _choice(text: str, values: Iterable[Any]) -> Any:
    choices = list(values)
    for value in choices:
        if text == (value if isinstance(value, str) else json.dumps(value)):
            return value
    shown = ", ".join(value if isinstance(value, str) else json.dumps(value) for value in choices)
    raise ValueError(f"write one of {shown}")


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


def _null(text: str) -> None:
    if text != "null":
        raise ValueError


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
    "null": _null,
    "string": str,
    "any": _any,
}


def _article(noun: str) -> str:
    return noun if noun.startswith('"') else f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


# Fields of an elicitation form --------------------------------------------------------------------

# Describes and parses the fields of an elicitation form (MCP 2026-07-28, "Elicitation", requested
# schema). The server validates the answer again; validating here saves a round trip.


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """A field of an elicitation form."""

    name: str
    schema: Schema
    is_required: bool

    @property
    def label(self) -> str:
        """The label of the field."""
        return str(self.schema.get("title") or self.name)

    @property
    def choices(self) -> list[tuple[Any, str]]:
        """The (value, title) pairs to choose from; empty if the field has no choices."""
        return choices_of(self.schema.get("items", {}) if self.is_multiple else self.schema)

    @property
    def is_multiple(self) -> bool:
        """Whether several choices may be selected."""
        return self.schema.get("type") == "array"

    @property
    def has_default(self) -> bool:
        """Whether an empty input has a default value."""
        return "default" in self.schema

    def with_default(self, value: Any) -> FormField:
        """Return a copy of the field with another default value."""
        return replace(self, schema={**self.schema, "default": value})

    def describe(self) -> str:
        """Return what the field accepts, in a few words."""
        words = [_field_type_text(self)]
        words += [
            text.format(self.schema[key]) for key, text in RULES.items() if key in self.schema
        ]
        if not self.is_required and not self.has_default:
            words.append("may be empty")
        return ", ".join(words)

    def default_text(self) -> str:
        """Return the default value as it would be typed."""
        default = self.schema["default"]
        if isinstance(default, bool):
            return "yes" if default else "no"
        if isinstance(default, list):
            return ", ".join(map(str, default))
        return default if isinstance(default, str) else json.dumps(default)

    def parse(self, text: str) -> Any:
        """Parse a typed line; an empty line is the default, or ``None`` without a default.

        Raises:
            InvalidFieldText: the text is not valid for the field.
        """
        if not text:
            return self._default()
        if self.is_multiple:
            return self._parse_choices(text)
        if self.choices:
            return self._parse_choice(text)
        value = FIELD_PARSERS[self.schema.get("type", "string")](text)
        self._check(value)
        return value

    def _default(self) -> Any:
        if self.is_required and not self.has_default:
            raise InvalidFieldText("A value is required.")
        return self.schema.get("default")

    def _parse_choices(self, text: str) -> list[Any]:
        chosen = list(dict.fromkeys(self._parse_choice(part) for part in _split_list(text)))
        low, high = self.schema.get("minItems", 0), self.schema.get("maxItems", math.inf)
        if not low <= len(chosen) <= high:
            raise InvalidFieldText(f"Choose {self.describe()}.")
        return chosen

    def _parse_choice(self, text: str) -> Any:
        """Return the choice with this value, title or number."""
        text = text.strip()
        for value, title in self.choices:
            if text.lower() in (str(value).lower(), title.lower()):
                return value
        for number, (value, _) in enumerate(self.choices, start=1):
            if text == str(number):
                return value
        titles = ", ".join(title for _, title in self.choices)
        raise InvalidFieldText(f"{clip(text)!r} is not one of: {titles}.")

    def _check(self, value: Any) -> None:
        size = len(value) if isinstance(value, str) else value
        low, high = ("minLength", "maxLength") if isinstance(value, str) else ("minimum", "maximum")
        if isinstance(value, bool):
            return
        if not self.schema.get(low, -math.inf) <= size <= self.schema.get(high, math.inf):
            raise InvalidFieldText(f"Write {self.describe()}.")
        check = FORMATS.get(self.schema.get("format", ""))
        if check is not None and not check(value):
            raise InvalidFieldText(f"Write {self.describe()}.")


def _split_list(text: str) -> list[str]:
    """Return the members of a comma-separated list or a JSON array."""
    if text.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            return [str(part) for part in parse_json(text)]
    return [part for part in text.split(",") if part.strip()]


def fields_of(schema: Schema) -> list[FormField]:
    """Return the fields of a form, in order."""
    required = schema.get("required", ())
    return [
        FormField(name=name, schema=member, is_required=name in required)
        for name, member in schema.get("properties", {}).items()
    ]


RULES = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minItems": "at least {}",
    "maxItems": "at most {}",
}
TYPE_TEXTS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
    "email": "an e-mail address",
    "uri": "a URI",
    "date": "a date (2026-03-01)",
    "date-time": "a date and time (2026-03-01T14:30:00Z)",
}


def _field_type_text(field: FormField) -> str:
    if field.choices:
        return "some of these, separated by commas" if field.is_multiple else "one of these"
    kind = field.schema.get("type", "string")
    return TYPE_TEXTS.get(field.schema.get("format", ""), TYPE_TEXTS.get(kind, "text"))


# Parsers of typed values --------------------------------------------------------------------------


class InvalidFieldText(ValueError):
    """The typed text is not valid for the field; the message says what is."""


def _typed_integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidFieldText(f"{clip(text)!r} is not a whole number.") from None


def _typed_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidFieldText(f"{clip(text)!r} is not a number.")
    return int(value) if value.is_integer() else value


def _typed_boolean(text: str) -> bool:
    words = {**BOOLEAN_WORDS, "y": True, "n": False}
    if text.lower() not in words:
        raise InvalidFieldText(f"{clip(text)!r} is not yes or no.")
    return words[text.lower()]


FIELD_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "string": str,
    "integer": _typed_integer,
    "number": _typed_number,
    "boolean": _typed_boolean,
}


def _is_email(text: str) -> bool:
    try:
        validate_email(text)
    except ValidationError:
        return False
    return True


def _is_parsed(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            return parse(text) is not None
        except ValueError:
            return False

    return check


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "email": _is_email,
    "uri": lambda text: bool(urlsplit(text).scheme),
    "date": _is_parsed(parse_date),
    "date-time": _is_parsed(parse_datetime),
}


# Arguments in words -------------------------------------------------------------------------------


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
