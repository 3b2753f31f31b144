"""What a signature publishes, and how its arguments are read."""

from __future__ import annotations

import enum
import functools
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from django.core.exceptions import ImproperlyConfigured
from pydantic import BaseModel, Field

from mcp_django.schema.annotations import SignatureArguments
from mcp_django.schema.arguments import InvalidArguments
from mcp_django.schema.portable import lint
from tests.spec import spec


class Line(BaseModel):
    sku: str
    quantity: int = 1


class Node(BaseModel):
    name: str
    parent: Node | None = None


def refund(
    number: str,
    amount: Annotated[Decimal, Field(gt=0)],
    tone: Literal["formal", "warm"] = "warm",
    day: Annotated[date | None, "The trading day"] = None,
) -> str: ...


def nothing() -> str: ...


def order(lines: list[Line], note: str | None = None) -> str: ...


def refusal(function: Any, raw: bytes) -> str:
    with pytest.raises(InvalidArguments) as caught:
        SignatureArguments(function).parse(raw)
    return str(caught.value)


@spec("TOOL-2")
def test_a_signature_becomes_a_plain_object_schema():
    assert SignatureArguments(refund).json_schema == {
        "type": "object",
        "properties": {
            "number": {"type": "string"},
            "amount": {
                "type": "string",
                "format": "decimal",
                "description": "Must be greater than 0.",
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
    assert refusal(refund, b'{"amount": -5, "tone": "angry", "colour": "red"}').splitlines() == [
        "number: is required",
        "amount: must be greater than 0 (got -5)",
        'tone: must be one of "formal", "warm" (got "angry")',
        'unknown argument "colour"; known: number, amount, tone, day',
    ]


@spec("TOOL-8")
def test_nested_problems_have_a_path():
    text = refusal(order, b'{"lines": [{"sku": "a"}, {"sku": "b", "quantity": "many"}]}')
    assert text == 'lines[1].quantity: must be an integer (got "many")'


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"[1]", "the arguments must be an object (got [1])"),
        (b"7", "the arguments must be an object (got 7)"),
    ],
)
def test_arguments_that_are_no_object_are_refused(raw, text):
    assert refusal(nothing, raw) == text


def test_text_that_is_no_json_is_refused():
    assert refusal(nothing, b'{"a":').startswith("the arguments are not valid JSON: ")


def test_text_that_only_the_validator_refuses_is_refused_as_readably():
    assert "must be valid JSON" in refusal(order, rb'{"note": "\ud800"}')


def test_nan_is_no_argument():
    assert "not valid JSON" in refusal(ratio, b'{"value": NaN}')
    assert refusal(ratio, b'{"value": 1e999}').startswith("value: must be a finite number")


def ratio(value: float, limit: float | None = None) -> str: ...


# --- null


def page(size: int = 10, after: str | None = "start", deep: Line | None = None) -> str: ...


def test_null_for_an_argument_that_cannot_be_null_means_that_it_was_left_out():
    assert SignatureArguments(page).parse(b'{"size": null}')["size"] == 10


def test_null_is_kept_where_the_type_has_it():
    assert SignatureArguments(page).parse(b'{"after": null}')["after"] is None


def test_null_for_a_nested_member_means_that_it_was_left_out():
    arguments = SignatureArguments(page).parse(b'{"deep": {"sku": "a", "quantity": null}}')
    assert arguments["deep"] == Line(sku="a", quantity=1)


def test_null_for_a_required_argument_is_refused():
    assert refusal(order, b'{"lines": null}') == "lines: must be an array (got null)"


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
    assert "amount: must be a" in refusal(pay, raw)


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
    assert "known: orderNumber" in refusal(aliased, b'{"number": "A"}')


# --- kinds of functions


async def wait(seconds: int) -> str: ...


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Shop:
    def close(self, reason: str) -> str: ...

    def __call__(self, reason: str) -> str: ...


@pytest.mark.parametrize(
    "function",
    [
        Shop().close,
        Shop(),
        logged(Shop().close),
        functools.partial(Shop().close),
        functools.partial(Shop.close, Shop()),
    ],
)
def test_every_kind_of_callable_is_read(function):
    schema = SignatureArguments(function).json_schema
    assert schema["properties"] == {"reason": {"type": "string"}}


