"""Types and functions that several tests of this layer declare things with."""

from __future__ import annotations

import dataclasses
import enum
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeVar

import pytest
from pydantic import BaseModel, Field, computed_field
from typing_extensions import TypedDict

from mcp_django.schema.arguments import ArgumentSource, InvalidArguments
from mcp_django.schema.signature import SignatureArguments

T = TypeVar("T")


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Place:
    street: str
    door: int = 1


class Window(TypedDict):
    start: date
    end: NotRequired[date]


class Pair(NamedTuple):
    left: int
    right: str = "?"


class Cash(BaseModel):
    kind: Literal["cash"]
    amount: int


class Card(BaseModel):
    kind: Literal["card"]
    number: str


Payment = Annotated[Cash | Card, Field(discriminator="kind")]


class Line(BaseModel):
    sku: str
    quantity: int = 1


class Node(BaseModel):
    name: str
    parent: Node | None = None


@dataclasses.dataclass
class Takings:
    orders: int
    total: Decimal
    day: date | None = None


class Row(TypedDict):
    number: str
    note: NotRequired[str]


class Item(BaseModel):
    price: Annotated[float, Field(ge=0)]

    @computed_field
    @property
    def gross(self) -> float:
        return self.price * 2


@dataclasses.dataclass
class Page(Generic[T]):
    items: list[T]


def refund(
    number: str,
    amount: Annotated[Decimal, Field(gt=0)],
    tone: Literal["formal", "warm"] = "warm",
    day: Annotated[date | None, "The trading day"] = None,
) -> str: ...


def order(lines: list[Line], note: str | None = None) -> str: ...


def page(size: int = 10, after: str | None = "start", deep: Line | None = None) -> str: ...


def taking(annotation: Any) -> SignatureArguments:
    """Return the arguments of a function with one parameter, `value`."""

    def tool(value): ...

    tool.__annotations__ = {"value": annotation}
    return SignatureArguments(tool)


def refusal(source: ArgumentSource, raw: bytes) -> str:
    """Return the text with which arguments are refused."""
    with pytest.raises(InvalidArguments) as caught:
        source.parse(raw)
    return str(caught.value)
