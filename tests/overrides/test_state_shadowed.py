"""A disabled resource is not served by a template that also matches its URI."""

from __future__ import annotations

import pytest

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.test import MCPClient
from mcp_django.testing.answers import ErrorResponse
from tests.kit.servers import person
from tests.overrides.site import decide

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unpinned")]


@pytest.fixture
def archive():
    """Return a server with a paper for clerks, and templates that match all others."""
    server = MCPServer("archive", permission=AllowAny)

    @server.resource("paper://salaries", permission="auth.view_group")
    def salaries() -> str:
        """For clerks."""
        return "salaries"

    @server.resource("paper://{name}")
    def paper(name: str) -> str:
        """For everybody."""
        return f"the paper {name}"

    @server.resource("paper://year/{number}", permission="auth.view_group")
    def year(number: str) -> str:
        """For clerks."""
        return f"the year {number}"

    @server.resource("paper://{+path}")
    def anything(path: str) -> str:
        """For everybody."""
        return f"anything at {path}"

    return server


@pytest.mark.parametrize(
    ("kind", "key", "uri"),
    [
        ("resource", "paper://salaries", "paper://salaries"),
        ("resource template", "paper://year/{number}", "paper://year/1984"),
    ],
)
def test_a_resource_that_is_off_is_not_read_through_a_template(archive, kind, key, uri):
    client = MCPClient(server=archive, user=person("ada"))
    with pytest.raises(ErrorResponse) as before:
        client.read_resource(uri)
    decide("archive", key, kind=kind, is_enabled=False)
    with pytest.raises(ErrorResponse) as after:
        client.read_resource(uri)
    assert str(after.value) == str(before.value)
    assert client.read_resource("paper://other")[0]["text"] == "the paper other"
