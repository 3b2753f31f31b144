"""The marker of an argument that is mirrored into a header."""

from __future__ import annotations

import enum
from typing import Annotated

import pytest

from mcp_django.protocol.headers import header_parameters
from mcp_django.schema.arguments import Header
from mcp_django.schema.signature import SignatureArguments
from tests.spec import spec


class Region(enum.Enum):
    EAST = "east"


def tool(
    region: Annotated[str, Header("Region")],
    page: Annotated[int | None, "Which page", Header("Page")] = None,
    side: Annotated[Region, Header("Side")] = Region.EAST,
): ...


@spec("HDR-12")
def test_the_marker_is_published_with_the_property():
    schema = SignatureArguments(tool).json_schema
    assert schema["properties"] == {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "page": {"type": "integer", "description": "Which page", "x-mcp-header": "Page"},
        "side": {"type": "string", "enum": ["east"], "default": "east", "x-mcp-header": "Side"},
    }
    assert [parameter.header for parameter in header_parameters(schema)] == [
        "Region",
        "Page",
        "Side",
    ]


@spec("HDR-13")
@pytest.mark.parametrize("name", ["", "Region Name", "Région", "a\nb", "a:b"])
def test_a_name_that_is_no_header_token_is_refused(name):
    with pytest.raises(ValueError, match="cannot be part of a header name"):
        Header(name)
