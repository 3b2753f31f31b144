"""Generated write tools on two databases, with no admin and no time zones."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from django.db import connections

from mcp_django import MCPServer, ModelTools
from mcp_django.auth.permissions import AllowAny
from mcp_django.test import MCPClient
from tests.sites.awkward.models import Member, Reading

pytestmark = pytest.mark.django_db(databases=["default", "readings", "people"], transaction=True)

NUMBERS = count()


def client(model: type[Any], **options: Any) -> MCPClient:
    """Return a client of a server on which everybody may write."""
    # The system checks of another test may still find the server, and require unique names.
    server = MCPServer(f"writing-{next(NUMBERS)}", permission=AllowAny)
    open_to_all = {
        "tools": ["create", "update", "delete"],
        "permission": AllowAny,
        "has_permission": lambda self, ctx, action, obj=None: True,
    }
    server.register(model, type("OpenMCP", (ModelTools,), {**open_to_all, **options}))
    return MCPClient(server=server)


def test_a_model_is_written_to_its_own_database():
    readings = client(Reading, fields=["id", "value"])
    made = readings.call_tool("create_reading", {"value": 1}).structured
    assert Reading.objects.using("readings").get().value == 1
    changed = readings.call_tool("update_reading", {"id": made["id"], "value": 2})
    assert changed.structured == {"id": made["id"], "value": 2}
    done = readings.call_tool("delete_reading", {"id": made["id"]})
    assert done.structured == {"deleted": {"awkward.Reading": 1}}
    assert not Reading.objects.exists()


def also_a_member(self: Any, ctx: Any, form: Any) -> Reading:
    Member.objects.create(email="also@example.test")
    saved: Reading = form.save()
    return saved


def test_what_fails_leaves_nothing_in_its_database():
    def perform_create(self: Any, ctx: Any, form: Any) -> Reading:
        form.save()
        raise RuntimeError("midway")

    readings = client(Reading, fields=["id", "value"], perform_create=perform_create)
    with pytest.raises(RuntimeError, match="midway"):
        readings.call_tool("create_reading", {"value": 1})
    assert not Reading.objects.exists()


def test_a_preview_takes_back_both_databases():
    readings = client(Reading, fields=["id", "value"], perform_create=also_a_member)
    result = readings.call_tool("create_reading", {"value": 1, "preview": True})
    assert result.structured == {"preview": True, "changes": {"value": {"from": None, "to": 1}}}
    assert not Reading.objects.exists()
    assert not Member.objects.exists()
    readings.call_tool("create_reading", {"value": 1})
    assert Member.objects.exists()


@pytest.fixture
def _apart():
    """Open no transaction on the second database along with that on the first."""
    settings = connections["readings"].settings_dict
    settings["ATOMIC_REQUESTS"] = False
    yield
    settings["ATOMIC_REQUESTS"] = True


@pytest.mark.usefixtures("_apart")
def test_what_cannot_be_taken_back_is_refused():
    def perform_create(self: Any, ctx: Any, form: Any) -> Member:
        saved: Member = form.save()
        assert Reading.objects.count() == 0
        Reading.objects.create(value=1)
        return saved

    members = client(
        Member, fields=["email"], write_fields=["email", "password"], perform_create=perform_create
    )
    sent = {"email": "a@example.test", "password": "!"}
    refused = members.call_tool("create_member", {**sent, "preview": True}, check=False)
    assert refused.text.startswith(
        "A preview is not possible: saving also writes to the database 'readings'"
    )
    assert not Member.objects.exists()
    assert not Reading.objects.exists()
    assert members.call_tool("create_member", sent).structured == {"email": "a@example.test"}
    assert Reading.objects.exists()
