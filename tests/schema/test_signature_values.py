"""Null, exact numbers and defaults on their way to a function."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import Field

from mcp_django.schema.signature import SignatureArguments
from tests.schema.samples import Line, order, page, refusal

# --- null


def test_null_for_an_argument_that_cannot_be_null_means_that_it_was_left_out():
    assert SignatureArguments(page).parse(b'{"size": null}')["size"] == 10


def test_null_is_kept_where_the_type_has_it():
    assert SignatureArguments(page).parse(b'{"after": null}')["after"] is None


def test_null_for_a_nested_member_means_that_it_was_left_out():
    arguments = SignatureArguments(page).parse(b'{"deep": {"sku": "a", "quantity": null}}')
    assert arguments["deep"] == Line(sku="a", quantity=1)


def test_null_for_a_required_argument_is_refused():
    assert (
        refusal(SignatureArguments(order), b'{"lines": null}')
        == "lines: must be an array (got null)"
    )


# --- exact numbers


def pay(amount: Decimal, share: float = 0.5, code: int | Decimal = 0) -> str: ...


@pytest.mark.parametrize(
    "number",
    ["12345678901234567890.123456789", "0.10", "1E-30", "5", "1e400", "0.1000000000000000000001"],
)
def test_a_decimal_keeps_every_digit_of_a_json_number(number):
    arguments = SignatureArguments(pay).parse(b'{"amount": ' + number.encode() + b"}")
    assert arguments["amount"] == Decimal(number)


def test_a_float_beside_a_decimal_takes_a_long_number():
    arguments = SignatureArguments(pay).parse(b'{"amount": 1, "share": 0.12345678901234567890}')
    assert arguments["share"] == 0.12345678901234568


@pytest.mark.parametrize("raw", [b'{"amount": "NaN"}', b'{"amount": "Infinity"}'])
def test_a_decimal_is_finite(raw):
    assert "amount: must be a" in refusal(SignatureArguments(pay), raw)


# --- defaults

ANYTHING = object()


def search(
    words: list[str] = ["new"],  # noqa: B006
    marker: Any = ANYTHING,
    limit: int = Field(default=5, le=50, description="How many"),
    tags: list[str] = Field(default_factory=list),  # noqa: B008
    page: Annotated[int, Field(ge=1)] = 1,
    required: int = Field(gt=1),
) -> str: ...


def test_defaults_arrive_as_declared():
    arguments = SignatureArguments(search).parse(b'{"required": 2}')
    assert arguments["marker"] is ANYTHING
    assert arguments == {
        "words": ["new"],
        "marker": ANYTHING,
        "limit": 5,
        "tags": [],
        "page": 1,
        "required": 2,
    }


def test_defaults_are_published_when_json_can_say_them():
    schema = SignatureArguments(search).json_schema
    assert schema["required"] == ["required"]
    assert schema["properties"] == {
        "words": {"type": "array", "items": {"type": "string"}, "default": ["new"]},
        "marker": {},
        "limit": {"type": "integer", "default": 5, "maximum": 50, "description": "How many"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "page": {"type": "integer", "default": 1, "minimum": 1},
        "required": {"type": "integer", "minimum": 2},
    }
