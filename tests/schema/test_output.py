"""Results with a declared type."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from io import BytesIO
from numbers import Number
from pathlib import Path
from typing import Annotated, Any, SupportsInt

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Manager
from django.http import HttpResponse
from django.utils.functional import Promise
from pydantic import BaseModel, ConfigDict, HttpUrl, PastDate, RootModel, field_serializer

from mcp_django.protocol.content import Text
from mcp_django.schema.arguments import OutputMismatch
from mcp_django.schema.lint import lint
from mcp_django.schema.output import TypedOutput, output_adapter
from mcp_django.schema.vocabulary import LARGE_INTEGER
from tests.schema.samples import Item, Page, Pair, Row, Takings
from tests.spec import spec

# Validates values against schemas; it is missing where the package is tested without extras.
jsonschema = pytest.importorskip("jsonschema")


class Color(Enum):
    RED = "red"


class GroupOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    name: str


def dump(annotation: Any, value: Any) -> Any:
    adapter = output_adapter(annotation)
    assert adapter is not None
    result = adapter.dump(value)
    jsonschema.Draft202012Validator(adapter.json_schema).validate(result)
    return result


def mismatch(annotation: Any, value: Any) -> str:
    with pytest.raises(OutputMismatch) as caught:
        TypedOutput(annotation).dump(value)
    first, _, rest = str(caught.value).partition("\n")
    assert first == "The result does not match its declaration."
    return rest


@spec("OUT-1")
def test_a_dataclass_is_written_as_its_schema_says():
    adapter = output_adapter(Takings)
    assert adapter is not None
    assert adapter.json_schema == {
        "type": "object",
        "properties": {
            "orders": LARGE_INTEGER,
            "total": {"type": "string", "description": "Must be a decimal number."},
            "day": {
                "anyOf": [{"type": "string", "format": "date"}, {"type": "null"}],
                "default": None,
            },
        },
        "required": ["orders", "total"],
    }
    value = Takings(3, Decimal("9.90"), date(2026, 11, 21))
    assert adapter.dump(value) == {"orders": 3, "total": "9.90", "day": "2026-11-21"}


def test_a_dict_stands_for_a_dataclass():
    assert dump(Takings, {"orders": 1, "total": 2}) == {"orders": 1, "total": "2", "day": None}


def test_values_in_a_dataclass_are_converted_like_any_other():
    # The sum() of no values is the integer 0.
    assert dump(Takings, Takings(0, 0)) == {"orders": 0, "total": "0", "day": None}


@pytest.mark.parametrize(
    ("annotation", "value", "plain"),
    [
        (Takings | None, None, None),
        (list[Row], [], []),
        (list[Row], ({"number": "a"},), [{"number": "a"}]),
        (Iterator[Row], iter([{"number": "a"}]), [{"number": "a"}]),
        (Generator, iter([1]), [1]),
        (Annotated[Iterable[int], "Numbers"], [1], [1]),
        (dict[int, set[int]], {1: {2}}, {"1": [2]}),
        (dict[str, timedelta], {"a": timedelta(hours=1)}, {"a": "PT1H"}),
        (dict[str, bytes], {"a": b"\xfb\xff"}, {"a": "-_8="}),
        (list[Pair], [Pair(1, "a")], [[1, "a"]]),
        (Page[int], Page([1]), {"items": [1]}),
        (RootModel[list[int]], [1], [1]),
        (Item, {"price": 1.5}, {"price": 1.5, "gross": 3.0}),
        (Item, Item(price=1.5), {"price": 1.5, "gross": 3.0}),
        (list[Any], [Color.RED, Decimal(1)], ["red", "1"]),
    ],
)
@spec("OUT-4")
def test_every_structure_is_written_as_json(annotation, value, plain):
    assert dump(annotation, value) == plain


@pytest.mark.django_db
def test_rows_of_a_query_fill_declared_rows():
    Group.objects.create(name="a")
    assert dump(list[GroupOut], Group.objects.all()) == [{"name": "a"}]
    assert dump(list[GroupOut], Group.objects.values("name")) == [{"name": "a"}]


@dataclasses.dataclass
class Counted:
    value: float
    calls: list[int] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.calls.append(1)


def test_a_dataclass_that_fits_is_not_made_again():
    assert dump(Counted, Counted(1.5)) == {"value": 1.5, "calls": [1]}


@pytest.mark.parametrize(
    ("annotation", "value", "problem"),
    [
        (Takings, "text", 'result: must be an object (got "text")'),
        (Takings, None, "result: must be an object (got null)"),
        (Takings, {"orders": 1}, "result.total: is required"),
        (Takings, Takings("many", Decimal(1)), 'result.orders: must be an integer (got "many")'),
        (list[Row], [{}], "result[0].number: is required"),
        (list[Row], {"a": 1}, 'result: must be an array (got {"a": 1})'),
        (Item, {"price": -1}, "result.price: must be at least 0 (got -1)"),
        (set[int], {"a"}, 'result[0]: must be an integer (got "a")'),
        (dict[str, float], {"a": math.nan}, "result.a: must be a finite number (got NaN)"),
        (dict[str, Any], {"a": [math.inf]}, "result.a[0] is inf, which is not valid in JSON"),
        (Counted, Counted(math.inf), "result.value is inf, which is not valid in JSON"),
        (list[Any], [Group(name="x")], "return the fields that the caller may see"),
        (Takings | list[int], 3, "result: must be an object or an array (got 3)"),
    ],
)
@spec("OUT-1")
def test_a_result_that_does_not_fit_names_the_field(annotation, value, problem):
    assert problem in mismatch(annotation, value)


def test_a_model_changed_behind_its_own_back_does_not_fit():
    changed = Item(price=1)
    changed.price = "free"
    assert "serialized value may not be as expected" in mismatch(Item, changed)


class Shouting(BaseModel):
    value: int

    @field_serializer("value")
    def shout(self, value: int) -> str:
        raise TypeError("no voice")


def test_a_serializer_that_fails_does_not_fit():
    assert "no voice" in mismatch(Shouting, {"value": 1})


class Opaque: ...


@pytest.mark.parametrize("annotation", [list[Opaque], dict[str, Callable[[], int]]])
def test_a_structure_that_json_cannot_say_is_refused(annotation):
    with pytest.raises(ImproperlyConfigured, match="cannot be written as JSON"):
        output_adapter(annotation)


@pytest.mark.parametrize(
    ("annotation", "instead"),
    [
        (Opaque, "return a dict, a list, a dataclass or text"),
        (Opaque | None, "Opaque cannot be written"),
        (str | Annotated[Opaque, "odd"], "Opaque cannot be written"),
        (bytes, "return Image, Audio"),
        (HttpResponse, "return the data of the response"),
        (Group, "return the fields that the caller may see"),
        (Manager, r"\.values\('id', 'name'\)"),
        (BytesIO, "return the contents of the file"),
    ],
)
def test_a_result_that_is_no_data_is_refused(annotation, instead):
    with pytest.raises(ImproperlyConfigured, match=instead):
        output_adapter(annotation)


@pytest.mark.parametrize(
    "annotation",
    [
        None,
        object,
        date | str,
        Text | bool,
        Promise,
        Path,
        AsyncIterable,
        SupportsInt,
        Number,
        Any,
        PastDate,
        HttpUrl,
    ],
)
def test_a_result_that_may_be_data_is_accepted(annotation):
    output_adapter(annotation)


class Node(BaseModel):
    name: str
    children: list[Node] = []


def test_a_recursive_result_keeps_its_definition():
    schema = TypedOutput(Node).json_schema
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert dump(Node, Node(name="a", children=[Node(name="b")]))["children"][0]["name"] == "b"


def test_nothing_is_left_for_hosts_to_choke_on():
    for annotation in (Takings, Row, Item, Page[Row]):
        assert lint(TypedOutput(annotation).json_schema) == []
