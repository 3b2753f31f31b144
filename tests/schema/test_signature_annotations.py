"""What a signature publishes, and how its arguments are read."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated

import pytest
from pydantic import Field

from mcp_django.schema.lint import lint
from mcp_django.schema.signature import SignatureArguments
from tests.schema.samples import Line, order, refund, refusal
from tests.spec import spec


def nothing() -> str: ...


@spec("TOOL-2")
def test_a_signature_becomes_a_plain_object_schema():
    assert SignatureArguments(refund).json_schema == {
        "type": "object",
        "properties": {
            "number": {"type": "string"},
            "amount": {
                "type": "string",
                "description": "Must be a decimal number, greater than 0.",
            },
            "tone": {"type": "string", "enum": ["formal", "warm"], "default": "warm"},
            "day": {"type": "string", "format": "date", "description": "The trading day"},
        },
        "required": ["number", "amount"],
        "additionalProperties": False,
    }


@spec("TOOL-2")
def test_a_function_without_parameters_takes_an_empty_object():
    assert SignatureArguments(nothing).json_schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


def test_nothing_is_left_for_hosts_to_choke_on():
    assert lint(SignatureArguments(order).json_schema) == []


@spec("TOOL-17")
@pytest.mark.parametrize("raw", [b"", b"null", b"{}", b" \n"])
def test_absent_and_null_arguments_mean_none(raw):
    assert SignatureArguments(nothing).parse(raw) == {}


def test_arguments_are_python_values_under_the_names_of_the_parameters():
    arguments = SignatureArguments(refund).parse(
        b'{"number": "A1", "amount": "5.20", "day": "2026-11-21"}'
    )
    assert arguments == {
        "number": "A1",
        "amount": Decimal("5.20"),
        "tone": "warm",
        "day": date(2026, 11, 21),
    }


def test_nested_models_stay_instances():
    arguments = SignatureArguments(order).parse(b'{"lines": [{"sku": "x"}]}')
    assert arguments == {"lines": [Line(sku="x", quantity=1)], "note": None}


def test_of_a_repeated_argument_the_last_one_counts():
    assert SignatureArguments(order).parse(b'{"lines": 1, "lines": []}')["lines"] == []


@spec("TOOL-8")
def test_each_problem_is_a_line_that_names_field_rule_and_value():
    assert refusal(
        SignatureArguments(refund), b'{"amount": -5, "tone": "angry", "hue": "red"}'
    ).splitlines() == [
        "number: is required",
        "amount: must be greater than 0 (got -5)",
        'tone: must be one of "formal", "warm" (got "angry")',
        'unknown argument "hue"; known: number, amount, tone, day',
    ]


def test_a_duration_beyond_the_longest_is_refused():
    def wait(how_long: timedelta) -> None: ...

    raw = b'{"how_long": "-P999999999DT23H"}'
    assert refusal(SignatureArguments(wait), raw).startswith("a value is too large: ")


@spec("TOOL-8")
def test_nested_problems_have_a_path():
    text = refusal(
        SignatureArguments(order), b'{"lines": [{"sku": "a"}, {"sku": "b", "quantity": "many"}]}'
    )
    assert text == 'lines[1].quantity: must be an integer (got "many")'


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"[1]", "the arguments must be an object (got [1])"),
        (b"7", "the arguments must be an object (got 7)"),
    ],
)
def test_arguments_that_are_no_object_are_refused(raw, text):
    assert refusal(SignatureArguments(nothing), raw) == text


def test_text_that_is_no_json_is_refused():
    assert refusal(SignatureArguments(nothing), b'{"a":').startswith(
        "the arguments are not valid JSON: "
    )


def test_text_that_only_the_validator_refuses_is_refused_as_readably():
    assert "must be valid JSON" in refusal(SignatureArguments(order), rb'{"note": "\ud800"}')


def test_nan_is_no_argument():
    assert "not valid JSON" in refusal(SignatureArguments(ratio), b'{"value": NaN}')
    assert refusal(SignatureArguments(ratio), b'{"value": 1e999}').startswith(
        "value: must be a finite number"
    )


def ratio(value: float, limit: float | None = None) -> str: ...


# --- names


def awkward(copy: str, json: str, schema: str, model_x: str, _private: str, self: str) -> str: ...


def test_names_that_a_model_class_has_taken_are_ordinary_names():
    names = ["copy", "json", "schema", "model_x", "_private", "self"]
    arguments = SignatureArguments(awkward)
    assert list(arguments.json_schema["properties"]) == names
    values = {name: name for name in names}
    assert arguments.parse(str(values).replace("'", '"').encode()) == values


def aliased(number: Annotated[str, Field(alias="orderNumber")]) -> str: ...


def test_an_alias_is_what_the_model_sees_and_the_function_does_not():
    assert SignatureArguments(aliased).parse(b'{"orderNumber": "A"}') == {"number": "A"}
    assert "known: orderNumber" in refusal(SignatureArguments(aliased), b'{"number": "A"}')
