"""The table of docs/topics/tools.md matches what the code publishes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import Field

from mcp_django.schema.signature import SignatureArguments
from tests.spec import spec

PAGE = Path(__file__).resolve().parents[2] / "docs" / "topics" / "tools.md"


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Point:
    x: float
    y: float


NAMES = {
    annotation.__name__: annotation
    for annotation in (date, datetime, time, timedelta, Decimal, UUID, Size, Point)
} | {"Annotated": Annotated, "Field": Field, "Literal": Literal}


def rows() -> list[tuple[str, str]]:
    matches = re.findall(r"^\| `(.+?)` \| `(\{.+\})` \|$", PAGE.read_text(), re.MULTILINE)
    return [(annotation.replace("\\|", "|"), schema) for annotation, schema in matches]


@spec("RPC-14")
@pytest.mark.parametrize(("annotation", "schema"), rows())
def test_the_published_schema_is_the_documented_one(annotation, schema):
    def function(x: Any) -> None: ...

    function.__annotations__["x"] = eval(annotation, dict(NAMES))
    published = SignatureArguments(function).json_schema["properties"]["x"]
    assert published == json.loads(schema)


def test_the_table_is_not_empty():
    assert len(rows()) > 20
