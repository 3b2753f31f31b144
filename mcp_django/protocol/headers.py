"""HTTP headers that repeat parts of the body, and the checks that both agree.

An intermediary may route, limit or log by the headers without parsing the body, so a difference
between them is an attack or a bug, and the request is rejected. The headers never authorize
anything. MCP 2026-07-28, "Transports: Streamable HTTP"; field syntax: RFC 9110 section 5.

A tool's schema declares which of its arguments are repeated, so this module also lists the JSON
Schema keywords that contain subschemas.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from mcp_django.protocol.errors import HeaderMismatch
from mcp_django.protocol.text import clip

MCP_PROTOCOL_VERSION = "mcp-protocol-version"
MCP_METHOD = "mcp-method"
MCP_NAME = "mcp-name"
MCP_PARAM_PREFIX = "mcp-param-"
SESSION_ID = "mcp-session-id"
LAST_EVENT_ID = "last-event-id"

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
FORM = "application/x-www-form-urlencoded"
ACCEPT = f"{JSON}, {EVENT_STREAM}"
"""What clients of Streamable HTTP accept."""

HEADER_KEYWORD = "x-mcp-header"
"""The schema keyword that names the header in which a property is repeated."""

MAX_SAFE_INTEGER = 2**53 - 1
"""Above it, peers that store numbers as doubles cannot distinguish neighboring integers."""

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token as defined by RFC 9110, section 5.6.2."""

_WHITESPACE = " \t"
_SENTINEL_PREFIX = "=?base64?"
_SENTINEL_SUFFIX = "?="
_INTEGER = re.compile(r"(-?(?:0|[1-9][0-9]{0,15}))(?:\.0{1,16})?")


class Headers:
    """The headers of one request: every line is kept, names are in lower case.

    ``lines`` maps each name to its value as received: bytes, or a tuple for a repeated header.

    A name with an underscore is a separate header. In frameworks that convert underscores to
    hyphens, a second, unchecked line can replace the checked one.
    """

    __slots__ = ("lines",)

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        # Most headers are never read, so values are decoded on access. ASGI servers send names in
        # lower case, and few requests repeat a name.
        lines = list(pairs)
        single: dict[bytes, bytes | tuple[bytes, ...]] = dict(lines)
        if len(single) < len(lines) or not b"".join(single).islower():
            lines_by_name: dict[bytes, tuple[bytes, ...]] = {}
            for name, value in lines:
                lines_by_name[name.lower()] = (*lines_by_name.get(name.lower(), ()), value)
            single = {
                name: values[0] if len(values) == 1 else values
                for name, values in lines_by_name.items()
            }
        self.lines: Mapping[bytes, bytes | tuple[bytes, ...]] = single

    @classmethod
    def from_environ(cls, environ: Mapping[str, Any]) -> Headers:
        """Return the headers of a WSGI environment (PEP 3333).

        WSGI servers have already joined repeated lines by commas and dropped names with
        underscores.
        """
        pairs = []
        for key, value in environ.items():
            # Longer names are not cached, since a client may send any number of them.
            is_short = len(key) <= _MAX_CACHED_NAME
            name = (_environ_name if is_short else _environ_name.__wrapped__)(key)
            if name is not None and (value or key not in _CONTENT_KEYS):
                pairs.append((name, str(value).encode("latin-1", "replace")))
        return cls(pairs)

    def get(self, name: str) -> str | None:
        """Return the first value of a header without surrounding whitespace, or `None`."""
        value = self.lines.get(_key(name))
        if value is None:
            return None
        first = value if isinstance(value, bytes) else value[0]
        return first.decode("latin-1").strip(_WHITESPACE)

    def getlist(self, name: str) -> list[str]:
        """Return one value for each line of a header."""
        value = self.lines.get(_key(name), ())
        if isinstance(value, bytes):
            return [value.decode("latin-1").strip(_WHITESPACE)]
        return [line.decode("latin-1").strip(_WHITESPACE) for line in value]

    def without(self, *names: str) -> Headers:
        """Return the headers without those named."""
        dropped = {_key(name) for name in names} & self.lines.keys()
        if not dropped:
            return self
        rest = Headers(())
        rest.lines = {name: lines for name, lines in self.lines.items() if name not in dropped}
        return rest

    def __contains__(self, name: str) -> bool:
        return _key(name) in self.lines


