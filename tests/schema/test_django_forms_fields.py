"""Every form field: what it publishes, takes and refuses."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django import forms

from mcp_django.schema.django_forms import FormArguments
from tests.schema.samples import refusal


def one_field(field):
    return FormArguments(type("OneForm", (forms.Form,), {"x": field}))


def published(field):
    return one_field(field).json_schema["properties"]["x"]


def cleaned(field, text):
    return one_field(field).parse(f'{{"x": {text}}}'.encode())["form"].cleaned_data["x"]


CHOICES = [("", "---"), ("s", "Small"), ("Group", [("l", "Large"), ("large", "Large")])]


@pytest.mark.parametrize(
    ("field", "schema", "text", "value"),
    [
        (
            forms.EmailField(),
            {"type": "string", "format": "email", "maxLength": 320},
            '"a@b.de"',
            "a@b.de",
        ),
        (
            forms.URLField(assume_scheme="https"),
            {"type": "string", "format": "uri"},
            '"https://a.de"',
            "https://a.de",
        ),
        (forms.SlugField(), {"type": "string"}, '"a-b"', "a-b"),
        (forms.RegexField("a+"), {"type": "string"}, '"aa"', "aa"),
        (
            forms.UUIDField(),
            {"type": "string", "format": "uuid"},
            f'"{UUID(int=1)}"',
            UUID(int=1),
        ),
        (forms.JSONField(), {}, '{"a": [1, null]}', {"a": [1, None]}),
        (forms.JSONField(), {}, '"text"', "text"),
        (forms.JSONField(), {}, "1.5", 1.5),
        (forms.JSONField(required=False), {}, "null", None),
        (forms.IntegerField(), {"type": "integer"}, '"5"', 5),
        (forms.IntegerField(), {"type": "integer"}, "5.0", 5),
        (forms.FloatField(min_value=0.5), {"type": "number", "minimum": 0.5}, "1.5", 1.5),
        (
            forms.DecimalField(),
            {"type": "string", "description": "Must be a decimal number."},
            "0.10000000000000000001",
            Decimal("0.10000000000000000001"),
        ),
        (
            forms.DecimalField(min_value=0, max_value=9, max_digits=3, decimal_places=2),
            {
                "type": "string",
                "description": "Must be a decimal number, at least 0, at most 9, "
                "of at most 3 digits, of at most 2 decimal places.",
            },
            '"1.50"',
            Decimal("1.50"),
        ),
        (
            forms.BooleanField(),
            {"type": "boolean", "description": "Must be true."},
            "true",
            True,
        ),
        (forms.BooleanField(required=False), {"type": "boolean"}, '"false"', False),
        (forms.NullBooleanField(), {"type": "boolean"}, "false", False),
        (
            forms.DateField(input_formats=["%d.%m.%Y"]),
            {"type": "string", "format": "date"},
            '"2026-11-21"',
            date(2026, 11, 21),
        ),
        (
            forms.DateTimeField(),
            {"type": "string", "format": "date-time"},
            '"2026-11-21T10:00:00Z"',
            datetime(2026, 11, 21, 10, tzinfo=UTC),
        ),
        (
            forms.SplitDateTimeField(),
            {"type": "string", "format": "date-time"},
            '"2026-11-21T10:00:00Z"',
            datetime(2026, 11, 21, 10, tzinfo=UTC),
        ),
        (forms.TimeField(), {"type": "string", "format": "time"}, '"10:30"', time(10, 30)),
        (
            forms.DurationField(),
            {"type": "string", "format": "duration"},
            '"PT1H30M"',
            timedelta(minutes=90),
        ),
        (
            forms.ChoiceField(choices=CHOICES),
            {
                "type": "string",
                "enum": ["s", "l", "large"],
                "description": 'Values: "s" = Small, "l" = Large.',
            },
            '"l"',
            "l",
        ),
        (
            forms.TypedChoiceField(coerce=int, choices=[(1, "1"), (2, "2")]),
            {"type": "integer", "enum": [1, 2]},
            "2",
            2,
        ),
        (
            forms.TypedChoiceField(
                coerce=Decimal, choices=[(Decimal("0.5"), "0.5"), (Decimal(1), "1")]
            ),
            {"type": "string", "enum": ["0.5", "1"]},
            '"0.5"',
            Decimal("0.5"),
        ),
        (forms.ChoiceField(required=False), {"type": "string"}, '""', ""),
        (
            forms.MultipleChoiceField(choices=[("a", "a"), ("b", "b")]),
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            '["b"]',
            ["b"],
        ),
        (forms.Field(), {"type": "string"}, '"x"', "x"),
    ],
)
def test_a_field_publishes_what_it_takes(field, schema, text, value):
    assert published(field) == schema
    assert cleaned(field, text) == value


@pytest.mark.parametrize(
    ("field", "text", "problem"),
    [
        (forms.DateField(), '"2026-02-30"', 'x: Enter a valid date (got "2026-02-30")'),
        (forms.DateField(), '"soon"', 'x: Enter a valid date (got "soon")'),
        (forms.DateField(), "5", "x: Enter a valid date (got 5)"),
        (
            forms.SplitDateTimeField(),
            '"soon"',
            'x: Enter a valid date (got "soon")\nx: Enter a valid time (got "soon")',
        ),
        (forms.BooleanField(), "false", "x: is required (got false)"),
        (forms.BooleanField(), "1", "x: must be true or false (got 1)"),
        (forms.IntegerField(), "true", "x: must be an integer (got true)"),
        (
            forms.ChoiceField(choices=[("a", "a")]),
            '"b"',
            'x: Select a valid choice. b is not one of the available choices (got "b")',
        ),
        (forms.MultipleChoiceField(choices=[("a", "a")]), '"a"', 'x: must be an array (got "a")'),
        (
            forms.MultipleChoiceField(choices=[("a", "a")]),
            "[[]]",
            "x: each item must be a string (got [[]])",
        ),
        (
            forms.CharField(min_length=9, widget=forms.PasswordInput),
            '"secret"',
            "x: Ensure this value has at least 9 characters (it has 6)",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_explained(field, text, problem):
    assert refusal(one_field(field), f'{{"x": {text}}}'.encode()) == problem
