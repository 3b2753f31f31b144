"""Schemas and validation for the return type of a function, by pydantic.

Clients reject a result that does not match the published schema, so values are validated before
they are sent (MCP 2026-07-28, "Tools", structured content). Results without a declared type are
converted by ``jsonable``.
"""

from __future__ import annotations

import re
from collections.abc import (
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
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any, Literal, NewType, Protocol, get_args, get_origin
from uuid import UUID
from zoneinfo import ZoneInfo

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet
from pydantic import (
    BaseModel,
    ConfigDict,
    SecretBytes,
    SecretStr,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import PydanticSerializationError
from typing_extensions import is_typeddict

from mcp_django.schema.arguments import OutputMismatch, ValidationProblem
from mcp_django.schema.compiled import CompiledSchema, require_fit
from mcp_django.schema.portable import portable_output
from mcp_django.schema.problems import explain_errors
from mcp_django.schema.pydantic_schemas import (
    BASE64,
    NOT_BUILDABLE,
    decodes_itself,
    error_reason,
    json_schema_of,
    without_base64,
)
from mcp_django.schema.signature import COLLECTIONS, UNIONS, format_hint
from mcp_django.schema.structure import Schema, inline_references, walk
from mcp_django.schema.values import (
    CONTENT_CLASSES,
    advice_for,
    check_finite,
    exact_integers,
    jsonable,
)
from mcp_django.schema.vocabulary import BY_HAND_KEYWORD, DIGITS, RULES_KEYWORD

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
_NOT_WRITABLE = (*NOT_BUILDABLE, ValueError)


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
            self._decodes_itself = decodes_itself(shape)
            if self._decodes_itself:
                adapters = [_dict_adapter(hint, without_base64(config)) for config in configs]
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


# Which return types have an output schema: dataclasses, lists, numbers, dates and choices do. Text
# does not, since it would be sent twice, and content blocks describe themselves.

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
    if origin in UNIONS:
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
    structured_types = (BaseModel, *COLLECTIONS, *_SCALARS)
    is_pydantic = hasattr(origin, "__get_pydantic_core_schema__")
    return issubclass(origin, structured_types) or is_dataclass(origin) or is_pydantic


def _members(annotation: Any) -> list[Any]:
    """Return the types of a union, or the type."""
    hint = _unwrap_annotation(annotation)
    if get_origin(hint) in UNIONS:
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
