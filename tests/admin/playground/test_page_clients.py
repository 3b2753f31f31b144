"""What holds for a client holds here: the call log, approvals, limits, and dry runs of models."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command
from django.db import connections
from django.test import AsyncClient

from mcp_django import Context, MCPServer
from mcp_django.models import Call, Component
from mcp_django.overrides.state import publish_change
from tests.admin.playground.desk import Trying, root, visitor
from tests.admin.reading import text_of
from tests.execution.approval_site import URLS, decide, gated, waiting
from tests.kit.servers import person

pytestmark = pytest.mark.django_db


@pytest.fixture
def desk_of_groups(db, settings):
    """The pages of a server with approvals and generated write tools."""
    settings.ROOT_URLCONF = URLS
    settings.MCP_DJANGO = {"BASE_URL": "https://testserver"}
    return Trying(gated)


def text(response: Any) -> str:
    [part, *_] = response.context["answer"].parts
    return str(part.text)


def answers(action: str = "accept") -> dict[str, str]:
    return {"do": "answer", "question-0-action": action}


@pytest.mark.usefixtures("call_log")
def test_a_call_is_in_the_call_log_with_its_origin(trying):
    person("ada")
    client = visitor("try_components", "try_as_another")
    trying.run(client, "later", {"arg.a": "1"})
    trying.run(client, "later", {"arg.a": "1"}, user="ada", revision="2025-11-25")
    calls = Call.objects.order_by("pk")
    origins = [(call.origin, call.user_name, call.acting_user, call.outcome) for call in calls]
    assert origins == [("admin", "staff", "", "ok"), ("admin", "ada", "staff", "ok")]
    assert [call.revision for call in calls] == ["2026-07-28", "2025-11-25"]


def test_a_limit_holds(trying):
    @trying.server.tool(read_only=True, rate="1/h")
    def seldom() -> str:
        """Once."""
        return "once"

    client = visitor("try_components")
    assert text(trying.run(client, "seldom")) == "once"
    refused = trying.run(client, "seldom").context["answer"]
    assert refused.error["code"] < 0
    assert "retryAfter" in refused.error_data


def test_a_call_waits_for_its_approval_and_goes_on(desk_of_groups):
    client = visitor("try_components")
    response = desk_of_groups.run(client, "found_group", {"arg.name": "Ops"})
    row = waiting()
    assert response.context["questions"][0].url.endswith(f"/approvals/{row.code}")
    assert not Group.objects.exists()
    decide(response.wsgi_request.user, row)
    response = desk_of_groups.go_on(client, response, **answers())
    assert text(response) == "Founded Ops."


def test_a_call_that_waits_for_staff_leads_to_its_approval(desk_of_groups):
    client = visitor("try_components", "view_approval")
    response = desk_of_groups.run(client, "close_desk", {"arg.desk": "1"})
    row = waiting()
    link = f"/admin/mcp_django/approval/{row.pk}/change/"
    assert f'<a href="{link}">' in response.content.decode()
    assert "The call waits for approval." in text_of(response)
    assert "returned an error" not in text_of(response)
    assert client.get(link).status_code == 200
    other = visitor("try_components", name="other")
    text = text_of(desk_of_groups.run(other, "close_desk", {"arg.desk": "2"}))
    assert "waits for approval by another user" in text
    assert "The call waits for approval." not in text


def test_a_write_to_a_model_runs_dry_first(desk_of_groups):
    client = visitor("try_components", name="writer")
    user = client.get(desk_of_groups.url).wsgi_request.user
    user.user_permissions.add(*Permission.objects.filter(codename__in=["add_group", "view_group"]))
    page = text_of(desk_of_groups.get(client, kind="tool", key="create_group"))
    assert "Dry run" in page
    data = {"do": "preview", "arg.name": "Night shift"}
    response = desk_of_groups.post(client, "create_group", data)
    assert "Result of the dry run" in text_of(response)
    assert not Group.objects.exists()
    response = desk_of_groups.go_on(client, response, do="confirmed")
    assert "Night shift" in text(response)
    assert Group.objects.get().name == "Night shift"


def test_what_the_owner_switched_off_is_gone(trying, django_capture_on_commit_callbacks):
    client = visitor("try_components")
    assert trying.get(client, kind="tool", key="echo").status_code == 200
    name = trying.server.name
    Component.objects.update_or_create(
        server=name, kind="tool", key="echo", defaults={"name": "echo", "is_enabled": False}
    )
    with django_capture_on_commit_callbacks(execute=True):
        publish_change([(name, "tools")])
    assert trying.get(client, kind="tool", key="echo").status_code == 404
    assert trying.run(client, "echo", {"arg.text": "x"}).status_code == 404


def test_arguments_of_a_tool_do_not_reach_the_request_of_the_admin(trying):
    @trying.server.tool(read_only=True)
    def request_of(ctx: Context) -> str:
        """Is there a request?"""
        return str(ctx.request)

    assert text(trying.run(root(), "request_of")) == "None"


def test_attachments_are_swept_up_when_they_are_over(trying):
    from mcp_django.models import Attachment

    trying.run(visitor("try_components"), "every_block")
    assert Attachment.objects.count() == 3
    call_command("mcp", "prune", verbosity=0)
    assert Attachment.objects.count() == 3
    Attachment.objects.update(expires_at="2000-01-01T00:00:00Z")
    call_command("mcp", "prune", verbosity=0)
    assert not Attachment.objects.exists()


def test_it_works_where_requests_are_transactions(trying, monkeypatch):
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    client = visitor("try_components")
    assert trying.run(client, "add_group", {"arg.name": "Ops"}).status_code == 200
    again = trying.run(client, "add_group", {"arg.name": "Ops"})
    assert again.context["answer"].is_error
    assert [group.name for group in Group.objects.all()] == ["Ops"]


@pytest.mark.django_db(transaction=True)
async def test_an_async_tool_runs_on_an_asgi_site_too(settings):
    trying, user = await sync_to_async(_asynchronous)()
    client = AsyncClient()
    await client.aforce_login(user)
    query = {"kind": "tool", "key": "count_users"}
    response = await client.post(trying.url, {"do": "run"}, query_params=query)
    assert text(response) == "1"


def _asynchronous() -> tuple[Trying, Any]:
    server = MCPServer("asynchronous")

    @server.tool(read_only=True)
    async def count_users() -> str:
        """Count the users."""
        return str(await get_user_model().objects.acount())

    return Trying(server), person("ada", is_staff=True, is_superuser=True)
