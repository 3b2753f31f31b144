"""Every type a parameter may have: what it publishes, what it takes, how it refuses."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from mcp_django.schema.lint import lint
from tests.schema.samples import Cash, Level, Pair, Payment, Place, Size, Window, taking


class Note(BaseModel):
    body: bytes


PLACE = {
    "type": "object",
    "properties": {"street": {"type": "string"}, "door": {"type": "integer", "default": 1}},
    "required": ["street"],
    "additionalProperties": False,
}
UUID_TEXT = "0b8e5a3e-6f7e-4f0e-9a7c-2f3d2f0e9a7c"

CASES: list[tuple[Any, Any, str, Any]] = [
    (str, {"type": "string"}, '"a"', "a"),
    (int, {"type": "integer"}, "123456789012345678901234", 123456789012345678901234),
    (int, {"type": "integer"}, '"5"', 5),
    (float, {"type": "number"}, "2", 2.0),
    (bool, {"type": "boolean"}, "true", True),
    (None, {"type": "null"}, "null", None),
    (Any, {}, '{"a": [1]}', {"a": [1]}),
    (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, '"a"', "a"),
    (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
    (list[int], {"type": "array", "items": {"type": "integer"}}, "[1]", [1]),
    (list, {"type": "array", "items": {}}, '["a"]', ["a"]),
    (
        tuple[int, str],
        {
            "type": "array",
            "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "minItems": 2,
            "maxItems": 2,
        },
        '[1, "a"]',
        (1, "a"),
    ),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}, "[1, 2]", (1, 2)),
    (
        set[str],
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        '["a", "a"]',
        {"a"},
    ),
    (
        frozenset[str],
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        '["a"]',
        frozenset("a"),
    ),
    (
        dict[str, int],
        {"type": "object", "additionalProperties": {"type": "integer"}},
        '{"a": 1}',
        {"a": 1},
    ),
    (dict, {"type": "object", "additionalProperties": True}, '{"a": 1}', {"a": 1}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, '"a"', "a"),
    (Literal["only"], {"type": "string", "enum": ["only"]}, '"only"', "only"),
    (Size, {"type": "string", "enum": ["s", "l"]}, '"s"', Size.SMALL),
    (Level, {"type": "integer", "enum": [1, 2]}, "2", Level.HIGH),
    (Literal[Level.HIGH], {"type": "integer", "enum": [2]}, "2", Level.HIGH),
    (date, {"type": "string", "format": "date"}, '"2026-11-21"', date(2026, 11, 21)),
    (
        datetime,
        {"type": "string", "format": "date-time"},
        '"2026-11-21T10:00:00Z"',
        datetime(2026, 11, 21, 10, tzinfo=UTC),
    ),
    (time, {"type": "string", "format": "time"}, '"10:30:00"', time(10, 30)),
    (timedelta, {"type": "string", "format": "duration"}, '"PT1H"', timedelta(hours=1)),
    (
        Decimal,
        {"type": "string", "description": "Must be a decimal number."},
        "0.10",
        Decimal("0.1"),
    ),
    (
        Annotated[Decimal, Field(ge=0, lt=100, max_digits=5, decimal_places=2)],
        {
            "type": "string",
            "description": "Must be a decimal number, at least 0, less than 100, "
            "of at most 5 digits, of at most 2 decimal places.",
        },
        '"9.99"',
        Decimal("9.99"),
    ),
    (UUID, {"type": "string", "format": "uuid"}, f'"{UUID_TEXT}"', UUID(UUID_TEXT)),
    (bytes, {"type": "string", "contentEncoding": "base64"}, '"+/8="', b"\xfb\xff"),
    (bytes, {"type": "string", "contentEncoding": "base64"}, '"-_8="', b"\xfb\xff"),
    # A model has a configuration of its own, in which bytes are text.
    (
        Note,
        {"type": "object", "properties": {"body": {"type": "string"}}, "required": ["body"]},
        '{"body": "ü"}',
        Note(body="ü".encode()),
    ),
    (Place, PLACE, '{"street": "High"}', Place("High")),
    (
        Window,
        {
            "type": "object",
            "properties": {
                "start": {"type": "string", "format": "date"},
                "end": {"type": "string", "format": "date"},
            },
            "required": ["start"],
            "additionalProperties": False,
        },
        '{"start": "2026-11-21"}',
        {"start": date(2026, 11, 21)},
    ),
    (
        Pair,
        {
            "type": "array",
            "items": {"anyOf": [{"type": "integer"}, {"type": "string", "default": "?"}]},
            "minItems": 1,
            "maxItems": 2,
        },
        "[1]",
        Pair(1, "?"),
    ),
    (
        Payment,
        {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {
                        "kind": {"type": "string", "enum": ["cash"]},
                        "amount": {"type": "integer"},
                    },
                    "required": ["kind", "amount"],
                },
                {
                    "type": "object",
                    "properties": {
                        "kind": {"type": "string", "enum": ["card"]},
                        "number": {"type": "string"},
                    },
                    "required": ["kind", "number"],
                },
            ]
        },
        '{"kind": "cash", "amount": 1}',
        Cash(kind="cash", amount=1),
    ),
    (
        Annotated[float, Field(gt=0, le=1)],
        {"type": "number", "minimum": 0, "maximum": 1, "description": "Must be greater than 0."},
        "0.5",
        0.5,
    ),
    (
        Annotated[int, Field(gt=0, lt=10)],
        {"type": "integer", "minimum": 1, "maximum": 9},
        "9",
        9,
    ),
]


@pytest.mark.parametrize(("annotation", "schema", "text", "value"), CASES)
def test_a_type_publishes_a_portable_schema_and_reads_its_values(annotation, schema, text, value):
    arguments = taking(annotation)
    assert arguments.json_schema["properties"]["value"] == schema
    assert lint(arguments.json_schema) == []
    assert arguments.parse(f'{{"value": {text}}}'.encode()) == {"value": value}
