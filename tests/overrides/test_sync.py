"""Rows for components that code declares: created, updated, and kept when a component is gone."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPServer, ModelTools
from mcp_django.models import Component, Server
from mcp_django.overrides.sync import sync_rows
from tests.overrides.site import server_of

pytestmark = pytest.mark.django_db


def row(key: str, server: str = "synced") -> Component:
    return Component.objects.get(server=server, key=key)


def test_every_component_gets_a_row_with_what_code_says():
    server = server_of("synced", "plain")

    @server.tool(read_only=True, permission=["auth.view_group", "auth.add_group"])
    def guarded() -> str:
        """Guarded."""
        return ""

    @server.resource("synced://one/{n}")
    def one(n: int) -> str:
        """One."""
        return ""

    sync_rows([server])
    assert Server.objects.filter(name="synced").count() == 1
    assert {(component.kind, component.key) for component in Component.objects.all()} == {
        ("tool", "plain"),
        ("tool", "guarded"),
        ("resource template", "synced://one/{n}"),
    }
    component = row("guarded")
    assert component.guarded_by == "auth.view_group and auth.add_group"
    assert (component.is_read_only, component.is_destructive) == (True, None)
    assert component.origin == __name__
    assert row("synced://one/{n}").name == "one"


def test_a_component_of_a_model_belongs_to_the_app_of_the_model():
    server = MCPServer("synced")

    @server.register(Group)
    class Groups(ModelTools[Group]):
        fields = ("id", "name")

    sync_rows([server])
    component = row("list_groups")
    assert (component.app, component.origin) == ("auth", "Groups of auth.Group")


def test_nothing_is_lost_of_what_is_gone_and_it_comes_back_as_it_was():
    server = server_of("synced", "left", "right")
    sync_rows([server])
    Component.objects.filter(key="left").update(title="Mine", is_enabled=False)
    left = server.tools["left"]
    server.unregister(left)
    sync_rows([server])
    gone = row("left")
    assert gone.missing_since is not None
    assert (gone.title, gone.is_enabled) == ("Mine", False)
    sync_rows([server])
    assert row("left").missing_since == gone.missing_since
    server.add(left)
    sync_rows([server])
    back = row("left")
    assert back.missing_since is None
    assert (back.pk, back.title, back.is_enabled) == (gone.pk, "Mine", False)


def test_a_row_follows_its_component():
    sync_rows([server_of("synced", "tool")])
    assert row("tool").is_destructive is None
    server = MCPServer("synced")
    server.tool("tool", destructive=True)(lambda: "")
    sync_rows([server])
    assert row("tool").is_destructive


def test_what_only_narrows_is_never_written_into_the_facts():
    server = server_of("synced", "tool")
    sync_rows([server])
    Component.objects.update(groups=["clerks"], is_enabled=False)
    server.refresh()
    sync_rows([server])
    assert row("tool").guarded_by == ""
    assert row("tool").missing_since is None


def test_two_processes_that_sync_at_once_make_one_row(monkeypatch):
    server = server_of("synced", "tool")
    # Rows that the other process has created in the meantime are not found by the first query.
    sync_rows([server])
    from mcp_django.overrides import sync as syncing

    monkeypatch.setattr(syncing, "_existing_rows", lambda alias: {})
    sync_rows([server])
    assert Component.objects.count() == 1


def test_a_uri_too_long_for_an_index_has_no_row_and_harms_nothing():
    server = server_of("synced", "tool")
    server.resource("synced://" + "x" * 600)(lambda: "")
    sync_rows([server])
    assert [component.key for component in Component.objects.all()] == ["tool"]


def test_a_thousand_components_cost_few_queries(django_assert_num_queries):
    server = server_of("synced", *(f"tool_{number}" for number in range(1000)))
    with CaptureQueriesContext(connection) as first:
        sync_rows([server])
    # SQLite limits the values in one statement; other databases take all of them.
    assert len(first) < 40
    with django_assert_num_queries(2):
        sync_rows([server])
