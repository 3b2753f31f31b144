"""Forms from every kind of declaration, and the values that their answers become."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Optional
from uuid import UUID

import pytest
from django import forms
from django.db import models
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, RootModel
from typing_extensions import TypedDict

from mcp_django.schema.elicitation import build_elicitation_form
from tests.schema.elicited import problem, read, refusal, schema_of
from tests.spec import spec


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Size(models.TextChoices):
    SMALL = "s", "Small"
    LARGE = "l", "Large"


class Number(IntEnum):
    ONE = 1


@dataclass(frozen=True)
class Inner:
    x: int


@dataclass(frozen=True)
class Outer:
    inner: Inner


@dataclass(frozen=True)
class Delivery:
    """A field of most kinds, each with a default but the first."""

    day: Annotated[date, "The day of arrival"]
    floor: Annotated[int, Field(ge=0, le=40, description="Floor")] = 0
    weight: float | None = None
    gift: bool = False
    color: Color = Color.RED
    size: Optional[Size] = None  # noqa: UP045 - the older spelling
    extras: list[Literal["card", "bow"]] = dataclasses.field(default_factory=list)


class Wish(TypedDict):
    name: Annotated[str, "Your name"]
    age: NotRequired[Annotated[int, "Your age"]]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")

    the_name: Annotated[str, "A name"] = Field(alias="theName", max_length=3)
    price: Decimal = Decimal("1.10")
    at: datetime | None = None


# One field ------------------------------------------------------------------------------------


@spec("ASK-11", "ASK-14")
@pytest.mark.parametrize(
    ("declared", "member", "content", "value"),
    [
        (str, {"type": "string"}, "a", "a"),
        (int, {"type": "integer"}, 5, 5),
        (int, {"type": "integer"}, 5.0, 5),
        (float, {"type": "number"}, 5, 5.0),
        (bool, {"type": "boolean"}, False, False),
        (date, {"type": "string", "format": "date"}, "2026-03-01", date(2026, 3, 1)),
        (time, {"type": "string"}, "12:30", time(12, 30)),
        (UUID, {"type": "string"}, str(UUID(int=1)), UUID(int=1)),
        (
            Decimal,
            {"type": "string", "description": "Must be a decimal number."},
            "1.10",
            Decimal("1.10"),
        ),
        (
            AnyUrl,
            {"type": "string", "format": "uri", "minLength": 1},
            "https://a/",
            AnyUrl("https://a/"),
        ),
        (Color, {"type": "string", "enum": ["red", "blue"]}, "blue", Color.BLUE),
        (Size, {"type": "string", "enum": ["s", "l"]}, "l", Size.LARGE),
        (Literal["a"], {"type": "string", "enum": ["a"]}, "a", "a"),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "b"),
        (
            list[Color],
            {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}},
            ["blue", "red"],
            [Color.BLUE, Color.RED],
        ),
        (
            Annotated[set[Literal["a", "b"]], Field(min_length=1)],
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1},
            ["a", "a"],
            {"a"},
        ),
        (Annotated[str, "Your name"], {"type": "string", "description": "Your name"}, "a", "a"),
        (
            Annotated[int, Field(gt=0, lt=10, title="N")],
            {"type": "integer", "minimum": 1, "maximum": 9},
            9,
            9,
        ),
    ],
)
def test_a_single_type_is_one_field_without_its_wrapping(declared, member, content, value):
    schema = schema_of(declared)
    assert schema == {"type": "object", "properties": {"value": member}, "required": ["value"]}
    answer = read(declared, {"value": content, "more": 1})
    assert (answer, type(answer)) == (value, type(value))


@spec("ASK-14")
@pytest.mark.parametrize(
    "declared",
    [str | None, int | None, Color | None, Literal["a"] | None, list[Color] | None],
)
def test_a_field_that_may_be_left_out_is_none_then(declared):
    assert "required" not in schema_of(declared)
    assert read(declared, {}) is None
    assert read(declared, {"value": None}) is None


@dataclass(frozen=True)
class Remark:
    """Optional text of each kind."""

    plain: str | None = None
    day: date | None = None
    size: Optional[Size] = None  # noqa: UP045 - the older spelling
    nullable: str | None = dataclasses.field(kw_only=True)
    long: Annotated[str, Field(min_length=3)] | None = None
    greeting: str = "Hello"
    count: int = 3
    answer: Literal["", "yes"] | None = None


@spec("ASK-11")
def test_optional_text_has_an_empty_default():
    properties = schema_of(Remark)["properties"]
    assert {
        name: member["default"] for name, member in properties.items() if "default" in member
    } == {
        "plain": "",
        "nullable": "",
        "greeting": "Hello",
        "count": 3,
    }
    assert schema_of(str)["properties"] == {"value": {"type": "string"}}
    assert schema_of(str | None)["properties"] == {"value": {"type": "string", "default": ""}}


@pytest.mark.parametrize(
    "declared",
    [Annotated[int, Field(ge=0, le=2**62)], Annotated[int, Field(le=2**62)] | None],
)
def test_a_large_integer_is_a_number_in_a_form(declared):
    assert schema_of(declared)["properties"]["value"]["type"] == "integer"
    assert read(declared, {"value": 3}) == 3


@spec("ASK-14")
def test_text_that_was_left_empty_was_left_out():
    empty = {"plain": "", "day": "", "size": "", "nullable": "", "long": ""}
    assert read(Remark, empty) == read(Remark, {}) == Remark(nullable=None)
    assert read(Remark, dict.fromkeys(schema_of(Remark)["properties"])) == Remark(nullable=None)
    # These were filled in.
    assert read(Remark, {"greeting": "", "answer": ""}) == Remark(
        greeting="", answer="", nullable=None
    )
    assert read(str | None, {"value": ""}) is None
    assert read(str, {"value": ""}) == ""
    assert problem(str, {"value": None}).startswith("value: ")


@spec("ASK-14")
@pytest.mark.parametrize(
    ("declared", "content", "text"),
    [
        (str, {}, "value: is required"),
        (str, {"value": 5}, "value: must be a string (got 5)"),
        (int, {"value": "many"}, 'value: must be an integer (got "many")'),
        (bool, {"value": "perhaps"}, 'value: must be true or false (got "perhaps")'),
        (date, {"value": "soon"}, 'value: must be a date like 2026-12-31 (got "soon")'),
        (Literal["a", "b"], {"value": "c"}, 'value: must be one of "a", "b" (got "c")'),
        (list[Color], {"value": ["green"]}, 'value[0]: must be one of "red", "blue" (got "green")'),
        (Annotated[str, Field(pattern="^a")], {"value": "b"}, "value: must match the pattern"),
        (Annotated[float, Field(gt=0)], {"value": 0}, "value: must be greater than 0 (got 0)"),
    ],
)
def test_what_does_not_fit_is_said_by_the_name_of_the_field(declared, content, text):
    assert problem(declared, content).startswith(text)


# Several fields -------------------------------------------------------------------------------


@spec("ASK-11")
def test_a_dataclass_has_a_field_for_each_member():
    assert schema_of(Delivery) == {
        "type": "object",
        "properties": {
            "day": {"type": "string", "format": "date", "description": "The day of arrival"},
            "floor": {
                "type": "integer",
                "minimum": 0,
                "maximum": 40,
                "description": "Floor",
                "default": 0,
            },
            "weight": {"type": "number"},
            "gift": {"type": "boolean", "default": False},
            "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "size": {"type": "string", "enum": ["s", "l"]},
            "extras": {"type": "array", "items": {"type": "string", "enum": ["card", "bow"]}},
        },
        "required": ["day"],
    }
    assert read(Delivery, {"day": "2026-03-01"}) == Delivery(day=date(2026, 3, 1))
    full = {"day": "2026-03-01", "floor": 3, "weight": 1, "gift": True, "color": "blue"}
    assert read(Delivery, {**full, "size": "l", "extras": ["bow"], "admin": True}) == Delivery(
        date(2026, 3, 1), 3, 1.0, gift=True, color=Color.BLUE, size=Size.LARGE, extras=["bow"]
    )


@spec("ASK-14")
def test_every_field_that_does_not_fit_is_named():
    text = problem(Delivery, {"floor": 50, "gift": None, "color": "green"})
    assert text.splitlines() == [
        "day: is required",
        "floor: must be at most 40 (got 50)",
        'color: must be one of "red", "blue" (got "green")',
    ]


def test_a_typed_dict_becomes_a_dict():
    assert schema_of(Wish) == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Your name"},
            "age": {"type": "integer", "description": "Your age"},
        },
        "required": ["name"],
    }
    assert read(Wish, {"name": "a", "more": 1}) == {"name": "a"}
    assert read(Wish, {"name": "a", "age": 5}) == {"name": "a", "age": 5}


class Notice(BaseModel):
    send: bool = Field(True, title="Notify the customer")
    note: Annotated[str, Field(title="Note"), "What the customer reads"] = ""
    copies: int = 1


@dataclass
class Told:
    send: Annotated[bool, Field(title="Notify the customer")]


def test_titles_are_the_labels_of_the_fields():
    assert schema_of(Told)["properties"]["send"]["title"] == "Notify the customer"
    members = schema_of(Notice)["properties"]
    assert members["send"]["title"] == "Notify the customer"
    assert members["note"]["title"] == "Note"
    assert members["note"]["description"] == "What the customer reads"
    # Not derived from the name: clients show the name by themselves.
    assert "title" not in members["copies"]


def test_a_model_is_asked_for_by_its_aliases():
    schema = schema_of(Model)
    assert list(schema["properties"]) == ["theName", "price", "at"]
    assert schema["required"] == ["theName"]
    assert schema["properties"]["theName"]["description"] == "A name"
    model = read(Model, {"theName": "ada", "price": 2, "the_name": "x"})
    assert model == Model(theName="ada", price=Decimal(2))
    assert problem(Model, {"theName": "too long"}).startswith("theName: must have at most 3")


def test_a_model_made_within_a_function_is_read_as_pydantic_does():
    class Kind(Enum):
        A = "a"

    class Local(BaseModel):
        kind: Annotated[Kind, "lost"] = Kind.A

    assert schema_of(Local)["properties"]["kind"]["enum"] == ["a"]
    assert read(Local, {}).kind is Kind.A


def test_nothing_declared_is_nothing_asked():
    assert schema_of(None) == {"type": "object", "properties": {}}
    assert read(None, {"value": 1}) is None


# What no form can be made of ------------------------------------------------------------------


@spec("ASK-11")
@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (
            Outer,
            "inner is not text, a number, a boolean, a date, a choice or a list of choices; forms",
        ),
        (dict, "value is not text, a number, a boolean"),
        (Any, "value is not text, a number, a boolean"),
        (bytes, "value is not text, a number, a boolean"),
        (int | str, "value is not text, a number, a boolean"),
        (Inner | None, "value is not text, a number, a boolean"),
        (Annotated[Inner, "nested"], "value is not text, a number, a boolean"),
        (RootModel[int], "a form must be an object with named fields and no others"),
        (Number, "value is a choice whose values are not all text"),
        (Literal[1, 2], "value is a choice whose values are not all text"),
        (list[str], "value is a list, but not of choices of text"),
        (list[int | str], "value is a list, but not of choices of text"),
        (list[Color | None], "value is a list, but not of choices of text"),
        (list[Inner], "value is a list, but not of choices of text"),
    ],
)
def test_what_is_not_flat_is_refused_by_name(declared, text):
    message = refusal(declared)
    assert " cannot be used as a form: " in message
    assert text in message


@pytest.mark.parametrize("declared", [5, object(), Path, forms.CharField()])
def test_what_has_no_json_is_refused_without_names_of_ours(declared):
    text = refusal(declared)
    assert text.startswith("The form ")
    assert "mcp_django" not in text


# Remembered forms -----------------------------------------------------------------------------


def test_a_form_is_made_once():
    assert build_elicitation_form(Delivery) is build_elicitation_form(Delivery)


def test_equal_types_that_read_otherwise_are_other_forms():
    for order in (["a", "b"], ["b", "a"]):
        hint: Any = Literal[tuple(order)]
        assert schema_of(hint)["properties"]["value"]["enum"] == order


def test_a_type_without_a_hash_is_no_trouble():
    hint = Annotated[str, Field(json_schema_extra={"x": []}), {}]
    assert read(hint, {"value": "a"}) == "a"
