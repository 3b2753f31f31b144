"""Schemas and validation for the parameters and the return type of a function, by pydantic.

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
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
    Set as AbstractSet,
)
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from inspect import Parameter, Signature
from types import SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    Protocol,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import (
    PydanticInvalidForJsonSchema,
    PydanticUndefinedAnnotation,
    PydanticUserError,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticSerializationError, SchemaError, core_schema
from typing_extensions import TypedDict, is_typeddict

from mcp_django.protocol.errors import MCPDjangoError
from mcp_django.schema.arguments import InvalidArguments, ValidationProblem, format_problems
from mcp_django.schema.portable import (
    RULES_KEYWORD,
    portable_input,
    portable_output,
    to_strict as strict_dialect,
)
from mcp_django.schema.problems import explain_errors
from mcp_django.schema.structure import Schema, inline_references, walk
from mcp_django.schema.values import (
    CONTENT_CLASSES,
    advice_for,
    check_finite,
    decode_arguments,
    drop_nulls,
    has_no_arguments,
    jsonable,
)

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

    Arguments that `functools.partial` has bound by name are not parameters any more.

    Raises:
        ImproperlyConfigured: a hint cannot be resolved, or the function has `*args` or `**kwargs`.
    """
    skipped = {*skip, *_bound_names(function)}
    signature = inspect.signature(function)
    return tuple(
        _read_parameter(function, parameter)
        for name, parameter in signature.parameters.items()
        if name not in skipped
    )


def positional_names(function: AnyCallable) -> tuple[str, ...]:
    """Return the names of the positional-only parameters, in order."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(one.name for one in parameters if one.kind is Parameter.POSITIONAL_ONLY)


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


def _read_parameter(function: AnyCallable, parameter: Parameter) -> DeclaredParameter:
    if parameter.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
        raise ImproperlyConfigured(
            f"{function_name(function)} takes {parameter}, but a model must know the names of all "
            "arguments. Declare each one as a separate parameter."
        )
    has_hint = parameter.annotation is not Parameter.empty
    return DeclaredParameter(
        name=parameter.name,
        hint=_resolve_hint(function, parameter.name, parameter.annotation) if has_hint else Any,
        default=parameter.default,
    )


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


# The generated JSON Schema ------------------------------------------------------------------------

# The schema is pydantic's, except for a few types whose schema would mislead a model. A decimal is
# a string, so that it is not rounded through a float, and its bounds are in words, because no
# keyword limits a string by value. Bytes are Base64 (RFC 4648).

Mode = Literal["validation", "serialization"]

BASE64 = ConfigDict(val_json_bytes="base64", ser_json_bytes="base64")

_DECIMAL_RULES = (
    ("gt", "greater than {}"),
    ("ge", "at least {}"),
    ("lt", "less than {}"),
    ("le", "at most {}"),
    ("multiple_of", "a multiple of {}"),
    ("max_digits", "of at most {} digits"),
    ("decimal_places", "of at most {} decimal places"),
)


def json_schema_of(adapter: TypeAdapter[Any], mode: Mode) -> dict[str, Any]:
    """Return the schema of a pydantic adapter, not yet portable."""
    return adapter.json_schema(mode=mode, schema_generator=_SchemaGenerator)


def error_reason(exc: Exception) -> str:
    """Return why a type cannot be compiled, without pydantic's advice, which does not apply."""
    return str(exc).partition("\n")[0].partition(". Set ")[0].rstrip(".")


class _SchemaGenerator(GenerateJsonSchema):
    """Generates the schema of one pydantic adapter."""

    # A default that JSON cannot represent is omitted from the schema, but is still used.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        result: JsonSchemaValue = {"type": "string", "format": "decimal"}
        if rules := _decimal_rules(schema):
            result[RULES_KEYWORD] = ", ".join(rules)
        return result

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        if self._config.val_json_bytes != "base64":
            return {"type": "string"}
        # pydantic decodes both Base64 alphabets and encodes with the URL-safe one.
        is_read = self.mode == "validation"
        return {"type": "string", "contentEncoding": "base64" if is_read else "base64url"}

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _forbid_extra(super().dataclass_schema(schema), schema)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _forbid_extra(super().typed_dict_schema(schema), schema)

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        for value in schema["expected"]:
            is_readable = not isinstance(value, Enum) or isinstance(value, str | int)
            if self.mode == "validation" and not is_readable:
                raise PydanticInvalidForJsonSchema(
                    f"pydantic cannot read {value!r} from JSON in a Literal; use its value there, "
                    "or derive the enum from str"
                )
        return super().literal_schema(schema)


