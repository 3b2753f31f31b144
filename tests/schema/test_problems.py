"""A value that does not fit is refused in the words of its author."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Literal
from uuid import UUID

import pytest
from pydantic import AwareDatetime, BaseModel, Field, HttpUrl, field_validator, model_validator

from mcp_django.schema.arguments import InvalidArguments
from tests.schema.samples import Card, Cash, Level, Payment, Place, Size, Window, refusal, taking


class Range(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def ordered(self) -> Range:
        if self.low > self.high:
            raise ValueError("low must not be above high")
        return self


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise AssertionError("must be even")
        return value


@pytest.mark.parametrize(
    ("annotation", "text", "expected"),
    [
        (str, "5", "value: must be a string (got 5)"),
        (int, '"five"', 'value: must be an integer (got "five")'),
        (int, "1.5", "value: must be a whole number (got 1.5)"),
        (float, '"x"', 'value: must be a number (got "x")'),
        (bool, '"maybe"', 'value: must be true or false (got "maybe")'),
        (None, "1", "value: must be null (got 1)"),
        (int | list[int], '"a"', 'value: must be an integer or an array (got "a")'),
        (str | None, "1", "value: must be a string (got 1)"),
        (list[int], '{"a": 1}', 'value: must be an array (got {"a": 1})'),
        (list[int], '[1, "b"]', 'value[1]: must be an integer (got "b")'),
        (tuple[int, str], "[1]", "value[1]: is required"),
        (tuple[int], "[1, 2]", "value: must have at most 1 item (got [1, 2])"),
        (set[str], '"a"', 'value: must be an array (got "a")'),
        (dict[str, int], "[]", "value: must be an object (got [])"),
        (dict[str, int], '{"a": "b"}', 'value.a: must be an integer (got "b")'),
        (dict[int, int], '{"a": 1}', 'value.a: the key must be an integer (got "a")'),
        (dict[Level, int], '{"9": 1}', 'value.9: the key must be 1 or 2 (got "9")'),
        (Literal["a", 1], '"c"', 'value: must be one of "a", 1 (got "c")'),
        (Literal["only"], '"c"', 'value: must be "only" (got "c")'),
        (Size, '"m"', 'value: must be one of "s", "l" (got "m")'),
        (Literal[Level.HIGH], "1", "value: must be 2 (got 1)"),
        (date, '"21.11."', 'value: must be a date like 2026-12-31 (got "21.11.")'),
        (
            date,
            '"2026-11-21T10:00:00"',
            'value: must be a date without a time of day (got "2026-11-21T10:00:00")',
        ),
        (
            datetime,
            '"noon"',
            'value: must be a date and time like 2026-12-31T23:59:00Z (got "noon")',
        ),
        (
            AwareDatetime,
            '"2026-11-21T10:00:00"',
            (
                "value: must be a time with its offset from UTC, like +02:00 "
                '(got "2026-11-21T10:00:00")'
            ),
        ),
        (time, '"noon"', 'value: must be a time like 23:59:00 (got "noon")'),
        (timedelta, '"long"', 'value: must be a duration like PT1H30M (got "long")'),
        (Decimal, '"much"', 'value: must be a decimal number (got "much")'),
        (
            Annotated[Decimal, Field(decimal_places=1)],
            '"1.55"',
            'value: must have at most 1 decimal place (got "1.55")',
        ),
        (UUID, '"1"', 'value: must be a UUID (got "1")'),
        (bytes, '"*"', 'value: must be a string in Base64 (got "*")'),
        (HttpUrl, '"no"', 'value: must be a URL (got "no")'),
        (
            HttpUrl,
            '"ftp://a"',
            "value: must be a URL with one of the schemes 'http' or 'https' (got \"ftp://a\")",
        ),
        (Place, "1", "value: must be an object (got 1)"),
        (Place, "{}", "value.street: is required"),
        (
            Place,
            '{"street": "a", "dor": 2}',
            'value: unknown member "dor"; known: street, door; did you mean "door"?',
        ),
        (Window, "{}", "value.start: is required"),
        (Range, '{"low": 2, "high": 1}', "value: low must not be above high"),
        (Even, '{"number": 1}', "value.number: must be even (got 1)"),
        (Cash | Card, '{"kind": "card"}', "value.number: is required"),
        (Cash | Card, "3", "value: must be an object (got 3)"),
        (Payment, '{"kind": "card"}', "value.number: is required"),
        (
            Payment,
            '{"kind": "coin"}',
            "value: must have 'kind' set to one of 'cash', 'card' (got {\"kind\": \"coin\"})",
        ),
        (
            Payment,
            "{}",
            "value: must have the member 'kind' (got {})",
        ),
        (
            Annotated[str, Field(min_length=1)],
            '""',
            'value: must have at least 1 character (got "")',
        ),
        (
            Annotated[str, Field(pattern="^a")],
            '"b"',
            'value: must match the pattern ^a (got "b")',
        ),
        (Annotated[float, Field(ge=0.5)], "0", "value: must be at least 0.5 (got 0)"),
        (Annotated[int, Field(multiple_of=5)], "3", "value: must be a multiple of 5 (got 3)"),
    ],
)
def test_a_refusal_names_the_rule_in_plain_words(annotation, text, expected):
    assert refusal(taking(annotation), f'{{"value": {text}}}'.encode()) == expected


def test_a_refusal_shows_only_the_beginning_of_a_long_value():
    assert (
        refusal(taking(int), b'{"value": "' + b"x" * 1000 + b'"}')
        == f'value: must be an integer (got "{"x" * 78}…)'
    )


def test_a_refusal_of_a_thousand_items_stops_after_twenty():
    with pytest.raises(InvalidArguments) as caught:
        taking(list[int]).parse(b'{"value": [' + b",".join([b'"a"'] * 1000) + b"]}")
    lines = str(caught.value).splitlines()
    assert (len(lines), lines[-1]) == (21, "and 980 more")
    assert len(caught.value.problems) == 1000
