"""The commands show the overrides that were made in the admin."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection

from mcp_django import MCPServer
from mcp_django.models import Component, Server
from mcp_django.overrides.state import override_version
from tests.kit.servers import person
from tests.management.console import attempt, fails, run, server_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _unpinned(_isolation):
    override_version.record_change()
    override_version.reset()


def saw() -> str:
    """Saw."""
    return "sawn"


def plane() -> str:
    """Plane."""
    return "planed"


@pytest.fixture
def bench():
    """Return a server with a tool that is disabled, and one that is overridden."""
    server = server_of(saw, plane)
    common = {"server": server.name, "kind": "tool"}
    Component.objects.create(**common, key="saw", name="saw", is_enabled=False)
    Component.objects.create(
        **common, key="plane", name="plane", title="Smooth", groups=["joiners"]
    )
    return server


def entries(server: MCPServer, *more: str) -> dict[str, Any]:
    (listing,) = json.loads(run("list", "--server", server.name, "--json", *more).out)
    return {component["name"]: component for component in listing["components"]}


def test_the_list_tells_what_is_switched_off_and_shows_the_rest_as_offered(bench):
    components = entries(bench)
    assert (components["saw"]["enabled"], components["plane"]["enabled"]) == (False, True)
    assert components["plane"]["title"] == "Smooth"
    assert components["plane"]["permission"] == ["group joiners"]
    text = run("list", "--server", bench.name).out
    (line,) = [line for line in text.splitlines() if line.split()[:1] == ["saw"]]
    assert "disabled in the admin" in line


def test_the_list_of_a_user_has_what_that_user_sees(bench):
    ada = person()
    assert entries(bench, "--user", "ada") == {}
    ada.groups.add(Group.objects.create(name="joiners"))
    assert set(entries(bench, "--user", "ada")) == {"plane"}


def test_inspect_shows_what_is_offered(bench):
    place = ("--server", bench.name, "--json")
    component = json.loads(run("inspect", "plane", *place).out)
    assert (component["enabled"], component["wire"]["title"]) == (True, "Smooth")
    assert not json.loads(run("inspect", "saw", *place).out)["enabled"]
    disabled = run("inspect", "saw", "--server", bench.name).out
    assert "\n  status      disabled in the admin\n" in disabled
    assert "audience" not in disabled


def test_inspect_says_why_a_user_does_not_see_it(bench):
    person()
    for name, reason in (("saw", "the admin"), ("plane", "group joiners")):
        text = run("inspect", name, "--server", bench.name, "--user", "ada").out
        assert f"ada may not see it: {reason}" in text


def test_a_call_of_what_is_switched_off_says_so(bench):
    person()
    error = fails("call", "saw", "--server", bench.name, "--user", "ada")
    assert "hidden from ada by the admin, where it is disabled" in error


def test_a_server_that_is_switched_off_is_told_as_such():
    server = server_of(saw)
    Server.objects.create(name=server.name, is_enabled=False)
    assert "disabled in the admin" in run("list", "--server", server.name).out
    (listing,) = json.loads(run("list", "--server", server.name, "--json").out)
    assert not listing["enabled"]
    person()
    error = fails("call", "saw", "--server", server.name, "--user", "ada")
    assert error == f"The server {server.name!r} is disabled in the admin."


def test_without_a_database_the_list_is_that_of_the_code(bench):
    def refuse(*args: Any) -> Any:
        raise OperationalError("gone")

    with connection.execute_wrapper(refuse):
        outcome = attempt("list", "--server", bench.name)
    assert outcome.status == 0
    assert "saw" in outcome.out
