"""Whatever is written into the rows by hand, the server goes on, and nothing becomes accessible."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import JSONField, Value

from mcp_django import MCPServer
from mcp_django.exceptions import ConnectionRefused
from mcp_django.models import Component, Server
from mcp_django.overrides.state import parse_component_row
from mcp_django.test import MCPClient
from tests.overrides.site import server_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unpinned")]

# Values that are not lists of names, although Python would make a tuple of some of them.
GARBAGE: list[Any] = [
    *(Value(None, JSONField()), 0, 5, 1.5, True, False, "", "abc", {}, {"a": 1}),
    *([5], [None], [[]], [{}], [""]),
]


def names(server: MCPServer) -> list[str]:
    return [tool["name"] for tool in MCPClient(server=server).list_tools()]


@pytest.mark.parametrize("column", ["groups", "permissions", "scopes"])
@pytest.mark.parametrize("value", GARBAGE, ids=ascii)
def test_a_list_that_is_none_switches_off_its_component_alone(column, value):
    server = server_of("barn", "rake", "hoe")
    Component.objects.create(server="barn", kind="tool", key="hoe", name="hoe", **{column: value})
    assert names(server) == ["rake"]


@pytest.mark.parametrize("column", ["groups", "permissions"])
@pytest.mark.parametrize("value", GARBAGE, ids=ascii)
def test_a_list_that_is_none_switches_off_its_server_alone(column, value):
    server, other = server_of("barn", "rake"), server_of("loft", "hay")
    Server.objects.create(name="barn", **{column: value})
    with pytest.raises(ConnectionRefused):
        names(server)
    assert names(other) == ["hay"]


@pytest.mark.parametrize("column", ["groups", "permissions", "scopes"])
@pytest.mark.parametrize("name", ["\0", "\ud800", "shop.\ud800"], ids=ascii)
def test_a_name_that_no_page_could_show_is_none(column, name):
    values = {"is_enabled": True, "title": "", "description": "", "rate": "", "approval": ""}
    lists: dict[str, Any] = {"groups": [], "permissions": [], "scopes": [], column: [name]}
    assert not parse_component_row({**values, **lists}, name="hoe").is_enabled
