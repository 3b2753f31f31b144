"""HTTP headers that repeat parts of the body, and the rules that keep the two equal.

An intermediary may route, limit or log by the headers without parsing the body, so a difference
between them is an attack or a bug, and is refused. The headers never authorize anything. MCP
2026-07-28, "Transports: Streamable HTTP"; field syntax: RFC 9110 section 5.

A tool's schema says which of its arguments are repeated, so the keywords of JSON Schema that hold
further schemas are listed here, too.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from mcp_django.protocol.errors import HeaderMismatch, clip

MCP_PROTOCOL_VERSION = "mcp-protocol-version"
MCP_METHOD = "mcp-method"
MCP_NAME = "mcp-name"
MCP_PARAM_PREFIX = "mcp-param-"
SESSION_ID = "mcp-session-id"
LAST_EVENT_ID = "last-event-id"

ANNOTATION = "x-mcp-header"
"""The schema keyword by which a property asks to be repeated in a header."""

MAX_SAFE_INTEGER = 2**53 - 1
"""Beyond it, peers that hold numbers as doubles cannot tell neighbors apart."""

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A name as RFC 9110, section 5.6.2, allows it."""

_WHITESPACE = " \t"
_SENTINEL_PREFIX = "=?base64?"
_SENTINEL_SUFFIX = "?="
_INTEGER = re.compile(r"(-?(?:0|[1-9][0-9]{0,15}))(?:\.0{1,16})?")


class Headers:
    """The headers of one request, as they came: every line kept, names in lower case.

    A name with an underscore stays one of its own. Frameworks that fold it into the dashed name
    let a second, unchecked line stand in for the checked one.
    """

    __slots__ = ("_lines",)

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        # Most headers are never looked at, so they are decoded when they are.
        self._lines: dict[bytes, list[bytes]] = {}
        for name, value in pairs:
            self._lines.setdefault(name.lower(), []).append(value)

    @classmethod
    def from_environ(cls, environ: Mapping[str, Any]) -> Headers:
        """Read a WSGI environment (PEP 3333).

        There a repeated line has been joined by a comma, and servers drop names with underscores.
        """
        return cls(
            (
                name.replace("_", "-").encode("latin-1", "replace"),
                str(value).encode("latin-1", "replace"),
            )
            for name, value in _environ_lines(environ)
        )

    def get(self, name: str) -> str | None:
        """Return the first value of a header, without surrounding blanks."""
        lines = self.getlist(name)
        return lines[0] if lines else None

    def getlist(self, name: str) -> list[str]:
        """Return one value for each line of a header."""
        lines = self._lines.get(_key(name))
        return [line.decode("latin-1").strip(_WHITESPACE) for line in lines] if lines else []

    def without(self, *names: str) -> Headers:
        """The headers with some left out."""
        dropped = {_key(name) for name in names} & self._lines.keys()
        if not dropped:
            return self
        rest = Headers(())
        rest._lines = {name: lines for name, lines in self._lines.items() if name not in dropped}
        return rest

    def __contains__(self, name: str) -> bool:
        return _key(name) in self._lines


@lru_cache(maxsize=256)
def _key(name: str) -> bytes:
    # The same dozen names are asked for on every request.
    return name.lower().encode()