def protocol_version(headers: Headers) -> str | None:
    """Return the value of `MCP-Protocol-Version`, or `None` if it is absent.

    Two layers of a client may both set it, as two lines or as one with a comma (RFC 9110, section
    5.3). The same value twice is that value; different values are all returned, with commas, which
    is not a known version.
    """
    line = headers.lines.get(b"mcp-protocol-version")
    if line is None or (isinstance(line, bytes) and b"," not in line):
        return headers.get(MCP_PROTOCOL_VERSION)
    values = [
        value.strip(_WHITESPACE)
        for value in ",".join(headers.getlist(MCP_PROTOCOL_VERSION)).split(",")
    ]
    return ", ".join(dict.fromkeys(values))


@lru_cache(maxsize=256)
def _key(name: str) -> bytes:
    # Every request looks up the same dozen names.
    return name.lower().encode()


_CONTENT_KEYS = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})
_MAX_CACHED_NAME = 64


@lru_cache(maxsize=512)
def _environ_name(key: str) -> bytes | None:
    """Return the header name of a key of a WSGI environment, `None` if it is not a header."""
    if not key.startswith("HTTP_") and key not in _CONTENT_KEYS:
        return None
    return key.removeprefix("HTTP_").replace("_", "-").lower().encode("latin-1", "replace")


def encode_value(text: str) -> str:
    """Return `text` as a header value, in Base64 if a header cannot contain it unchanged."""
    is_literal = (
        _is_printable_ascii(text) and text == text.strip(_WHITESPACE) and not _has_sentinel(text)
    )
    if is_literal:
        return text
    return f"{_SENTINEL_PREFIX}{base64.b64encode(text.encode()).decode()}{_SENTINEL_SUFFIX}"


def decode_value(text: str) -> str:
    """Return the text that a header value encodes.

    Raises:
        HeaderMismatch: the value contains characters that are not allowed, or invalid Base64.
    """
    _check_printable_ascii(text)
    if not _has_sentinel(text):
        return text
    encoded = text.removeprefix(_SENTINEL_PREFIX).removesuffix(_SENTINEL_SUFFIX)
    try:
        return binascii.a2b_base64(encoded, strict_mode=True).decode()
    except (binascii.Error, UnicodeDecodeError) as exc:
        raise HeaderMismatch("A header value is not UTF-8 encoded in Base64") from exc


def _is_printable_ascii(text: str) -> bool:
    return text.isascii() and text.replace("\t", " ").isprintable()


def _check_printable_ascii(text: str) -> None:
    if not _is_printable_ascii(text):
        raise HeaderMismatch("A header value contains characters outside printable ASCII")


def _has_sentinel(text: str) -> bool:
    shortest = len(_SENTINEL_PREFIX) + len(_SENTINEL_SUFFIX)
    return (
        len(text) >= shortest
        and text.startswith(_SENTINEL_PREFIX)
        and text.endswith(_SENTINEL_SUFFIX)
    )


def check_routing_headers(headers: Headers, *, version: str, method: str, name: str | None) -> None:
    """Compare the standard headers with the body; `name` is `None` if the body has no name.

    Raises:
        HeaderMismatch: a header is missing, repeated, malformed or different.
    """
    if name is None or len(name) <= _MAX_USUAL_NAME:
        received = tuple(map(headers.lines.get, _ROUTING))
        expected = (version.encode(), method.encode(), None if name is None else name.encode())
        if received == expected and _is_literal(*expected):
            return
    if protocol_version(headers) != version:
        _check_equal(headers, "MCP-Protocol-Version", version)
    _check_equal(headers, "Mcp-Method", method)
    if name is None:
        return
    sent_name = decode_value(_single_value(headers, "Mcp-Name"))
    if sent_name != name:
        raise HeaderMismatch(f"Mcp-Name is {clip(sent_name)!r}, but the body says {clip(name)!r}")


