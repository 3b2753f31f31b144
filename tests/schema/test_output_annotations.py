"""Which declared results have structure."""

from collections.abc import (
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import date, timedelta
from decimal import Decimal
from inspect import Signature
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db.models import QuerySet
from pydantic import RootModel
from typing_extensions import TypeAliasType

from mcp_django.protocol.content import (
    Audio,
    EmbeddedResource,
    Image,
    ResourceLink,
    Text,
    ToolResult,
)
from mcp_django.schema.output import output_adapter
from tests.schema.samples import Item, Page, Pair, Row, Size, Takings

# Validates values against schemas; it is missing where the package is tested without extras.
jsonschema = pytest.importorskip("jsonschema")

Rows = NewType("Rows", list[Row])
Named = TypeAliasType("Named", list[Row])


@pytest.mark.parametrize(
    "annotation",
    [
        Takings,
        Row,
        Item,
        Pair,
        Page[int],
        list,
        list[int],
        tuple[int, str],
        set[str],
        frozenset[str],
        dict,
        dict[str, Any],
        Sequence[int],
        Mapping[str, int],
        Iterable[int],
        Iterator[Row],
        Generator[Row, None, None],
        Takings | None,
        Takings | list[Takings],
        Annotated[Takings, "What came in"],
        Rows,
        Named,
        RootModel[list[int]],
        int,
        float,
        bool,
        int | None,
        Decimal,
        date,
        timedelta,
        UUID,
        Size,
        Literal["a", 1],
        Annotated[int, "How many"],
    ],
)
def test_a_type_that_says_more_than_text_has_a_schema(annotation):
    adapter = output_adapter(annotation)
    assert adapter is not None
    jsonschema.Draft202012Validator.check_schema(adapter.json_schema)


@pytest.mark.parametrize(
    "annotation",
    [
        str,
        Annotated[str, "A text"],
        int | str,
        None,
        type(None),
        Any,
        Signature.empty,
        str | None,
        Takings | str,
        Text,
        Image,
        Audio,
        EmbeddedResource,
        ResourceLink,
        ToolResult,
        list[Text],
        list[Text | Image],
        Takings | ToolResult,
        list[Group],
        dict[str, list[Group]],
        QuerySet,
        QuerySet[Group],
        AsyncIterator[int],
        Callable[[int], int],
        object,
    ],
)
def test_text_content_and_model_instances_have_none(annotation):
    assert output_adapter(annotation) is None
