"""A site's own tests: overrides of one test apply there alone, with a database or without."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from django.db import OperationalError, connection
from django.test import SimpleTestCase, TestCase, TransactionTestCase
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPServer
from mcp_django.exceptions import MCPError
from mcp_django.models import Component
from mcp_django.test import MCPClient
from tests.overrides.site import decide, server_of

pytestmark = pytest.mark.usefixtures("unpinned")
TRANSPORTS = ["memory", "http", "stdio"]

bench = server_of("bench", "saw", "plane")


def switch_off(key: str) -> None:
    Component.objects.create(server="bench", kind="tool", key=key, name=key, is_enabled=False)


def listed(**options: Any) -> list[str]:
    with MCPClient(server=bench, **options) as client:
        return [tool["name"] for tool in client.list_tools()]


class InTransactions(TestCase):
    """Two tests, each of which would see the other's overrides if any were left over."""

    def _decide(self, mine: str, other: str) -> None:
        assert sorted(listed()) == ["plane", "saw"]
        switch_off(mine)
        assert listed() == [other]
        with pytest.raises(MCPError, match=mine):
            MCPClient(server=bench).call_tool(mine)
        assert MCPClient(server=bench).call_tool(other).text == "done"
        Component.objects.update(is_enabled=True)
        assert MCPClient(server=bench).call_tool(mine).text == "done"
        Component.objects.update(is_enabled=False)

    def test_one(self):
        self._decide("saw", "plane")

    def test_other(self):
        self._decide("plane", "saw")

    def test_told(self):
        with self.captureOnCommitCallbacks(execute=True):
            decide("bench", "saw", is_enabled=False)
        assert listed() == ["plane"]

    def test_nothing_is_counted(self):
        with self.assertNumQueries(0):
            MCPClient(server=bench).call_tool("saw")


class WithoutTransactions(TransactionTestCase):
    """The same over every transport, where functions run in threads of their own."""

    available_apps: ClassVar[list[str] | None] = None

    def test_one(self):
        for transport in TRANSPORTS:
            assert sorted(listed(transport=transport)) == ["plane", "saw"]
        switch_off("saw")
        for transport in TRANSPORTS:
            assert listed(transport=transport) == ["plane"]

    def test_other(self):
        switch_off("plane")
        for transport in TRANSPORTS:
            assert listed(transport=transport) == ["saw"]


class WithoutDatabase(SimpleTestCase):
    """Tests that Django does not let use the database."""

    def test_calls(self):
        assert MCPClient(server=bench).call_tool("saw").text == "done"
        assert sorted(listed()) == ["plane", "saw"]


@pytest.mark.django_db
def test_what_a_test_decides_is_gone_with_it():
    switch_off("saw")
    assert listed() == ["plane"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_test_that_may_not_use_the_database_goes_on_without(transport):
    assert sorted(listed(transport=transport)) == ["plane", "saw"]
    with MCPClient(server=bench, transport=transport) as client:
        assert client.call_tool("saw").text == "done"


async def test_an_asynchronous_test_that_may_not_use_the_database_does_too():
    assert (await MCPClient(server=bench).acall_tool("saw")).text == "done"


@pytest.mark.django_db
def test_a_test_counts_the_queries_of_its_component_alone():
    server = MCPServer("counted", permission=bench.permission)

    @server.tool
    def ask() -> int:
        """Ask the database."""
        return Component.objects.count()

    client = MCPClient(server=server)
    for _ in range(2):
        with CaptureQueriesContext(connection) as queries:
            client.call_tool("ask")
        assert len(queries) == 1


@pytest.mark.django_db
def test_a_server_whose_decisions_cannot_be_read_says_so_to_a_test():
    server = server_of("blind", "saw")

    def refuse(*args: Any) -> Any:
        raise OperationalError("gone")

    with connection.execute_wrapper(refuse), pytest.raises(Exception, match="cannot read"):
        MCPClient(server=server).call_tool("saw")
