"""Untyped results as plain JSON."""

from __future__ import annotations

import dataclasses
import enum
import io
import math
from collections import Counter, OrderedDict, deque
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db import models
from django.http import HttpResponse, QueryDict
from django.utils.functional import lazystr
from django.utils.safestring import mark_safe
from pydantic import BaseModel, Field, RootModel

from mcp_django.protocol.content import Image, Text, ToolResult
from mcp_django.schema.values import MAX_DEPTH, check_finite, jsonable


class Status(models.TextChoices):
    PAID = "paid", "Paid"


class Level(enum.IntEnum):
    HIGH = 2


class Row(NamedTuple):
    number: str
    total: Decimal


@dataclasses.dataclass
class Takings:
    day: date
    rows: list[Row]


class Order(BaseModel):
    number: str = Field(serialization_alias="orderNumber")
    placed: date


class Odd(BaseModel):
    value: Any


class Measure(BaseModel):
    value: float


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (10**30, 10**30),
        (1.5, 1.5),
        ("ü", "ü"),
        (Decimal("1.50"), "1.50"),
        (date(2026, 11, 21), "2026-11-21"),
        (datetime(2026, 11, 21, 9, tzinfo=UTC), "2026-11-21T09:00:00Z"),
        (time(9, 30), "09:30:00"),
        (timedelta(hours=1, minutes=30), "PT1H30M"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (ip_address("::1"), "::1"),
        (PurePosixPath("a/b"), "a/b"),
        (Status.PAID, "paid"),
        (Level.HIGH, 2),
        (lazystr("later"), "later"),
        (mark_safe("<b>"), "<b>"),
        (type("Own", (int,), {})(3), 3),
        (type("Own", (float,), {})(0.5), 0.5),
        ({"a": {1: date(2026, 1, 1)}}, {"a": {"1": "2026-01-01"}}),
        (
            {None: 0, True: 1, 1.5: 2, Status.PAID: 3, date(2026, 1, 1): 4},
            {"null": 0, "true": 1, "1.5": 2, "paid": 3, "2026-01-01": 4},
        ),
        (OrderedDict(a=1), {"a": 1}),
        (Counter("aa"), {"a": 2}),
        (QueryDict("a=1&a=2"), {"a": "2"}),
        ((1, (2,)), [1, [2]]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset([1]), [1]),
        ({"b": 1}.keys(), ["b"]),
        ({"b": 1}.values(), [1]),
        (deque([1]), [1]),
        (range(2), [0, 1]),
        ((n for n in (1, 2)), [1, 2]),
        (Row("A", Decimal(2)), {"number": "A", "total": "2"}),
        (
            Takings(date(2026, 1, 1), [Row("A", Decimal(2))]),
            {"day": "2026-01-01", "rows": [{"number": "A", "total": "2"}]},
        ),
        (
            Order(number="A", placed=date(2026, 1, 1)),
            {"orderNumber": "A", "placed": "2026-01-01"},
        ),
        (RootModel[list[int]]([1]), [1]),
    ],
)
def test_usual_values_become_plain_json(value, plain):
    result = jsonable(value)
    assert result == plain
    assert type(result) is type(plain)


def test_a_set_without_an_order_is_written_all_the_same():
    assert sorted(jsonable({"a", 1}), key=str) == [1, "a"]


async def numbers():
    yield 1


async def wait(): ...


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (b"x", "return Image, Audio or EmbeddedResource, or text"),
        (bytearray(b"x"), "EmbeddedResource"),
        (Group(name="x"), "return the fields that the caller may see, in a dict"),
        (Group.objects, r".values\('id', 'name'\)"),
        (Group.objects.all(), r".values\('id', 'name'\)"),
        (HttpResponse("x"), "the data of the response"),
        (io.StringIO("x"), "the contents of the file"),
        (numbers(), r"\[item async for item in ...\]"),
        (Text("x"), "content blocks alone or in a list"),
        (Image(b"x"), "content blocks alone or in a list"),
        (ToolResult(), "content blocks alone or in a list"),
        (object(), "return a dict, a list, a dataclass or text"),
        (Takings, "return a dict"),
        (1j, "return a dict"),
    ],
)
def test_what_is_no_data_is_refused_with_what_to_return(value, advice):
    with pytest.raises(TypeError, match=advice):
        jsonable(value)


def test_a_coroutine_is_to_be_awaited():
    coroutine = wait()
    with pytest.raises(TypeError, match="the result of awaiting it"):
        jsonable(coroutine)
    coroutine.close()


def test_a_refusal_names_place_and_type():
    with pytest.raises(TypeError) as caught:
        jsonable({"rows": [1, Group(name="x")]})
    assert str(caught.value).startswith(
        "result.rows[1] is of type django.contrib.auth.models.Group, which cannot be converted to "
        "JSON; "
    )


def test_a_key_that_is_no_text_is_refused():
    with pytest.raises(TypeError, match=r"result.a has the key \(1, 2\)"):
        jsonable({"a": {(1, 2): 3}})


@pytest.mark.parametrize("value", [object(), b"\xff"])
def test_a_model_that_cannot_be_written_names_the_place(value):
    with pytest.raises(TypeError, match=r"result\[0\] cannot be written as JSON"):
        jsonable([Odd(value=value)])


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, Decimal("NaN")])
@pytest.mark.parametrize("place", ["rows[1].price"])
def test_numbers_that_json_cannot_say_are_refused_with_their_place(number, place):
    with pytest.raises(ValueError) as caught:
        jsonable({"rows": [{}, {"price": number}]})
    assert str(caught.value).startswith(f"result.{place} is {number}, which")


def test_nan_inside_a_model_is_refused():
    with pytest.raises(ValueError, match=r"result\.value is nan"):
        jsonable(Measure(value=math.nan))


def test_nesting_has_an_end():
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match=f"nested deeper than {MAX_DEPTH} levels"):
        jsonable(loop)


@pytest.mark.django_db
def test_a_query_for_values_is_a_list_of_objects():
    Group.objects.create(name="a")
    assert jsonable(Group.objects.values("name")) == [{"name": "a"}]
    assert jsonable(Group.objects.values_list("name", flat=True)) == ["a"]


def test_finding_infinity_in_plain_json():
    check_finite({"a": [1, "x", None, 1.5]})
    with pytest.raises(ValueError, match=r"result.a\[0\] is inf"):
        check_finite({"a": [math.inf]})
