"""Tickets by the API, by the form and by the admin."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from helpdesk.models import CustomField, Queue, Ticket

from mcp_django import mcp
from mcp_django.checks import components as checks
from mcp_django.schema import deferred
from mcp_django.test import MCPClient
from tests.sites.programs import migrate, run

pytestmark = pytest.mark.django_db
EVERY_TICKET_TOOL = ["create_ticket", "get_ticket", "list_tickets", "update_ticket"]


@pytest.fixture
def staff(db):
    """Return a client of a superuser, and a queue."""
    user = get_user_model().objects.create_superuser("root", "root@example.org", "x")
    Queue.objects.create(title="Support", slug="support", allow_public_submission=True)
    return MCPClient(server=mcp, user=user)


def properties(client: MCPClient, name: str) -> dict[str, Any]:
    tools_by_name = {tool["name"]: tool for tool in client.list_tools()}
    schema: dict[str, Any] = tools_by_name[name]["inputSchema"]["properties"]
    return schema


def test_every_tool_is_listed_and_no_check_complains(staff):
    names = {tool["name"] for tool in staff.list_tools()}
    assert {*EVERY_TICKET_TOOL, "submit_ticket", "list_queues", "get_ticket_row"} <= names
    assert checks.check_left_out(None, databases=["default"]) == []


def test_a_ticket_is_created_read_and_changed_by_the_api(staff):
    queue = Queue.objects.get()
    made = staff.call_tool(
        "create_ticket",
        {
            "queue": queue.pk,
            "title": "Printer",
            "description": "It is on fire.",
            "submitter_email": "ada@example.org",
            "priority": 3,
            "merged_to": None,
        },
        check=False,
    )
    assert not made.is_error, made.text
    ticket = Ticket.objects.get()
    assert ticket.title == "Printer"
    key = {"pk": ticket.pk} if "pk" in properties(staff, "get_ticket") else {"id": ticket.pk}
    assert "Printer" in staff.call_tool("get_ticket", key).text
    assert "Printer" in staff.call_tool("list_tickets").text
    row = staff.call_tool("get_ticket_row", {"id": ticket.pk}).structured
    assert row["title"] == "Printer"


def test_custom_fields_of_later_reach_the_form(staff, monkeypatch):
    clock = SimpleNamespace(now=1e9)
    monkeypatch.setattr(deferred, "time", SimpleNamespace(monotonic=lambda: clock.now))
    assert "custom_room" not in properties(staff, "submit_ticket")
    CustomField.objects.create(
        name="room", label="Room", data_type="varchar", max_length=20, required=False
    )
    clock.now += deferred.MAX_AGE + 1
    assert "custom_room" in properties(staff, "submit_ticket")


def test_a_queue_shows_what_its_admin_writes(staff):
    shown = staff.call_tool("get_queue", {"slug": "support"}).structured
    assert (shown["title"], shown["allow_public_submission"]) == ("Support", True)
    assert not any("pass" in name for name in shown)
    call = {"slug": "support", "title": "Help", "preview": True}
    preview = staff.call_tool("update_queue", call).structured
    assert preview["changes"]["title"] == {"from": "Support", "to": "Help"}


@pytest.mark.outside
def test_the_site_is_migrated_from_nothing(tmp_path):
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.sites.helpdesk.settings"}
    environ["MCP_TEST_DATABASE"] = str(tmp_path / "database")
    migrate(environ)
    assert "submit_ticket" in run(environ, "mcp", "list")
