"""``key=value`` on the command line, read as the argument's schema says.

``key=value``   text as it is; numbers, yes and no by their words; arrays and objects as JSON
``key=@FILE``   the contents of a file, read likewise
``key:=JSON``   JSON, whatever the schema says
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from mcp_django.management.lookups import nearest
from mcp_django.management.parameters import Schema, type_text
from mcp_django.protocol.errors import clip

TOO_DEEP = "the JSON is nested too deep; send fewer levels of arrays and objects"
PAIR = re.compile(r"([^=]*?)(:?=)(.*)", re.DOTALL)
WORDS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
# Any text is a string, so it is tried after the rest; "null" is a word where text is wanted.
LATE = {"string": 1, "null": 2}


def read_pairs(pairs: Iterable[str], schema: Schema) -> dict[str, Any]:
    """The arguments that were written, with the types that the schema asks for.

    Raises:
        CommandError: a word is no pair, names no argument, or cannot be read.
    """
    return {
        name: _value(name, sign, text, _member(name, schema))
        for name, sign, text in map(_split, pairs)
    }


def read_text_pairs(pairs: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """The arguments of a prompt or a template, which are text on the wire.

    Raises:
        CommandError: a word is no pair, or names no argument.
    """
    text: Schema = {"type": "string"}
    schema = {"properties": dict.fromkeys(known, text), "additionalProperties": False}
    found = read_pairs(pairs, schema)
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in found.items()
    }


def read_object(text: str, option: str) -> dict[str, Any]:
    """The JSON object that an option gives.

    Raises:
        CommandError: it gives something else.
    """
    value = _json(option, text)
    if not isinstance(value, dict):
        raise CommandError(f"{option} takes a JSON object, such as '{{\"name\": 1}}'.")
    return value


def read_value(text: str, schema: Schema) -> Any:
    """The value that a text stands for.

    Raises:
        ValueError: it stands for none of the schema.
    """
    if "enum" in schema or "const" in schema:
        return _choice(text, schema.get("enum", [schema.get("const")]))
    for kind, member in sorted(_alternatives(schema), key=lambda one: LATE.get(one[0], 0)):
        try:
            return _choice(text, member["enum"]) if "enum" in member else READERS[kind](text)
        except ValueError:
            continue
    raise ValueError(f"write {_article(type_text(schema))}")


def load_json(text: str) -> Any:
    """Return the JSON value of a text, as strictly as a server reads it.

    Raises:
        ValueError: it is not JSON; of numbers, NaN and what overflows are not.
        RecursionError: it is nested too deep.
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
        raise CommandError(f"{word!r} is no argument; write name=value.")
    return match[1], match[2], match[3]


def _member(name: str, schema: Schema) -> Schema:
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    if name not in known and others is False:
        names = ", ".join(known) or "none"
        raise CommandError(
            f"There is no argument {name!r}.{nearest(name, known)} The arguments are: {names}."
        )
    member = known.get(name, others)
    return member if isinstance(member, Mapping) else {}


def _value(name: str, sign: str, text: str, schema: Schema) -> Any:
    if sign == ":=":
        return _json(name, text)
    if text.startswith("@"):
        text = _file(name, Path(text[1:]), is_binary="contentEncoding" in schema)
    try:
        # An argument that is not UTF-8 arrives as surrogates, which no JSON can carry.
        text.encode()
        return read_value(text, schema)
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
        raise CommandError(f"{name}: {path} is no text in UTF-8.") from None
    except ValueError as exc:
        raise CommandError(f"{name}: {str(path)!r} cannot be read: {exc}.") from None


def _json(name: str, text: str) -> Any:
    try:
        return load_json(text)
    except ValueError as exc:
        raise CommandError(f"{name}: {clip(text)!r} is no JSON: {exc}.") from None
    except RecursionError:
        raise CommandError(f"{name}: {TOO_DEEP}.") from None


def _alternatives(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The types that a value may have, each with the schema that says more about it."""
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


def _of(kind: type) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = load_json(text)
        if not isinstance(value, kind):
            raise ValueError
        return value

    return read


def _boolean(text: str) -> bool:
    if text.lower() not in WORDS:
        raise ValueError
    return WORDS[text.lower()]


def _number(text: str) -> int | float:
    value = load_json(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    return value


def _null(text: str) -> None:
    if text != "null":
        raise ValueError


def _any(text: str) -> Any:
    try:
        return load_json(text)
    except ValueError:
        return text


READERS: Mapping[str, Callable[[str], Any]] = {
    "integer": int,
    "number": _number,
    "boolean": _boolean,
    "array": _of(list),
    "object": _of(dict),
    "null": _null,
    "string": str,
    "any": _any,
}


def _article(noun: str) -> str:
    return noun if noun.startswith('"') else f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
