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
from enum import Enum, Flag
from fractions import Fraction
from inspect import Parameter, Signature
from ipaddress import IPv4Network, IPv6Network
from types import SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    Protocol,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID
from zoneinfo import ZoneInfo

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretBytes,
    SecretStr,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic.errors import (
    PydanticInvalidForJsonSchema,
    PydanticUndefinedAnnotation,
    PydanticUserError,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticSerializationError, SchemaError, core_schema
from typing_extensions import TypedDict, is_typeddict

from mcp_django.schema.arguments import InvalidArguments, OutputMismatch, ValidationProblem
from mcp_django.schema.compiled import CompiledSchema, require_fit
from mcp_django.schema.portable import (
    BY_HAND_KEYWORD,
    DIGITS,
    LOCAL_DATETIME,
    RULES_KEYWORD,
    portable_input,
    portable_output,
    to_strict as strict_dialect,
)
from mcp_django.schema.problems import explain_errors
from mcp_django.schema.structure import Schema, inline_references, is_annotation, walk
from mcp_django.schema.values import (
    CONTENT_CLASSES,
    advice_for,
    check_finite,
    decode_arguments,
    drop_nulls,
    exact_integers,
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


# The generated JSON Schema ------------------------------------------------------------------------

# The schema is pydantic's, except for a few types whose schema would mislead a model. A decimal is
# a string, so that it is not rounded through a float, and its bounds are in words, because no
# keyword limits a string by value. Bytes are Base64 (RFC 4648).

Mode = Literal["validation", "serialization"]

BASE64 = ConfigDict(val_json_bytes="base64", ser_json_bytes="base64")
# The formats of pydantic's types that decode and encode the text themselves.
_OWN_BASE64 = frozenset({"base64", "base64url"})

_BOUNDS_IN_WORDS = (
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


def typed_dict_adapter(
    arguments: Any, config: ConfigDict
) -> tuple[TypeAdapter[dict[str, Any]], Schema]:
    """Return the adapter of a new `TypedDict` for JSON, and its schema, not yet portable.

    Raises:
        TypeError: JSON cannot express a type; some types raise an error of pydantic instead.
    """
    # pydantic applies the configuration to nested dataclasses and TypedDicts, but not to models.
    arguments.__pydantic_config__ = config
    adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(arguments)
    shape = json_schema_of(adapter, "validation")
    if not _decodes_itself(shape):
        return adapter, shape
    arguments.__pydantic_config__ = _without_base64(config)
    adapter = TypeAdapter(arguments)
    return adapter, json_schema_of(adapter, "validation")


def _decodes_itself(shape: Schema) -> bool:
    """Return whether all bytes of a type are of types that read and write Base64 themselves.

    `Base64Bytes` must get the text undecoded, `bytes` must not.

    Raises:
        TypeError: the type has both; pydantic has one setting for all bytes of a type.
    """
    members = [member for _, member in walk(shape)]
    is_any = any(member.get("format") in _OWN_BASE64 for member in members)
    is_bare = any(
        "contentEncoding" in member and member.get("format") not in _OWN_BASE64
        for member in members
    )
    if is_any and is_bare:
        raise TypeError("it has both bytes and Base64Bytes; use one of them")
    return is_any


def _without_base64(config: ConfigDict) -> ConfigDict:
    return cast(ConfigDict, {key: value for key, value in config.items() if key not in BASE64})


_PLAIN_TYPES = frozenset({type(None), bool, int, str})
_FLAGS = {"a": re.ASCII, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}


class _SchemaGenerator(GenerateJsonSchema):
    """Generates the schema of one pydantic adapter."""

    # A default that JSON cannot represent is omitted from the schema, but is still used.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        result = super().generate_inner(schema)
        metadata = schema.get("metadata") or {}
        config = getattr(schema.get("cls"), "model_config", {})
        functions = (
            *metadata.get("pydantic_js_functions", ()),
            *metadata.get("pydantic_js_annotation_functions", ()),
        )
        # Keywords of the author, which pydantic does not enforce.
        has_own_keywords = not all(_is_pydantic(function) for function in functions) or any(
            not isinstance(extra, Mapping) or not all(map(is_annotation, extra))
            for extra in (metadata.get("pydantic_js_extra"), config.get("json_schema_extra"))
            if extra
        )
        return {**result, BY_HAND_KEYWORD: True} if has_own_keywords else result

    def encode_default(self, dft: Any) -> Any:
        # pydantic compiles a type for each default, although most defaults are plain JSON.
        return dft if type(dft) in _PLAIN_TYPES else super().encode_default(dft)

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        result = super().str_schema(schema)
        pattern = schema.get("pattern")
        is_python = isinstance(pattern, re.Pattern) or self._config.regex_engine == "python-re"
        if is_python and self.mode == "serialization":
            # Python's `$` and character classes match values that those of clients do not match.
            result.pop("pattern", None)
        elif isinstance(pattern, re.Pattern):
            names = "".join(name for name, flag in _FLAGS.items() if pattern.flags & flag)
            result["pattern"] = f"(?{names}){pattern.pattern}" if names else pattern.pattern
        return result

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        result = super().enum_schema(schema)
        if issubclass(schema["cls"], Flag) and self.mode == "serialization":
            # A combination of flags is not one of the enumerated values.
            result.pop("enum", None)
        return result

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        return _with_bounds({"type": "string", "format": "decimal"}, schema)

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        if self._config.val_json_bytes != "base64":
            return {"type": "string"}
        # pydantic decodes both Base64 alphabets and encodes with the URL-safe one.
        is_read = self.mode == "validation"
        return {"type": "string", "contentEncoding": "base64" if is_read else "base64url"}

    def date_schema(self, schema: core_schema.DateSchema) -> JsonSchemaValue:
        return _with_bounds(super().date_schema(schema), schema)

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:
        return _with_bounds(super().time_schema(schema), schema)

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        result = _with_bounds(super().datetime_schema(schema), schema)
        is_local = result.get("format") == "date-time" and schema.get("tz_constraint") != "aware"
        if self.mode == "serialization" and is_local:
            # RFC 3339, the format "date-time", requires an offset.
            result["format"] = LOCAL_DATETIME
        return result

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        return _with_bounds(super().timedelta_schema(schema), schema)

    def ser_schema(self, schema: Any) -> JsonSchemaValue | None:
        result = super().ser_schema(schema)
        function = schema.get("function")
        # A serializer without a return type may write anything, unless it is pydantic's own.
        if result is None:
            return result if function is None or _is_pydantic(function) else {}
        is_for_some = "unless-none" in str(schema.get("when_used", ""))
        return {"anyOf": [result, {"type": "null"}]} if is_for_some else result

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


def _is_pydantic(function: Any) -> bool:
    by_hand = isinstance(getattr(function, "__self__", None), WithJsonSchema)
    return str(function.__module__).startswith("pydantic") and not by_hand


def _with_bounds(result: JsonSchemaValue, schema: Any) -> JsonSchemaValue:
    """Return a schema of text with the bounds in words, since no keyword limits text by value."""
    bounds: dict[str, Any] = {**schema}
    rules = [words.format(bounds[key]) for key, words in _BOUNDS_IN_WORDS if key in bounds]
    if "now_op" in bounds:
        rules.append(f"in the {bounds['now_op']}")
    return {**result, RULES_KEYWORD: ", ".join(rules)} if rules else result


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
        arguments = dict(values)
        return tuple(arguments.pop(name) for name in self._positional), arguments

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
        culprit = next(
            (parameter for parameter in parameters if not _is_buildable(parameter)), None
        )
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
        if inner == arguments or not (origin in _UNIONS or origin in _COLLECTIONS):
            return hint
        return Union[inner] if origin in _UNIONS else origin[inner]  # noqa: UP007
    digits = {str(value): value for value in arguments if exact_integers(value) is not value}
    if not digits:
        return hint

    def read(value: Any) -> Any:
        return digits.get(value, value) if isinstance(value, str) else value

    published = {"enum": [exact_integers(value) for value in arguments]}
    return Annotated[hint, BeforeValidator(read), WithJsonSchema(published)]


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
        "enum",
        "const",
        "minProperties",
        "maxProperties",
        RULES_KEYWORD,
    }
)
# If a schema has none of these, the type alone ensures that pydantic's output fits it.
_CONSTRAINTS = _BOUNDS - {RULES_KEYWORD}
_TYPE_KEYWORDS = frozenset({"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"})
_NOT_WRITABLE = (*_NOT_BUILDABLE, ValueError)


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
    for member in _members(annotation):
        if isinstance(member, type) and issubclass(member, (SecretStr, SecretBytes)):
            raise ImproperlyConfigured(
                f"The result type {format_hint(member)} is written as asterisks; return the text, "
                "if callers may see it."
            )
    if not _contains_objects(annotation) and _is_structured(annotation):
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
            configs = (_OUTPUT_CONFIG, _REVALIDATING_CONFIG)
            adapters = [_dict_adapter(hint, config) for config in configs]
            shape = json_schema_of(adapters[0], "serialization")
            self._decodes_itself = _decodes_itself(shape)
            if self._decodes_itself:
                adapters = [_dict_adapter(hint, _without_base64(config)) for config in configs]
                shape = json_schema_of(adapters[0], "serialization")
            self._adapters, self._shape = adapters, inline_references(shape)
            self.json_schema = portable_output(_value_schema(self._shape))
        except _NOT_WRITABLE as exc:
            raise ImproperlyConfigured(
                f"The result type {format_hint(annotation)} cannot be written as JSON: "
                f"{error_reason(exc)}. "
                "Return dataclasses, pydantic models, lists and dicts of strings and numbers."
            ) from exc
        members = [member for _, member in walk(self._shape)]
        self._has_bounds = any(
            # Only validation detects a naive value in place of an aware one.
            _BOUNDS & member.keys() or member.get("format") == "date-time"
            for member in members
        )
        published = [member for _, member in walk(self.json_schema)]
        choices = [value for member in members for value in _choices(member)]
        self._may_be_inexact = any(
            member == DIGITS or _is_open(member) for member in published
        ) or choices != exact_integers(choices)
        self._may_be_infinite = any(
            _is_open(member) or member.get("type") == "number" for member in members
        )
        # pydantic does not validate models again, and it never validates the output of serializers
        # or the author's keywords.
        self._check = None
        is_checked = any(
            _CONSTRAINTS & member.keys() for member in published if member != DIGITS
        ) or any(BY_HAND_KEYWORD in member for member in members)
        if is_checked:
            what = f"The schema of {format_hint(annotation)}"
            self._check = CompiledSchema(self.json_schema, what=what).find_problems

    def dump(self, value: Any) -> Any:
        """Return the value as plain JSON.

        Raises:
            OutputMismatch: the value does not match the declared type.
        """
        box = {"result": list(value) if isinstance(value, Iterator | QuerySet) else value}
        trusting, revalidating = self._adapters
        try:
            if self._decodes_itself:
                # Validation would decode the bytes a second time.
                with suppress(PydanticSerializationError):
                    return self._write(trusting, box)
            if not self._has_bounds:
                with suppress(PydanticSerializationError):
                    return self._dump(trusting, box)
            return self._dump(revalidating, box)
        except ValidationError as exc:
            raise OutputMismatch(explain_errors(exc, box, self._shape)) from exc
        except (TypeError, ValueError) as exc:
            raise OutputMismatch([ValidationProblem(path="result", message=str(exc))]) from exc

    def _dump(self, adapter: TypeAdapter[Any], box: dict[str, Any]) -> Any:
        return self._write(adapter, adapter.validate_python(box))

    def _write(self, adapter: TypeAdapter[Any], checked: dict[str, Any]) -> Any:
        plain = adapter.dump_python(
            checked, mode="json", by_alias=True, warnings="error", fallback=jsonable
        )
        if self._may_be_infinite:
            check_finite(plain)
        result = plain["result"]
        if self._check is not None:
            return require_fit(result, self._check)
        return exact_integers(result) if self._may_be_inexact else result


def _dict_adapter(hint: Any, config: ConfigDict) -> TypeAdapter[Any]:
    """Return an adapter for a dict of values of the type.

    The dict carries the configuration, because some types accept none. pydantic applies it to
    nested dataclasses and `TypedDict`s too.
    """
    return TypeAdapter(dict[str, hint], config=config)


def _value_schema(schema: Schema) -> Schema:
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {**schema["additionalProperties"], **definitions}


def _choices(schema: Schema) -> list[Any]:
    return [schema["const"]] if "const" in schema else [*schema.get("enum", ())]


def _is_open(schema: Schema) -> bool:
    return _TYPE_KEYWORDS.isdisjoint(schema) or schema.get("additionalProperties") is True


# Structured result types --------------------------------------------------------------------------

# Which return types have an output schema: dataclasses, lists, numbers, dates and choices do. Text
# does not, since it would be sent twice, and content blocks describe themselves.

_UNIONS = frozenset({Union, UnionType})
_COLLECTIONS = (list, tuple, set, frozenset, dict, deque)
_SCALARS = (
    *(int, float, Decimal, Fraction, date, time, timedelta, UUID, Enum),
    *(IPv4Network, IPv6Network, re.Pattern, ZoneInfo),
)
_ITERABLE_TYPES = frozenset({Iterable, Iterator, Generator, Collection})
_ABSTRACT = _ITERABLE_TYPES | {
    Sequence,
    MutableSequence,
    AbstractSet,
    MutableSet,
    Mapping,
    MutableMapping,
}


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
    structured_types = (BaseModel, *_COLLECTIONS, *_SCALARS)
    is_pydantic = hasattr(origin, "__get_pydantic_core_schema__")
    return issubclass(origin, structured_types) or is_dataclass(origin) or is_pydantic


def _members(annotation: Any) -> list[Any]:
    """Return the types of a union, or the type."""
    hint = _unwrap_annotation(annotation)
    if get_origin(hint) in _UNIONS:
        return [inner for member in get_args(hint) for inner in _members(member)]
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