_ROUTING = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")
_MAX_USUAL_NAME = 128


@lru_cache(maxsize=1024)
def _is_literal(*values: bytes | None) -> bool:
    """Return whether header values are printable ASCII without spaces, and so not encoded."""
    text = b"".join(value or b"" for value in values)
    is_plain = text.isascii() and text.decode().isprintable() and b" " not in text
    return is_plain and _SENTINEL_PREFIX.encode() not in text


def _check_equal(headers: Headers, header: str, expected: str) -> None:
    value = _single_value(headers, header)
    if value != expected:
        raise HeaderMismatch(f"{header} is {clip(value)!r}, but the body says {clip(expected)!r}")


def _single_value(headers: Headers, header: str) -> str:
    lines = headers.getlist(header)
    if not lines:
        raise HeaderMismatch(f"{header} is missing")
    if len(lines) > 1:
        raise HeaderMismatch(f"{header} is repeated: {clip(repr(lines))}")
    _check_printable_ascii(lines[0])
    return lines[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderParameter:
    """An argument that clients repeat in the header `Mcp-Param-<header>`."""

    header: str
    path: tuple[str, ...]
    """The property names that lead from the root of the arguments to this one."""
    type: Literal["string", "integer", "boolean"]


def header_parameters(input_schema: Schema) -> tuple[HeaderParameter, ...]:
    """Return the arguments that an input schema marks for repetition in headers.

    Raises:
        ValueError: a property breaks a rule; the message names both. Clients hide a tool with
            such a schema, so it must not be published.
    """
    parameters = tuple(_find_annotated(input_schema, (), is_property=False))
    seen: dict[str, HeaderParameter] = {}
    for parameter in parameters:
        other = seen.setdefault(parameter.header.lower(), parameter)
        if other is not parameter:
            raise _schema_error(
                parameter.path, f"{'.'.join(other.path)!r} has the same header name"
            )
    return parameters


def _find_annotated(
    schema: Schema, path: tuple[str, ...], *, is_property: bool
) -> Iterator[HeaderParameter]:
    if HEADER_KEYWORD in schema:
        if not is_property:
            raise _schema_error(
                path, "only a property reachable through `properties` alone can have it"
            )
        yield _parameter(schema, path)
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        for name, inner in properties.items():
            if isinstance(inner, Mapping):
                yield from _find_annotated(
                    inner, (*path, name), is_property=is_property or not path
                )
    for (keyword, *_), inner in subschemas(schema):
        if keyword != "properties" and isinstance(inner, Mapping):
            yield from _find_annotated(inner, (*path, str(keyword)), is_property=False)


def _parameter(schema: Schema, path: tuple[str, ...]) -> HeaderParameter:
    header, type_ = schema[HEADER_KEYWORD], schema.get("type")
    if not isinstance(header, str) or not TOKEN.fullmatch(header):
        raise _schema_error(path, f"{clip(repr(header))} is not a header name (RFC 9110 token)")
    if type_ not in ("string", "integer", "boolean"):
        raise _schema_error(
            path, f"the type is {clip(repr(type_))}; only string, integer and boolean are allowed"
        )
    return HeaderParameter(header=header, path=path, type=type_)


def _schema_error(path: tuple[str, ...], rule: str) -> ValueError:
    return ValueError(f"{HEADER_KEYWORD} on {'.'.join(path) or 'the root'!r}: {rule}")


def check_param_headers(
    headers: Headers, arguments: Mapping[str, Any], parameters: Sequence[HeaderParameter]
) -> None:
    """Compare the `Mcp-Param-*` headers with the arguments of a tool call.

    Raises:
        HeaderMismatch: a header is missing, unexpected, repeated, malformed or different.
    """
    for parameter in parameters:
        header = f"Mcp-Param-{parameter.header}"
        value: Any = arguments
        for name in parameter.path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is None:
            if header in headers:
                raise HeaderMismatch(f"{header} repeats an argument that the body does not have")
        elif type(value) is int and abs(value) > MAX_SAFE_INTEGER:
            raise HeaderMismatch(
                f"{header} cannot repeat an integer beyond 2^53-1; the input schema has the bounds"
            )
        elif not _matches_argument(decode_value(_single_value(headers, header)), value):
            raise HeaderMismatch(f"{header} differs from the body")


def _matches_argument(text: str, value: Any) -> bool:
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        # Compare by value: 42 equals 42.0. Python compares an int and a float without rounding.
        match = _INTEGER.fullmatch(text)
        return match is not None and abs(value) <= MAX_SAFE_INTEGER and int(match[1]) == value
    return False


# Subschemas of a JSON Schema ----------------------------------------------------------------------

# The keywords of JSON Schema 2020-12 and the additional ones of draft-07. A key such as ``$ref`` is
# a keyword only where a schema is expected: below ``properties`` it is the name of a property,
# below ``default`` or ``enum`` it is data. Traversing the schema by keyword distinguishes them.

Schema = Mapping[str, Any]

_SINGLE = (
    *("items", "additionalItems", "additionalProperties", "unevaluatedItems"),
    *("unevaluatedProperties", "contains", "contentSchema", "propertyNames"),
    *("not", "if", "then", "else"),
)
_SEQUENCE = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_MAPPING = (
    *("properties", "patternProperties", "dependentSchemas", "dependencies"),
    *("$defs", "definitions"),
)
_KEYWORDS = frozenset((*_SINGLE, *_SEQUENCE, *_MAPPING))
# Almost every value is of the first type, and the check for an abstract class is slow.
_OBJECT = (dict, Mapping)
_OBJECT_OR_FLAG = (dict, bool, Mapping)


def subschemas(schema: Schema) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield each direct subschema of `schema` with its place: the keyword and the name or index."""
    if _KEYWORDS.isdisjoint(schema):
        return
    for keyword in _SINGLE:
        if keyword in schema and isinstance(schema[keyword], _OBJECT_OR_FLAG):
            yield (keyword,), schema[keyword]
    for keyword in _SEQUENCE:
        if keyword in schema and isinstance(schema[keyword], list | tuple):
            yield from (((keyword, n), subschema) for n, subschema in enumerate(schema[keyword]))
    for keyword in _MAPPING:
        if keyword in schema and isinstance(schema[keyword], _OBJECT):
            yield from (((keyword, name), subschema) for name, subschema in schema[keyword].items())


def map_subschemas(schema: Schema, change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a copy of `schema` with `change` applied to each direct subschema."""
    return map_placed_subschemas(schema, lambda place, child: change(child))


def map_placed_subschemas(
    schema: Schema, change: Callable[[tuple[str | int, ...], Any], Any]
) -> dict[str, Any]:
    """Return a copy of `schema` with `change` applied to each direct subschema and its place.

    The place is that of `subschemas`.
    """
    copy = dict(schema)
    if _KEYWORDS.isdisjoint(schema):
        return copy
    for keyword in _SINGLE:
        if keyword in schema and isinstance(schema[keyword], _OBJECT_OR_FLAG):
            copy[keyword] = change((keyword,), schema[keyword])
    for keyword in _SEQUENCE:
        if keyword in schema and isinstance(schema[keyword], list | tuple):
            copy[keyword] = [change((keyword, n), child) for n, child in enumerate(schema[keyword])]
    for keyword in _MAPPING:
        if keyword in schema and isinstance(schema[keyword], _OBJECT):
            members = schema[keyword].items()
            copy[keyword] = {name: change((keyword, name), child) for name, child in members}
    return copy
