"""Schemas and validation for the parameters of a function, by pydantic.

Signatures are read with all hints resolved, through ``functools.wraps``, ``functools.partial``,
bound methods and callable objects. Reading a signature does not check whether its hints are valid
for arguments; that is checked when the schema is created.

Everything is compiled once, when the function is declared.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from inspect import Parameter, Signature
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from django.core.exceptions import ImproperlyConfigured
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from mcp_django.protocol.headers import map_subschemas
from mcp_django.schema.arguments import InvalidArguments, ValidationProblem, to_json_text
from mcp_django.schema.portable import portable_input
from mcp_django.schema.problems import explain_errors
from mcp_django.schema.pydantic_schemas import (
    BASE64,
    NOT_BUILDABLE,
    error_reason,
    typed_dict_adapter,
)
from mcp_django.schema.structure import Schema, accepts_null, inline_references, walk
from mcp_django.schema.values import (
    decode_arguments,
    drop_nulls,
    exact_integers,
    has_no_arguments,
)
from mcp_django.schema.vocabulary import append_sentence

AnyCallable = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredParameter:
    """One parameter of a function that a caller can set."""

    name: str
    hint: Any
    """The resolved annotation, including `Annotated`; `Any` if there is none."""
    default: Any
    """The declared default, `inspect.Parameter.empty` if there is none."""


def read_parameters(
    function: AnyCallable, *, skip: Iterable[str] = ()
) -> tuple[DeclaredParameter, ...]:
    """Return the parameters of a function in order, without those named in `skip`.

    Arguments that `functools.partial` has bound by name are no longer parameters.

    Raises:
        ImproperlyConfigured: a hint cannot be resolved, or the function has `*args` or `**kwargs`.
    """
    skipped = {*skip, *_bound_names(function)}
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in skipped:
            continue
        if parameter.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
            raise ImproperlyConfigured(
                f"{function_name(function)} takes {parameter}, but a model must know the names of "
                "all arguments. Declare each one as a separate parameter."
            )
        has_hint = parameter.annotation is not Parameter.empty
        hint = _resolve_hint(function, name, parameter.annotation) if has_hint else Any
        parameters.append(DeclaredParameter(name=name, hint=hint, default=parameter.default))
    return tuple(parameters)


def positional_names(function: AnyCallable) -> tuple[str, ...]:
    """Return the names of the positional-only parameters, in order."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(
        parameter.name for parameter in parameters if parameter.kind is Parameter.POSITIONAL_ONLY
    )


def return_annotation(function: AnyCallable) -> Any:
    """Return the resolved return annotation, `inspect.Signature.empty` if there is none.

    Raises:
        ImproperlyConfigured: the hint cannot be resolved.
    """
    hint = inspect.signature(function).return_annotation
    return hint if hint is Signature.empty else _resolve_hint(function, "return", hint)


def function_name(function: AnyCallable) -> str:
    """Return the dotted name of a function for error messages."""
    inner = _unwrap_function(function)
    module = getattr(inner, "__module__", None)
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return f"{module}.{name}" if module else str(name)


def _resolve_hint(function: AnyCallable, name: str, hint: Any) -> Any:
    inner = _unwrap_function(function)
    carrier = SimpleNamespace(__annotations__={name: hint})
    try:
        namespace = getattr(inner, "__globals__", {})
        return get_type_hints(carrier, globalns=namespace, include_extras=True)[name]
    except (NameError, AttributeError) as exc:
        raise ImproperlyConfigured(
            f"{function_name(function)} declares {name!r} as {format_hint(hint)}, which cannot "
            "be resolved "
            f"({exc}). Define or import the type at the top level of the module, not inside "
            "a function or under TYPE_CHECKING."
        ) from exc


def format_hint(hint: Any) -> str:
    """Return a hint as it is written in source code."""
    return hint if isinstance(hint, str) else inspect.formatannotation(hint)


