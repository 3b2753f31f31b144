"""pydantic's JSON Schema with the few types changed whose own schema misleads a model.

A decimal is a string, so that nobody rounds it through a float, and its bounds are words, as no
keyword bounds a string by value. Bytes are Base64 (RFC 4648).
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from mcp_django.schema.rewriting import RULES

Mode = Literal["validation", "serialization"]

BASE64 = ConfigDict(val_json_bytes="base64", ser_json_bytes="base64")


def json_schema_of(adapter: TypeAdapter[Any], mode: Mode) -> dict[str, Any]:
    """Return the schema of a pydantic adapter, not yet in the portable subset."""
    return adapter.json_schema(mode=mode, schema_generator=SchemaGenerator)


def reason_of(exc: Exception) -> str:
    """Return why a type cannot be compiled, without advice that does not apply here."""
    return str(exc).partition("\n")[0].partition(". Set ")[0].rstrip(".")


class SchemaGenerator(GenerateJsonSchema):
    """Writes the schema of one pydantic adapter."""

    # A default that JSON cannot say is left out of the schema; it is a default all the same.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        result: JsonSchemaValue = {"type": "string", "format": "decimal"}
        if rules := _decimal_rules(schema):
            result[RULES] = ", ".join(rules)
        return result

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        if self._config.val_json_bytes != "base64":
            return {"type": "string"}
        # pydantic reads both alphabets and writes the one for URLs.
        is_read = self.mode == "validation"
        return {"type": "string", "contentEncoding": "base64" if is_read else "base64url"}

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _closed(super().dataclass_schema(schema), schema)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _closed(super().typed_dict_schema(schema), schema)

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        for value in schema["expected"]:
            if self.mode == "validation" and isinstance(value, Enum) and not _is_plain(value):
                raise PydanticInvalidForJsonSchema(
                    f"pydantic does not read {value!r} from JSON where it stands in a Literal; "
                    "name its value there, or derive the enum from str"
                )
        return super().literal_schema(schema)


def _closed(result: JsonSchemaValue, schema: Any) -> JsonSchemaValue:
    # Before 2.14 pydantic forgets to say this of a type that inherits its configuration.
    if schema.get("config", {}).get("extra_fields_behavior") == "forbid":
        result["additionalProperties"] = False
    return result


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int)


def _decimal_rules(schema: core_schema.DecimalSchema) -> list[str]:
    bounds: dict[str, Any] = {**schema}
    return [words.format(bounds[key]) for key, words in _DECIMAL_RULES if key in bounds]


_DECIMAL_RULES = (
    ("gt", "greater than {}"),
    ("ge", "at least {}"),
    ("lt", "less than {}"),
    ("le", "at most {}"),
    ("multiple_of", "a multiple of {}"),
    ("max_digits", "of at most {} digits"),
    ("decimal_places", "of at most {} decimal places"),
)
