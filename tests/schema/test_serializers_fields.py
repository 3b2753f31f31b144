"""Every serializer field: what it publishes and takes."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

pytest.importorskip("rest_framework")

from rest_framework import serializers

from mcp_django.schema.serializers import SerializerArguments


def one_field(field):
    return SerializerArguments(type("OneSerializer", (serializers.Serializer,), {"x": field}))


def published(field):
    return one_field(field).json_schema["properties"]["x"]


def validated(field, text):
    arguments = one_field(field).parse(f'{{"x": {text}}}'.encode())
    return arguments["serializer"].validated_data["x"]


@pytest.mark.parametrize(
    ("field", "schema", "text", "value"),
    [
        (serializers.BooleanField(), {"type": "boolean"}, "true", True),
        (
            serializers.CharField(allow_null=True),
            {"anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}]},
            "null",
            None,
        ),
        (
            serializers.EmailField(),
            {"type": "string", "minLength": 1, "format": "email"},
            '"a@b.de"',
            "a@b.de",
        ),
        (
            serializers.URLField(),
            {"type": "string", "minLength": 1, "format": "uri"},
            '"https://a.de"',
            "https://a.de",
        ),
        (serializers.SlugField(), {"type": "string", "minLength": 1}, '"a-b"', "a-b"),
        (
            serializers.UUIDField(),
            {"type": "string", "format": "uuid"},
            f'"{UUID(int=1)}"',
            UUID(int=1),
        ),
        (serializers.IntegerField(max_value=5), {"type": "integer", "maximum": 5}, "5", 5),
        (serializers.FloatField(), {"type": "number"}, "1.5", 1.5),
        (
            serializers.DecimalField(max_digits=None, decimal_places=None),
            {"type": "string", "description": "Must be a decimal number."},
            "0.10000000000000000001",
            Decimal("0.10000000000000000001"),
        ),
        (
            serializers.DecimalField(max_digits=3, decimal_places=2, min_value=Decimal("0.5")),
            {
                "type": "string",
                "description": "Must be a decimal number, at least 0.5, of at most 3 digits, "
                "of at most 2 decimal places.",
            },
            '"1.50"',
            Decimal("1.50"),
        ),
        (
            serializers.DateTimeField(),
            {"type": "string", "format": "date-time"},
            '"2026-11-21T10:00:00Z"',
            datetime(2026, 11, 21, 10, tzinfo=UTC),
        ),
        (
            serializers.DateField(),
            {"type": "string", "format": "date"},
            '"2026-11-21"',
            date(2026, 11, 21),
        ),
        (serializers.TimeField(), {"type": "string", "format": "time"}, '"10:30"', time(10, 30)),
        (
            serializers.DurationField(),
            {"type": "string", "format": "duration"},
            '"PT1H"',
            timedelta(hours=1),
        ),
        (
            serializers.ChoiceField(choices=[("s", "Small"), ("l", "Large")]),
            {
                "type": "string",
                "enum": ["s", "l"],
                "description": 'Values: "s" = Small, "l" = Large.',
            },
            '"l"',
            "l",
        ),
        (
            serializers.ListField(child=serializers.IntegerField(), min_length=1, max_length=2),
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
            "[1]",
            [1],
        ),
        (serializers.ListField(), {"type": "array", "items": {}}, '["a"]', ["a"]),
        (
            serializers.DictField(child=serializers.IntegerField()),
            {"type": "object", "additionalProperties": {"type": "integer"}},
            '{"a": 1}',
            {"a": 1},
        ),
        (serializers.JSONField(), {}, '{"a": [1.5, null]}', {"a": [1.5, None]}),
        (
            serializers.IntegerField(default=lambda: 7, required=False),
            {"type": "integer"},
            "1",
            1,
        ),
    ],
)
def test_a_field_publishes_what_it_takes(field, schema, text, value):
    assert published(field) == schema
    assert validated(field, text) == value


def test_several_choices_are_an_array():
    field = serializers.MultipleChoiceField(choices=["a", "b"])
    assert published(field) == {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
    # A set or a list, depending on the release.
    assert set(validated(field, '["b"]')) == {"b"}


def test_a_default_is_published():
    schema = one_field(serializers.DateField(default=date(2026, 1, 1)))
    assert schema.json_schema["properties"]["x"]["default"] == "2026-01-01"
    assert "required" not in schema.json_schema
