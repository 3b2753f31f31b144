"""The words of a refusal."""

from decimal import Decimal

import pytest

from mcp_django.protocol.errors import MCPDjangoError
from mcp_django.schema.arguments import (
    MISSING,
    InvalidArguments,
    ValidationProblem,
    format_path,
    to_short_json,
    unknown_argument_problem,
)
from tests.spec import spec


@spec("TOOL-8")
def test_a_refusal_is_one_line_for_each_problem():
    refusal = InvalidArguments(
        [
            ValidationProblem(path="amount", value=-5, message="must be greater than 0"),
            ValidationProblem(path="day", message="is required"),
            ValidationProblem(path="", message="from must not be after to"),
        ]
    )
    assert isinstance(refusal, MCPDjangoError)
    assert str(refusal).splitlines() == [
        "amount: must be greater than 0 (got -5)",
        "day: is required",
        "from must not be after to",
    ]


def test_null_and_a_missing_value_are_told_apart():
    assert (
        str(ValidationProblem(path="a", value=None, message="is wrong")) == "a: is wrong (got null)"
    )
    assert str(ValidationProblem(path="a", message="is wrong")) == "a: is wrong"
    assert repr(MISSING) == "MISSING"


@pytest.mark.parametrize(
    ("steps", "path"),
    [((), ""), (("a",), "a"), (("a", 0, "b"), "a[0].b"), ((0, 1), "[0][1]")],
)
def test_a_path_has_dots_and_brackets(steps, path):
    assert format_path(steps) == path


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ü\n", '"ü\\n"'),
        ([1, {"a": None}], '[1, {"a": null}]'),
        ("x" * 78, f'"{"x" * 78}"'),
        ("x" * 79, f'"{"x" * 78}…'),
        (
            list(range(100000)),
            "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, …",
        ),
        (Decimal("1.5"), '"1.5"'),
    ],
)
def test_a_value_is_shown_as_json_and_not_for_long(value, text):
    assert to_short_json(value) == text


def test_an_unknown_name_is_shown_with_the_known_ones():
    assert str(unknown_argument_problem("foo", ["a", "b"])) == 'unknown argument "foo"; known: a, b'
    near = str(unknown_argument_problem("stats", ["status", "total"]))
    assert near == 'unknown argument "stats"; known: status, total; did you mean "status"?'
    assert str(unknown_argument_problem("foo", [])) == 'unknown argument "foo"; known: (none)'
    problem = unknown_argument_problem("foo", ["a"], path="line[0]")
    assert str(problem) == 'line[0]: unknown member "foo"; known: a'