def _environ_lines(environ: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in environ.items():
        if key.startswith("HTTP_"):
            yield key.removeprefix("HTTP_"), value
        elif key in ("CONTENT_TYPE", "CONTENT_LENGTH") and value:
            yield key, value


def encode_value(text: str) -> str:
    """Return `text` as a header value, in Base64 where a header could not carry it as it is."""
    is_literal = _is_visible(text) and text == text.strip(_WHITESPACE) and not _has_sentinel(text)
    if is_literal:
        return text
    return f"{_SENTINEL_PREFIX}{base64.b64encode(text.encode()).decode()}{_SENTINEL_SUFFIX}"


def decode_value(text: str) -> str:
    """Return what a header value stands for.

    Raises:
        HeaderMismatch: characters that no client may send, or broken Base64.
    """
    _check_visible(text)
    if not _has_sentinel(text):
        return text
    encoded = text.removeprefix(_SENTINEL_PREFIX).removesuffix(_SENTINEL_SUFFIX)
    try:
        return binascii.a2b_base64(encoded, strict_mode=True).decode()
    except (binascii.Error, UnicodeDecodeError) as exc:
        raise HeaderMismatch("A header holds a value that is not Base64 of UTF-8") from exc


def _is_visible(text: str) -> bool:
    return text.isascii() and text.replace("\t", " ").isprintable()


def _check_visible(text: str) -> None:
    if not _is_visible(text):
        raise HeaderMismatch("A header holds characters outside printable ASCII")


def _has_sentinel(text: str) -> bool:
    shortest = len(_SENTINEL_PREFIX) + len(_SENTINEL_SUFFIX)
    return (
        len(text) >= shortest
        and text.startswith(_SENTINEL_PREFIX)
        and text.endswith(_SENTINEL_SUFFIX)
    )


def check_routing(headers: Headers, *, version: str, method: str, name: str | None) -> None:
    """Compare the standard headers with what the body says; `name` is `None` if it names nothing.

    Raises:
        HeaderMismatch: one is missing, repeated, malformed or different.
    """
    _check_equal(headers, "MCP-Protocol-Version", version)
    _check_equal(headers, "Mcp-Method", method)
    if name is not None and (given := decode_value(_only_line(headers, "Mcp-Name"))) != name:
        raise HeaderMismatch(f"Mcp-Name says {clip(given)!r} and the body {clip(name)!r}")


def _check_equal(headers: Headers, header: str, expected: str) -> None:
    value = _only_line(headers, header)
    if value != expected:
        raise HeaderMismatch(f"{header} is {clip(value)!r}, but the body says {clip(expected)!r}")


def _only_line(headers: Headers, header: str) -> str:
    lines = headers.getlist(header)
    if not lines:
        raise HeaderMismatch(f"{header} is missing")
    if len(lines) > 1:
        raise HeaderMismatch(f"{header} is repeated")
    _check_visible(lines[0])
    return lines[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderParameter:
    """An argument that clients repeat in the header `Mcp-Param-<header>`."""

    header: str
    path: tuple[str, ...]
    """Property names from the root of the arguments."""
    type: Literal["string", "integer", "boolean"]


def header_parameters(input_schema: Schema) -> tuple[HeaderParameter, ...]:
    """Return the arguments that a tool's schema wants repeated in headers.

    Raises:
        ValueError: naming the property and the rule it breaks. Clients hide a tool with such a
            schema, so it must not be published.
    """
    parameters = tuple(_annotated(input_schema, (), is_property=False))
    seen: dict[str, HeaderParameter] = {}
    for parameter in parameters:
        other = seen.setdefault(parameter.header.lower(), parameter)
        if other is not parameter:
            raise _schema_error(
                parameter.path, f"{'.'.join(other.path)!r} has the same header name"
            )
    return parameters


def _annotated(
    schema: Schema, path: tuple[str, ...], *, is_property: bool
) -> Iterator[HeaderParameter]:
    if ANNOTATION in schema:
        if not is_property:
            raise _schema_error(path, "only what `properties` alone lead to has a header")
        yield _parameter(schema, path)
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        for name, inner in properties.items():
            if isinstance(inner, Mapping):
                yield from _annotated(inner, (*path, name), is_property=is_property or not path)
    for keyword, inner in subschemas(schema):
        if keyword != "properties":
            yield from _annotated(inner, (*path, keyword), is_property=False)


def _parameter(schema: Schema, path: tuple[str, ...]) -> HeaderParameter:
    header, type_ = schema[ANNOTATION], schema.get("type")
    if not isinstance(header, str) or not TOKEN.fullmatch(header):
        raise _schema_error(path, f"{clip(repr(header))} is no header name (RFC 9110 token)")
    if type_ not in ("string", "integer", "boolean"):
        raise _schema_error(
            path, f"the type is {clip(repr(type_))}; only string, integer and boolean fit a header"
        )
    return HeaderParameter(header=header, path=path, type=type_)


def _schema_error(path: tuple[str, ...], rule: str) -> ValueError:
    return ValueError(f"{ANNOTATION} on {'.'.join(path) or 'the root'!r}: {rule}")


def check_params(
    headers: Headers, arguments: Mapping[str, Any], parameters: Sequence[HeaderParameter]
) -> None:
    """Compare the `Mcp-Param-*` headers with the arguments of a tool call.

    Raises:
        HeaderMismatch: one is missing, superfluous, repeated, malformed or different.
    """
    for parameter in parameters:
        header = f"Mcp-Param-{parameter.header}"
        value = _argument(arguments, parameter.path)
        if value is None:
            if header in headers:
                raise HeaderMismatch(f"{header} repeats an argument that the body does not have")
        elif not _is_same(decode_value(_only_line(headers, header)), value):
            raise HeaderMismatch(f"{header} differs from the body")


def _argument(arguments: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = arguments
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _is_same(text: str, value: Any) -> bool:
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        # Numbers are equal as numbers: 42 and 42.0. An int and a float compare without rounding.
        match = _INTEGER.fullmatch(text)
        return match is not None and abs(value) <= MAX_SAFE_INTEGER and int(match[1]) == value
    return False


# Subschemas of a JSON Schema ----------------------------------------------------------------------

# JSON Schema 2020-12, and what draft-07 adds. A key such as ``$ref`` means something only where a
# schema stands: below ``properties`` it is the name of a property, below ``default`` or ``enum`` it
# is data. Walking by keyword keeps them apart.

Schema = Mapping[str, Any]

_SINGLE = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_SEQUENCE = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_MAPPING = frozenset(
    {
        "$defs",
        "definitions",
        "dependencies",
        "dependentSchemas",
        "patternProperties",
        "properties",
    }
)


def subschemas(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield each schema directly inside `schema`, with the keyword that holds it."""
    for keyword, value in schema.items():
        if isinstance(value, Mapping):
            if keyword in _SINGLE:
                yield keyword, value
            elif keyword in _MAPPING:
                yield from ((keyword, v) for v in value.values() if isinstance(v, Mapping))
        elif isinstance(value, list | tuple) and keyword in _SEQUENCE:
            yield from ((keyword, v) for v in value if isinstance(v, Mapping))


def map_subschemas(schema: Schema, change: Callable[[Schema], dict[str, Any]]) -> dict[str, Any]:
    """Return a copy of `schema` with each schema directly inside as `change` made it."""

    def changed(value: Any) -> Any:
        return change(value) if isinstance(value, Mapping) else value

    copy: dict[str, Any] = {}
    for keyword, value in schema.items():
        if isinstance(value, Mapping) and keyword in _SINGLE:
            copy[keyword] = change(value)
        elif isinstance(value, Mapping) and keyword in _MAPPING:
            copy[keyword] = {name: changed(inner) for name, inner in value.items()}
        elif isinstance(value, list | tuple) and keyword in _SEQUENCE:
            copy[keyword] = [changed(inner) for inner in value]
        else:
            copy[keyword] = value
    return copy
