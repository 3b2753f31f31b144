"""Who may try: with the permission, without one, and as somebody else."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission

from mcp_django import Context, MCPServer
from mcp_django.auth.permissions import IsStaff
from tests.admin.playground.desk import Trying, root, visitor
from tests.admin.reading import text_of
from tests.kit.servers import person

pytestmark = pytest.mark.django_db


def with_whoami(trying: Trying) -> Trying:
    @trying.server.tool(read_only=True)
    def whoami(ctx: Context) -> str:
        """Who is it?"""
        return f"{ctx.user.get_username()} {ctx.principal.scopes}"

    return trying


def other_tester(**details: Any) -> Any:
    return visitor("try_components", "try_as_another", **details)


def answer_text(response: Any) -> str:
    [part] = response.context["answer"].parts
    return str(part.text)


@pytest.mark.parametrize("method", ["get", "post"])
def test_staff_without_the_permission_sees_nothing(trying, method):
    for client in (visitor(), visitor("try_as_another", "view_call", name="other")):
        call = getattr(client, method)
        for rest in ("", "?kind=tool&key=echo", "attachment/x"):
            assert call(f"{trying.url}{rest}").status_code == 403


def test_who_is_no_staff_is_sent_to_the_sign_in(trying, client):
    user = person("ada")
    user.user_permissions.set(Permission.objects.filter(codename="try_components"))
    client.force_login(user)
    assert trying.get(client).status_code == 302


def test_one_runs_as_oneself(trying):
    with_whoami(trying)
    assert answer_text(trying.run(visitor("try_components"), "whoami")) == "staff None"
    assert answer_text(trying.run(root(), "whoami")) == "root None"


def test_the_permission_opens_nothing_that_its_holder_may_not_use(trying):
    client = visitor("try_components")
    hidden = trying.get(client, kind="tool", key="hidden")
    unknown = trying.get(client, kind="tool", key="unknown")
    assert hidden.status_code == unknown.status_code == 404
    assert text_of(hidden) == text_of(unknown)
    assert trying.run(client, "hidden").status_code == 404
    assert trying.get(client, kind="nonsense", key="echo").status_code == 404


def test_another_user_takes_a_permission_of_its_own(trying):
    person("ada")
    client = visitor("try_components")
    assert "Run as" not in text_of(trying.get(client))
    assert trying.get(client, user="ada").status_code == 403
    assert trying.run(client, "later", {"arg.a": "1"}, user="ada").status_code == 403
    assert trying.get(client, user="staff").status_code == 200


def test_what_ran_as_another_user_is_in_the_history(trying):
    with_whoami(trying)
    person("ada")
    client = other_tester()
    assert answer_text(trying.run(client, "whoami", user="ada")) == "ada None"
    log_entry = LogEntry.objects.get()
    assert log_entry.change_message == "Tried the tool “whoami” as the user “ada”."
    assert log_entry.user.get_username() == "staff"


def test_what_another_user_may_not_see_is_not_there(trying):
    person("ada")
    client = other_tester(is_superuser=False)
    page = text_of(trying.get(client, user="ada"))
    assert "echo" in page
    assert "vault" not in page
    assert trying.get(client, kind="resource", key="desk://vault", user="ada").status_code == 404
    assert trying.get(client, kind="resource", key="desk://vault").status_code == 200


def test_nobody_and_an_administrator_look_alike(trying):
    person("boss", is_superuser=True)
    person("gone", is_active=False)
    client = other_tester()
    pages = {
        text_of(trying.get(client, user=name)).replace(name, "NAME")
        for name in ("boss", "gone", "nobody")
    }
    assert len(pages) == 1
    assert "No user “NAME” exists whom you may run calls as." in pages.pop()
    response = trying.run(client, "later", {"arg.a": "1"}, user="boss")
    assert "answer" not in response.context


def test_an_administrator_may_be_any_administrator(trying):
    with_whoami(trying)
    person("boss", is_superuser=True)
    assert answer_text(trying.run(root(), "whoami", user="boss")) == "boss None"


def test_a_confirmed_run_goes_on_as_the_user_that_was_chosen(trying):
    person("ada")
    client = other_tester()
    data = {"do": "run", "arg.name": "Ops"}
    response = trying.post(client, "add_group", data, user="ada")
    assert "ada (by staff)" in text_of(response)
    get_user_model().objects.filter(username="ada").update(is_active=False)
    assert trying.go_on(client, response, do="confirmed").status_code == 400
    get_user_model().objects.filter(username="ada").update(is_active=True)
    assert answer_text(trying.go_on(client, response, do="confirmed")) == "Made Ops."


def test_a_server_that_lets_the_user_in_not_is_closed_here_too(db):
    server = MCPServer("closed", permission=IsStaff)
    server.tool(read_only=True)(_nothing)
    trying = Trying(server)
    person("ada")
    client = other_tester()
    assert "nothing_much" not in text_of(trying.get(client, user="ada"))
    assert "You may not use this server." in text_of(trying.get(client, user="ada"))
    assert trying.run(client, "_nothing", user="ada").status_code == 404


def _nothing() -> str:
    """Do nothing much."""
    return "nothing_much"
