"""Decoding of JSON arguments, and conversion of results to plain JSON values.

Numbers keep every digit (RFC 8259, section 6, leaves precision to the implementation), so that an
amount of money is never rounded through a float. If a name is repeated, the last value counts, as
everywhere in this package.

Some hosts and models send no arguments at all, or ``null`` for an omitted argument, which JSON
Schema does not allow. Both are accepted.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import io
import json
import math
from abc import ABCMeta
from collections.abc import (
    AsyncIterable,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Set as AbstractSet,
)
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from pathlib import PurePath
from types import NoneType
from typing import Any, Self
from uuid import UUID

import msgspec
from django.db.models import Manager, Model, QuerySet
from django.db.models.query import ModelIterable
from django.http.response import HttpResponseBase
from django.utils.functional import Promise
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from mcp_django.protocol import content
from mcp_django.protocol.headers import MAX_SAFE_INTEGER
from mcp_django.schema.arguments import (
    ValidationProblem,
    format_path,
    invalid_argument,
    unknown_argument_problem,
)
from mcp_django.schema.structure import Path, Schema, accepts_null, alternatives

# More than forms and serializers need; deeper values would exceed Python's recursion limit here.
MAX_DEPTH = 64


class _ExactFloat(float):
    """A float that keeps its source text; `str` returns it, for conversion to a `Decimal`."""

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> Self:
        self = super().__new__(cls, text)
        self.text = text
        return self

    def __str__(self) -> str:
        return self.text


def has_no_arguments(raw: bytes) -> bool:
    """Return whether a call has no arguments."""
    return raw.strip() in {b"", b"null"}


def decode_arguments(
    raw: bytes, *, parse_float: Callable[[str], Any] = _ExactFloat
) -> dict[str, Any]:
    """Return the arguments as plain JSON values.

    Raises:
        InvalidArguments: the text is not a JSON object.
    """
    if has_no_arguments(raw):
        return {}
    try:
        arguments = json.loads(raw, parse_float=parse_float, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        if isinstance(exc, RecursionError):
            reason = "it is nested too deep"
        elif isinstance(exc, json.JSONDecodeError | UnicodeDecodeError | _InvalidNumberError):
            reason = str(exc)
        else:
            # An integer with too many digits; Python's message names its settings.
            reason = "a number is too large"
        raise invalid_argument("", f"the arguments are not valid JSON: {reason}") from exc
    if is_too_deep(raw, arguments):
        raise invalid_argument("", f"the arguments are nested deeper than {MAX_DEPTH} levels")
    if not isinstance(arguments, dict):
        raise invalid_argument("", "the arguments must be an object", value=arguments)
    return arguments


def is_too_deep(raw: bytes, value: Any) -> bool:
    """Return whether lists and objects are nested deeper than `MAX_DEPTH`."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for member in level:
            if isinstance(member, dict):
                inner.extend(member.values())
            elif isinstance(member, list):
                inner.extend(member)
        level = [member for member in inner if isinstance(member, dict | list)]
        if not level:
            return False
    return True