def _forbid_extra(result: JsonSchemaValue, schema: Any) -> JsonSchemaValue:
    # Before 2.14, pydantic omits this for a type that inherits its configuration.
    if schema.get("config", {}).get("extra_fields_behavior") == "forbid":
        result["additionalProperties"] = False
    return result


def _decimal_rules(schema: core_schema.DecimalSchema) -> list[str]:
    bounds: dict[str, Any] = {**schema}
    return [words.format(bounds[key]) for key, words in _DECIMAL_RULES if key in bounds]


# Arguments ----------------------------------------------------------------------------------------

# The parameters become the fields of a ``TypedDict``, which allows every name (``copy``, ``schema``
# and ``_x`` are not allowed in a model class), and pydantic parses the JSON text directly.

_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False, **BASE64)
_PATH_FORMATS = frozenset({"path", "file-path", "directory-path"})
_NOT_BUILDABLE = (PydanticUserError, PydanticUndefinedAnnotation, SchemaError, TypeError)

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
            self.json_schema = strict_dialect(portable) if strict else portable
        except ValueError as exc:
            raise ImproperlyConfigured(f"{function_name(function)}: {exc}") from exc
        _reject_paths(function, self._shape)
        self._has_decimals = any(
            member.get("format") == "decimal" for _, member in walk(self._shape)
        )

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the arguments by the names of their parameters, including defaults.

        Raises:
            InvalidArguments: the arguments are not valid; the model can correct the call.
        """
        is_usual = raw.startswith(b"{") and b"null" not in raw and not self._has_decimals
        text = raw if is_usual else self._prepare(raw)
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
        named = dict(values)
        return tuple(named.pop(name) for name in self._positional), named

    def _prepare(self, raw: bytes) -> bytes:
        """Return the JSON text without optional nulls and without floats that would be rounded."""
        if has_no_arguments(raw):
            return b"{}"
        is_inexact = self._has_decimals and _MAYBE_INEXACT.search(raw) is not None
        if b"null" not in raw and not is_inexact:
            return raw
        arguments = decode_arguments(raw, parse_float=_exact_number if is_inexact else float)
        return json.dumps(drop_nulls(arguments, self._shape, self._shape)).encode()


def _exact_number(text: str) -> float | str:
    """Return a number as text if a float would round it; a decimal accepts both."""
    value = float(text)
    return value if math.isfinite(value) and Decimal(repr(value)) == Decimal(text) else text


def _build(
    function: AnyCallable, parameters: Sequence[DeclaredParameter]
) -> tuple[TypeAdapter[dict[str, Any]], Schema]:
    try:
        return _compile(parameters)
    except _NOT_BUILDABLE as exc:
        culprit = next((one for one in parameters if not _is_buildable(one)), None)
        what = f"{culprit.name!r} as {format_hint(culprit.hint)}" if culprit else "its parameters"
        reason = error_reason(exc)
        raise ImproperlyConfigured(
            f"{function_name(function)} declares {what}, which cannot be read from JSON: "
            f"{reason}. Use "
            "strings, numbers, lists, dataclasses or pydantic models, and the key of a database "
            "object."
        ) from exc


def _is_buildable(parameter: DeclaredParameter) -> bool:
    try:
        _compile([parameter])
    except _NOT_BUILDABLE:
        return False
    return True


def _compile(
    parameters: Sequence[DeclaredParameter],
) -> tuple[TypeAdapter[dict[str, Any]], Schema]:
    fields = {one.name: _annotation(one) for one in parameters}
    adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(_typed_dict(fields))
    return adapter, json_schema_of(adapter, "validation")


def _typed_dict(fields: dict[str, Any]) -> Any:
    create: Any = TypedDict
    arguments = create("Arguments", fields)
    # pydantic applies it to nested dataclasses and TypedDicts too, but not to models.
    arguments.__pydantic_config__ = _CONFIG
    return arguments


def _annotation(parameter: DeclaredParameter) -> Any:
    hint, metadata = parameter.hint, []
    if get_origin(hint) is Annotated:
        hint, *metadata = get_args(hint)
    # A plain string is a description; a description in `Field` overrides it.
    words = [Field(description=item) for item in metadata if isinstance(item, str)]
    rules = [item for item in metadata if not isinstance(item, str)]
    if parameter.default is Parameter.empty:
        fallback = []
    elif isinstance(parameter.default, FieldInfo):
        fallback = [parameter.default]
    else:
        fallback = [Field(default=parameter.default)]
    return Annotated[(hint, *words, *rules, *fallback)] if words or rules or fallback else hint


def _reject_paths(function: AnyCallable, shape: Schema) -> None:
    for path, member in walk(shape):
        if member.get("format") in _PATH_FORMATS:
            raise ImproperlyConfigured(
                f"{function_name(function)} takes a file system path at "
                f"{'/'.join(map(str, path))}. A "
                "model could choose any path; use a str and open the file through a Django "
                "storage, which allows only paths inside its own directory."
            )


# Results ------------------------------------------------------------------------------------------

# Clients reject a result that does not match the published schema, so values are validated before
# they are sent (MCP 2026-07-28, "Tools", structured content). Results without a declared type are
# converted by ``jsonable``.

_OUTPUT_CONFIG = ConfigDict(allow_inf_nan=False, ser_json_inf_nan="constants", **BASE64)
_REVALIDATING_CONFIG = ConfigDict(revalidate_instances="always", **_OUTPUT_CONFIG)

_BOUNDS = frozenset(
    {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        RULES_KEYWORD,
    }
)
_TYPE_KEYWORDS = frozenset({"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"})
_NOT_WRITABLE = (*_NOT_BUILDABLE, ValueError)


class OutputMismatch(MCPDjangoError):
    """A function's result does not match its declaration: a bug of the site, not of the caller."""

    def __init__(self, problems: Iterable[ValidationProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            f"The result does not match its declaration.\n{format_problems(self.problems)}"
        )


class OutputAdapter(Protocol):
    """Validates and serializes results of one declared type or schema."""

    @property
    def json_schema(self) -> dict[str, Any]:
        """The schema to publish, in the portable subset; its root may have any type."""
        ...

    def dump(self, value: Any) -> Any:
        """Return the value as plain JSON that matches the schema.

        Raises:
            OutputMismatch: the value does not match the schema.
        """
        ...


def output_adapter(annotation: Any) -> OutputAdapter | None:
    """Return an adapter for a return type, or `None` for text and content, which have no schema.

    Raises:
        ImproperlyConfigured: no value of the type can be written as JSON.
    """
    if _has_structure(annotation):
        return TypedOutput(annotation)
    for member in _members(annotation):
        if instead := advice_for(member):
            raise ImproperlyConfigured(
                f"The result type {format_hint(member)} cannot be written as JSON; return "
                f"{instead}."
            )
    return None


class TypedOutput:
    """Validates and serializes results of one Python type.

    A dataclass instance is used unchanged if its values have the declared types, so that
    `__post_init__` runs only once. If a value must be converted, or the type has bounds, the fields
    are validated like those of a dict.
    """

    def __init__(self, annotation: Any) -> None:
        try:
            hint = _iterable_as_list(annotation)
            self._adapters = (
                _dict_adapter(hint, _OUTPUT_CONFIG),
                _dict_adapter(hint, _REVALIDATING_CONFIG),
            )
            self._shape = inline_references(json_schema_of(self._adapters[0], "serialization"))
            self.json_schema = portable_output(_value_schema(self._shape))
        except _NOT_WRITABLE as exc:
            raise ImproperlyConfigured(
                f"The result type {format_hint(annotation)} cannot be written as JSON: "
                f"{error_reason(exc)}. "
                "Return dataclasses, pydantic models, lists and dicts of strings and numbers."
            ) from exc
        members = [member for _, member in walk(self._shape)]
        self._has_bounds = any(_BOUNDS & member.keys() for member in members)
        self._may_be_infinite = any(_admits_floats(member) for member in members)

    def dump(self, value: Any) -> Any:
        """Return the value as plain JSON.

        Raises:
            OutputMismatch: the value does not match the declared type.
        """
        box = {"result": list(value) if isinstance(value, Iterator | QuerySet) else value}
        trusting, revalidating = self._adapters
        try:
            if not self._has_bounds:
                with suppress(PydanticSerializationError):
                    return self._dump(trusting, box)
            return self._dump(revalidating, box)
        except ValidationError as exc:
            raise OutputMismatch(explain_errors(exc, box, self._shape)) from exc
        except (TypeError, ValueError) as exc:
            raise OutputMismatch([ValidationProblem(path="result", message=str(exc))]) from exc

    def _dump(self, adapter: TypeAdapter[Any], box: dict[str, Any]) -> Any:
        checked = adapter.validate_python(box)
        plain = adapter.dump_python(
            checked, mode="json", by_alias=True, warnings="error", fallback=jsonable
        )
        if self._may_be_infinite:
            check_finite(plain)
        return plain["result"]


def _dict_adapter(hint: Any, config: ConfigDict) -> TypeAdapter[Any]:
    """Return an adapter for a dict with the type, because some types accept no configuration.

    pydantic applies the configuration to nested dataclasses and `TypedDict`s too.
    """
    return TypeAdapter(dict[str, hint], config=config)


def _value_schema(schema: Schema) -> Schema:
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {**schema["additionalProperties"], **definitions}


def _admits_floats(schema: Schema) -> bool:
    is_open = _TYPE_KEYWORDS.isdisjoint(schema) or schema.get("additionalProperties") is True
    return is_open or schema.get("type") == "number"


# Structured result types --------------------------------------------------------------------------

# Which return types have an output schema: dataclasses, lists, numbers, dates and choices do. Text
# does not, since it would be sent twice, and content blocks describe themselves.

_UNIONS = frozenset({Union, UnionType})
_COLLECTIONS = (list, tuple, set, frozenset, dict, deque)
_SCALARS = (int, float, Decimal, date, time, timedelta, UUID, Enum)
_ITERABLE_TYPES = frozenset({Iterable, Iterator, Generator, Collection})
_ABSTRACT = _ITERABLE_TYPES | {
    Sequence,
    MutableSequence,
    AbstractSet,
    MutableSet,
    Mapping,
    MutableMapping,
}


def _has_structure(annotation: Any) -> bool:
    """Return whether a return annotation gets an output schema."""
    return not _contains_objects(annotation) and _is_structured(annotation)


def _iterable_as_list(annotation: Any) -> Any:
    """Return `list[X]` for a generator, iterator or iterable of `X`, else the annotation."""
    hint = _unwrap_annotation(annotation)
    origin = get_origin(hint) or hint
    if origin not in _ITERABLE_TYPES:
        return annotation
    arguments = get_args(hint)
    return list[arguments[0]] if arguments else list  # type: ignore[valid-type]


def _is_structured(annotation: Any) -> bool:
    hint = _unwrap_annotation(annotation)
    origin = get_origin(hint) or hint
    if origin in _UNIONS:
        members = [member for member in get_args(hint) if member is not type(None)]
        return all(_is_structured(member) for member in members)
    if origin in _ABSTRACT or is_typeddict(origin):
        return True
    if origin is Literal:
        return True
    if not isinstance(origin, type):
        return False
    if issubclass(origin, str):
        return issubclass(origin, Enum)
    known = (BaseModel, *_COLLECTIONS, *_SCALARS)
    return issubclass(origin, known) or is_dataclass(origin)


def _members(annotation: Any) -> list[Any]:
    """Return the types of a union, or the type."""
    hint = _unwrap_annotation(annotation)
    if get_origin(hint) in _UNIONS:
        return [one for member in get_args(hint) for one in _members(member)]
    return [hint]


def _unwrap_annotation(annotation: Any) -> Any:
    """Return the type behind `Annotated`, `NewType` and type aliases."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__") and hasattr(annotation, "__type_params__"):
            annotation = annotation.__value__
        else:
            return annotation


def _contains_objects(annotation: Any) -> bool:
    """Return whether the annotation contains content blocks or model instances."""
    hint = _unwrap_annotation(annotation)
    if isinstance(hint, type) and issubclass(hint, (*CONTENT_CLASSES, Model)):
        return True
    return any(_contains_objects(argument) for argument in get_args(hint))