def _unwrap_function(function: Any) -> Any:
    """Return the unwrapped function, in whose module the hints were written."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.isroutine(function) or isinstance(function, type):
            return function
        else:
            function = type(function).__call__


def _bound_names(function: Any) -> set[str]:
    if isinstance(function, functools.partial):
        return {*function.keywords, *_bound_names(function.func)}
    return set()


# Arguments ----------------------------------------------------------------------------------------

# The parameters become the fields of a ``TypedDict``, which allows every name (``copy``, ``schema``
# and ``_x`` are not allowed in a model class), and pydantic parses the JSON text directly.

_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False, **BASE64)
_PATH_FORMATS = frozenset({"path", "file-path", "directory-path"})

UNIONS = frozenset({Union, UnionType})
COLLECTIONS = (list, tuple, set, frozenset, dict, deque)

# Shorter numbers survive conversion to a float, because IEEE 754 keeps 15 significant digits.
_MAYBE_INEXACT = re.compile(rb"[\d.]{16}|\d[eE][+-]?\d")


class SignatureArguments:
    """Parses arguments as the signature of a function declares them.

    With `strict`, the published schema is in the strict dialect, where `null` means that the
    argument is omitted.
    """

    def __init__(
        self, function: AnyCallable, *, skip: Iterable[str] = frozenset(), strict: bool = False
    ) -> None:
        self._positional = positional_names(function)
        self._adapter, shape = _build(function, read_parameters(function, skip=skip))
        try:
            self._shape = inline_references(shape)
            portable = portable_input(self._shape)
            self.json_schema = to_strict(portable) if strict else portable
        except ValueError as exc:
            raise ImproperlyConfigured(f"{function_name(function)}: {exc}") from exc
        formats = {path: inner["format"] for path, inner in walk(self._shape) if "format" in inner}
        for path, name in formats.items():
            if name in _PATH_FORMATS:
                raise ImproperlyConfigured(
                    f"{function_name(function)} takes a file system path at "
                    f"{'/'.join(map(str, path))}. A model could choose any path; use a str and "
                    "open the file through a Django storage, which allows only paths inside its "
                    "own directory."
                )
        self._has_decimals = "decimal" in formats.values()

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the arguments by the names of their parameters, including defaults.

        Raises:
            InvalidArguments: the arguments are not valid; the model can correct the call.
        """
        # A usual body is not copied, nor compared as a whole.
        text = b"{}" if not raw.startswith(b"{") and has_no_arguments(raw) else raw
        is_inexact = self._has_decimals and _MAYBE_INEXACT.search(text) is not None
        if b"null" in text or is_inexact:
            # Without optional nulls, and without floats that would be rounded.
            values = decode_arguments(text, parse_float=_exact_number if is_inexact else float)
            text = json.dumps(drop_nulls(values, self._shape, self._shape)).encode()
        try:
            arguments: dict[str, Any] = self._adapter.validate_json(text)
        except ValidationError as exc:
            data = decode_arguments(text, parse_float=float)
            raise InvalidArguments(explain_errors(exc, data, self._shape)) from exc
        except OverflowError as exc:
            # pydantic computes a duration, or a date from a number, that Python cannot represent.
            problem = ValidationProblem(path="", message=f"a value is too large: {exc}")
            raise InvalidArguments([problem]) from exc
        return arguments

    def bind(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments with which to call the function.

        `values` contains the result of `parse` and the values of the skipped parameters.
        """
        arguments = dict(values)
        return tuple(arguments.pop(name) for name in self._positional), arguments


def _exact_number(text: str) -> float | str:
    """Return a number as text if a float would round it; a decimal accepts both."""
    value = float(text)
    return value if math.isfinite(value) and Decimal(repr(value)) == Decimal(text) else text


def _build(
    function: AnyCallable, parameters: Sequence[DeclaredParameter]
) -> tuple[TypeAdapter[dict[str, Any]], Schema]:
    try:
        return _compile(parameters)
    except NOT_BUILDABLE as exc:
        what = "its parameters"
        for parameter in parameters:
            try:
                _compile([parameter])
            except NOT_BUILDABLE:
                what = f"{parameter.name!r} as {format_hint(parameter.hint)}"
                break
        reason = error_reason(exc)
        raise ImproperlyConfigured(
            f"{function_name(function)} declares {what}, which cannot be read from JSON: "
            f"{reason}. Use "
            "strings, numbers, lists, dataclasses or pydantic models, and the key of a database "
            "object."
        ) from exc


def _compile(
    parameters: Sequence[DeclaredParameter],
) -> tuple[TypeAdapter[dict[str, Any]], Schema]:
    fields: dict[str, Any] = {}
    for parameter in parameters:
        hint, metadata = parameter.hint, []
        if get_origin(hint) is Annotated:
            hint, *metadata = get_args(hint)
        # A plain string is a description; a description in `Field` overrides it.
        words = [Field(description=value) for value in metadata if isinstance(value, str)]
        details = [*words, *(value for value in metadata if not isinstance(value, str))]
        if isinstance(parameter.default, FieldInfo):
            details.append(parameter.default)
        elif parameter.default is not Parameter.empty:
            details.append(Field(default=parameter.default))
        hint = _reading_digits(hint)
        fields[parameter.name] = Annotated[(hint, *details)] if details else hint
    create: Any = TypedDict
    return typed_dict_adapter(create("Arguments", fields), _CONFIG)


def _reading_digits(hint: Any) -> Any:
    """Return the hint; each `Literal` in it accepts integers beyond 2^53-1 as digits, too."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is not Literal:
        inner = tuple(_reading_digits(argument) for argument in arguments)
        if inner == arguments or not (origin in UNIONS or origin in COLLECTIONS):
            return hint
        return Union[inner] if origin in UNIONS else origin[inner]  # noqa: UP007
    digits = {str(value): value for value in arguments if exact_integers(value) is not value}
    if not digits:
        return hint

    def read(value: Any) -> Any:
        return digits.get(value, value) if isinstance(value, str) else value

    published = {"enum": [exact_integers(value) for value in arguments]}
    return Annotated[hint, BeforeValidator(read), WithJsonSchema(published)]


_NON_STRICT_KEYWORDS = frozenset({"default", "uniqueItems"})


def to_strict(schema: Schema) -> Schema:
    """Return a portable schema in the strict dialect: every member is required, no others allowed.

    Some model APIs guarantee arguments that match the schema exactly, if every object lists all its
    members as required and optional ones may be ``null``. This is opt-in, because the dialect is
    less expressive: it has no defaults and no maps with free keys.

    Raises:
        ValueError: the schema has a map with free keys, which the dialect cannot describe.
    """
    for path, member in walk(schema):
        has_free_keys = (
            "properties" not in member
            or member.get("additionalProperties")
            or "patternProperties" in member
        )
        if member.get("type") == "object" and has_free_keys:
            where = "/".join(map(str, path)) or "the root"
            raise ValueError(
                f"The strict dialect cannot describe the object at {where}, because its keys are "
                "not fixed; use a list of objects with a key and a value instead."
            )
    result: Schema = _strict(schema, root=schema)
    return result


def _strict(schema: Any, *, root: Schema) -> Any:
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "object":
        required = schema.get("required", ())
        properties = {
            name: member
            if name in required or not isinstance(member, dict)
            else _nullable(member, root)
            for name, member in schema["properties"].items()
        }
        schema = {**schema, "properties": properties, "additionalProperties": False}
        if properties:
            schema["required"] = list(properties)
    result = map_subschemas(schema, lambda child: _strict(child, root=root))
    return {key: value for key, value in result.items() if key not in _NON_STRICT_KEYWORDS}


def _nullable(member: Schema, root: Schema) -> Schema:
    member = dict(member)
    default = member.pop("default", None)
    shared = {"description": member.pop("description")} if "description" in member else {}
    if default is not None:
        sentence = f"Default: {to_json_text(default)}."
        shared["description"] = append_sentence(shared.get("description", ""), sentence)
    if accepts_null(root, member):
        return {**member, **shared}
    kinds = member.pop("anyOf") if set(member) == {"anyOf"} else [member]
    return {"anyOf": [*kinds, {"type": "null"}], **shared}