def sorted_members(value: Any) -> Any:
    """Return a JSON value with the members of each object sorted by name.

    Digests of arguments are computed from the `repr()` of the result, so that the order of the
    arguments does not matter.
    """
    if isinstance(value, Mapping):
        return {name: sorted_members(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [sorted_members(element) for element in value]
    return value


def finite_float(text: str) -> float:
    """Return a number as a float, or raise `ValueError` if it is too large."""
    value = float(text)
    if not math.isfinite(value):
        raise _InvalidNumberError("a number is too large")
    return value


def drop_nulls(value: Any, schema: Any, root: Schema) -> Any:
    """Return `value` without members that are `null`, but are optional and must not be `null`."""
    if isinstance(value, list):
        items = schema.get("items") if isinstance(schema, dict) else None
        return [drop_nulls(element, items, root) for element in value]
    if not isinstance(value, dict):
        return value
    objects = [member for member in alternatives(root, schema) if "properties" in member]
    if len(objects) != 1:
        return value
    properties, required = objects[0]["properties"], objects[0].get("required", ())
    return {
        name: drop_nulls(member, properties.get(name), root)
        for name, member in value.items()
        if member is not None
        or name not in properties
        or name in required
        or accepts_null(root, properties[name])
    }


def drop_optional_nulls(arguments: Mapping[str, Any], optional: Collection[str]) -> dict[str, Any]:
    """Return the arguments without optional ones that are `null`; a null would empty a field."""
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name not in optional
    }


def unknown_members(value: Any, schema: Any, path: Path = ()) -> Iterator[ValidationProblem]:
    """Yield a problem for each name in `value` that a closed schema does not list."""
    if not isinstance(schema, dict):
        return
    if isinstance(value, list):
        for index, element in enumerate(value):
            yield from unknown_members(element, schema.get("items"), (*path, index))
    elif isinstance(value, dict) and "properties" in schema:
        properties = schema["properties"]
        for name, member in value.items():
            if name in properties:
                yield from unknown_members(member, properties[name], (*path, name))
            elif schema.get("additionalProperties") is False:
                yield unknown_argument_problem(name, properties, path=format_path(path))


def _refuse_constant(name: str) -> Any:
    raise _InvalidNumberError(f"{name} is not a JSON number")


class _InvalidNumberError(ValueError):
    """A number is not valid JSON or not supported."""


# Results without a declared type ------------------------------------------------------------------

# They are converted to plain JSON. Types that are common in Django code are accepted. Types without
# an unambiguous JSON form are rejected with an error that says what to return instead. A model
# instance, for example, may have columns that the caller must not see.

# The results of `get_type_hints` for annotations that name no type of data.
_OPEN = (Any, object, NoneType, inspect.Signature.empty)

_DATA_ADVICE = "a dict, a list, a dataclass or text"
_FIELDS_ADVICE = "the fields that the caller may see, as with .values('id', 'name')"

CONTENT_CLASSES = (
    content.Text,
    content.Image,
    content.Audio,
    content.EmbeddedResource,
    content.ResourceLink,
    content.Message,
    content.ResourceContents,
    content.ToolResult,
)


def jsonable(value: Any) -> Any:
    """Return the value converted to None, bool, int, float, str, list and dict.

    Raises:
        TypeError: the value contains a type that is not data; the message says what to return.
        ValueError: the value contains NaN or Infinity, or is nested too deep.
    """
    return _convert(value, ())


def advice_for(hint: Any) -> str:
    """Return advice for a type whose values are not data: what to return instead; else ``""``.

    Content blocks are not data, but may be returned. A value of an abstract class or protocol may
    be data, and so may one of a type that only pydantic knows, such as ``EmailStr``.
    """
    if not isinstance(hint, type) or isinstance(hint, ABCMeta) or hint in _OPEN:
        return ""
    if issubclass(hint, CONTENT_CLASSES):
        return ""
    for kinds, convert in _CONVERSIONS:
        if issubclass(hint, kinds):
            return convert.instead if isinstance(convert, _Rejecter) else ""
    is_known = dataclasses.is_dataclass(hint) or hasattr(hint, "__get_pydantic_core_schema__")
    return "" if is_known else _DATA_ADVICE


def exact_integers(value: Any) -> Any:
    """Return plain JSON with integers beyond ±(2^53-1) as digits in text.

    Hosts in JavaScript would round them, and a rounded key identifies another row (RFC 8259,
    section 6; RFC 7493, section 2.2).
    """
    # Encoding the value and checking the text takes a tenth of the time of a search in the value.
    with suppress(TypeError, ValueError, OverflowError):
        if _SAFE_DIGITS not in msgspec.json.encode(value).translate(_ONLY_DIGITS):
            return value
    return _digits(value) if _has_inexact(value) else value


# A number with fewer digits is exact.
_SAFE_DIGITS = b"0" * len(str(MAX_SAFE_INTEGER))
_ONLY_DIGITS = bytes(ord("0") if chr(byte).isdecimal() else ord(" ") for byte in range(256))


def _has_inexact(value: Any) -> bool:
    kind = type(value)
    if kind is int:
        return not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER
    if kind is dict:
        return any(map(_has_inexact, value.values()))
    return kind is list and any(map(_has_inexact, value))


def _digits(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _digits(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_digits(element) for element in value]
    is_inexact = type(value) is int and abs(value) > MAX_SAFE_INTEGER
    return str(value) if is_inexact else value


def check_finite(value: Any) -> None:
    """Reject NaN and Infinity in a value that is otherwise plain JSON.

    Raises:
        ValueError: the message names the place of the number.
    """
    # Encoding the value takes a tenth of the time of a search in the value. msgspec, which is
    # faster than pydantic, writes these numbers as null.
    with suppress(TypeError, ValueError, OverflowError):
        if b"null" not in msgspec.json.encode(value):
            return
        text = to_json(value, inf_nan_mode="constants")
        if b"NaN" not in text and b"Infinity" not in text:
            return
    _find_infinite(value, ())


def _find_infinite(value: Any, path: Path) -> None:
    if isinstance(value, float):
        _float(value, path)
    elif isinstance(value, dict):
        for name, member in value.items():
            _find_infinite(member, (*path, name))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            _find_infinite(element, (*path, index))


def _convert(value: Any, path: Path) -> Any:
    if len(path) > MAX_DEPTH:
        raise ValueError(f"{_result_path(path[:3])}… is nested deeper than {MAX_DEPTH} levels.")
    exact = _EXACT.get(type(value))
    if exact is not None:
        return exact(value, path)
    for kinds, convert in _CONVERSIONS:
        if isinstance(value, kinds):
            return convert(value, path)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _mapping({f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, path)
    raise _unsupported_type(value, path, _DATA_ADVICE)


def _result_path(path: Path) -> str:
    return format_path(("result", *path))


def _unsupported_type(value: Any, path: Path, instead: str) -> TypeError:
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return TypeError(
        f"{_result_path(path)} is of type {name}, which cannot be converted to JSON; return "
        f"{instead}."
    )


def _float(value: float, path: Path) -> float:
    if not math.isfinite(value):
        raise ValueError(
            f"{_result_path(path)} is {value}, which is not valid in JSON; return None instead."
        )
    return float(value)


def _decimal(value: Decimal, path: Path) -> str:
    if not value.is_finite():
        raise ValueError(
            f"{_result_path(path)} is {value}, which is not a finite number; return None instead."
        )
    return str(value)


def _mapping(value: Mapping[Any, Any], path: Path) -> dict[str, Any]:
    members = ((_key(key, path), member) for key, member in value.items())
    return {name: _convert(member, (*path, name)) for name, member in members}


def _key(key: Any, path: Path) -> str:
    if type(key) is str:
        return key
    plain = _convert(key, path)
    if isinstance(plain, dict | list):
        raise TypeError(f"{_result_path(path)} has the key {key!r}; keys in JSON must be strings.")
    return plain if isinstance(plain, str) else json.dumps(plain)


def _items(value: Any, path: Path) -> list[Any]:
    return [_convert(element, (*path, index)) for index, element in enumerate(value)]


def _set(value: AbstractSet[Any], path: Path) -> list[Any]:
    try:
        # Sort, because the order of a set of strings differs between processes.
        return _items(sorted(value), path)
    except TypeError:
        return _items(value, path)


def _queryset(value: QuerySet[Any], path: Path) -> list[Any]:
    if issubclass(value._iterable_class, ModelIterable):
        raise _unsupported_type(value, path, _FIELDS_ADVICE)
    return _items(value, path)


def _model(value: BaseModel, path: Path) -> Any:
    try:
        plain = to_jsonable_python(value, by_alias=True)
    except (PydanticSerializationError, UnicodeDecodeError) as exc:
        raise TypeError(f"{_result_path(path)} cannot be written as JSON: {exc}") from exc
    return _convert(plain, path)


_Converter = Callable[[Any, Path], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Rejecter:
    instead: str

    def __call__(self, value: Any, path: Path) -> Any:
        raise _unsupported_type(value, path, self.instead)


_EXACT: Mapping[type, _Converter] = {
    **dict.fromkeys((type(None), bool, int, str), lambda value, path: value),
    float: _float,
    dict: _mapping,
    list: _items,
}

# The most specific type comes first, because content classes are dataclasses, bytes are a
# collection, a member of TextChoices is a string, and a queryset is an asynchronous iterable.
_CONVERSIONS: tuple[tuple[Any, _Converter], ...] = (
    (Model, _Rejecter("the fields that the caller may see, in a dict or a dataclass")),
    (Manager, _Rejecter(_FIELDS_ADVICE)),
    (CONTENT_CLASSES, _Rejecter("content blocks alone or in a list, not inside another value")),
    ((bytes, bytearray, memoryview), _Rejecter("Image, Audio or EmbeddedResource, or text")),
    (HttpResponseBase, _Rejecter("the data of the response")),
    (io.IOBase, _Rejecter("the contents of the file, as text or an EmbeddedResource")),
    (Awaitable, _Rejecter("the result of awaiting it")),
    (QuerySet, _queryset),
    (AsyncIterable, _Rejecter("a list of its items: [item async for item in ...]")),
    (Enum, lambda value, path: _convert(value.value, path)),
    (Promise, lambda value, path: str(value)),
    (str, lambda value, path: str.__str__(value)),
    (int, lambda value, path: int(value)),
    (float, _float),
    (Decimal, _decimal),
    # ISO 8601 with Z for UTC, as for results with a declared type (RFC 3339, 5.6).
    ((dt.date, dt.time), lambda value, path: value.isoformat().replace("+00:00", "Z")),
    (dt.timedelta, lambda value, path: to_jsonable_python(value)),
    ((UUID, PurePath, IPv4Address, IPv6Address), lambda value, path: str(value)),
    (BaseModel, _model),
    (Mapping, _mapping),
    (
        tuple,
        lambda value, path: (
            _mapping(value._asdict(), path) if hasattr(value, "_asdict") else _items(value, path)
        ),
    ),
    (AbstractSet, _set),
    ((Collection, Iterator), _items),
)
