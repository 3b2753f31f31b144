"""The JSON Schemas that pydantic generates for Python types, not yet portable.

The schema is pydantic's, except for a few types whose schema would mislead a model. A decimal is
a string, so that it is not rounded through a float, and its bounds are in words, because no
keyword limits a string by value. Bytes are Base64 (RFC 4648).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, Flag
from typing import Any, Literal, cast

from pydantic import ConfigDict, TypeAdapter, WithJsonSchema
from pydantic.errors import (
    PydanticInvalidForJsonSchema,
    PydanticUndefinedAnnotation,
    PydanticUserError,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import SchemaError, core_schema

from mcp_django.schema.structure import Schema, is_annotation, walk
from mcp_django.schema.vocabulary import BY_HAND_KEYWORD, LOCAL_DATETIME, RULES_KEYWORD

Mode = Literal["validation", "serialization"]

BASE64 = ConfigDict(val_json_bytes="base64", ser_json_bytes="base64")
NOT_BUILDABLE = (PydanticUserError, PydanticUndefinedAnnotation, SchemaError, TypeError)

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
    if not decodes_itself(shape):
        return adapter, shape
    arguments.__pydantic_config__ = without_base64(config)
    adapter = TypeAdapter(arguments)
    return adapter, json_schema_of(adapter, "validation")


def decodes_itself(shape: Schema) -> bool:
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


def without_base64(config: ConfigDict) -> ConfigDict:
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