def test_an_async_function_is_read_like_any_other():
    assert SignatureArguments(wait).parse(b'{"seconds": "5"}') == {"seconds": 5}


def test_what_partial_has_bound_is_not_the_callers_to_choose():
    function = functools.partial(refund, "A1", tone="formal")
    assert list(SignatureArguments(function).json_schema["properties"]) == ["amount", "day"]


def test_skipped_parameters_are_neither_published_nor_resolved():
    def local(ctx: Unknown, number: str) -> str: ...  # noqa: F821

    arguments = SignatureArguments(local, skip={"ctx"})
    assert arguments.parse(b'{"number": "1"}') == {"number": "1"}


def positional(ctx, number: int, /, *, note: str = "") -> str:
    return f"{ctx} {number} {note}"


def test_positional_parameters_are_passed_by_position():
    arguments = SignatureArguments(positional, skip=["ctx"])
    args, kwargs = arguments.bind({"ctx": "c", **arguments.parse(b'{"number": 1}')})
    assert (args, kwargs) == (("c", 1), {"note": ""})


# --- what is refused when it is declared


def variadic(*numbers: int) -> str: ...


def keywords(**options: int) -> str: ...


@pytest.mark.parametrize(("function", "shown"), [(variadic, "*numbers"), (keywords, "**options")])
def test_open_ended_parameters_are_refused(function, shown):
    with pytest.raises(ImproperlyConfigured) as caught:
        SignatureArguments(function)
    assert shown in str(caught.value)
    assert "Name each one" in str(caught.value)


def test_a_hint_that_cannot_be_resolved_names_function_hint_and_way_out():
    class Local: ...

    def local(value: Local) -> str: ...

    with pytest.raises(ImproperlyConfigured) as caught:
        SignatureArguments(local)
    for part in ("local declares 'value' as Local", "top level of the module", "TYPE_CHECKING"):
        assert part in str(caught.value)


class Opaque: ...


def opaque(fine: int, value: Opaque) -> str: ...


def test_a_type_without_json_names_the_parameter():
    with pytest.raises(ImproperlyConfigured) as caught:
        SignatureArguments(opaque)
    assert "opaque declares 'value' as " in str(caught.value)
    assert "arbitrary_types_allowed" not in str(caught.value)


def broken_pattern(value: Annotated[str, Field(pattern="(")]) -> str: ...


def test_a_rule_that_cannot_hold_names_the_parameter():
    with pytest.raises(ImproperlyConfigured, match="broken_pattern declares 'value'"):
        SignatureArguments(broken_pattern)


class Size(enum.Enum):
    LARGE = "l"


def only_large(value: Literal[Size.LARGE]) -> str: ...


def test_a_literal_that_cannot_be_read_from_json_is_refused():
    with pytest.raises(ImproperlyConfigured, match="derive the enum from str"):
        SignatureArguments(only_large)


def reads_file(names: list[Path]) -> str: ...


def test_a_path_chosen_by_a_model_is_refused():
    with pytest.raises(ImproperlyConfigured, match=r"(?s)properties/names/items.*Django storage"):
        SignatureArguments(reads_file)


# --- dialects


def test_the_strict_dialect_lists_every_argument_as_required():
    arguments = SignatureArguments(page, strict=True)
    assert arguments.json_schema["required"] == ["size", "after", "deep"]
    assert arguments.json_schema["properties"]["size"] == {
        "anyOf": [{"type": "integer"}, {"type": "null"}],
        "description": "Default: 10.",
    }
    assert arguments.parse(b'{"size": null, "after": null, "deep": null}')["size"] == 10


def mapping(values: dict[str, int]) -> str: ...


def test_a_signature_that_the_strict_dialect_cannot_say_is_refused():
    with pytest.raises(ImproperlyConfigured, match=r"mapping: The strict dialect cannot"):
        SignatureArguments(mapping, strict=True)


def tree(root: Node) -> str: ...


def test_a_recursive_type_keeps_its_definition_and_is_parsed():
    arguments = SignatureArguments(tree)
    assert set(arguments.json_schema) == {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "$defs",
    }
    assert arguments.parse(b'{"root": {"name": "a", "parent": {"name": "b"}}}') == {
        "root": Node(name="a", parent=Node(name="b"))
    }
    assert refusal(tree, b'{"root": {"name": "a", "parent": {}}}') == (
        "root.parent.name: is required"
    )
