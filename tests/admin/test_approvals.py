"""Calls that wait, in the admin: who sees them, who decides, and what is written down."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.db.models.functions import Now
from django.test import Client

from mcp_django.models import Approval
from mcp_django.test import MCPClient
from tests.admin.calls import called
from tests.execution.approval_site import URLS, gated
from tests.kit.servers import person

pytestmark = pytest.mark.django_db
LIST = "/admin/mcp_django/approval/"


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = URLS


@pytest.fixture
def ada():
    return person("ada", is_staff=True)


def staff(*codenames: str, username: str = "boss", **details: Any) -> tuple[Any, Client]:
    """Somebody who may enter the admin, with these permissions, and the browser."""
    user = person(username, is_staff=True, **details)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return user, client


def make_approval(user: Any, tool: str = "close_desk", **arguments: Any) -> Approval:
    """Make a call that waits for approval, and return its row."""
    client = MCPClient(server=gated, user=user, protocol_version="2025-06-18")
    client.call_tool(tool, arguments or {"desk": 1}, check=False)
    return Approval.objects.latest("pk")


def states() -> list[str]:
    return list(Approval.objects.order_by("pk").values_list("state", flat=True))


def act(client: Client, action: str, *rows: Approval) -> Any:
    data = {"action": action, "_selected_action": [row.pk for row in rows]}
    return client.post(LIST, {**data, "post": "yes"}, follow=True)


# Who ------------------------------------------------------------------------------------------


def test_who_holds_no_permission_finds_nothing(ada):
    row = make_approval(ada)
    _, client = staff("view_call")
    for address in (LIST, f"{LIST}{row.pk}/change/", f"{LIST}{row.pk}/decide/"):
        assert client.get(address).status_code == 403
        assert client.post(address, {"decision": "grant"}).status_code == 403
    assert "approval" not in client.get("/admin/").content.decode()
    assert states() == ["pending"]


def test_who_may_look_decides_nothing(ada):
    row = make_approval(ada)
    _, client = staff("view_approval")
    assert client.get(LIST).status_code == 200
    page = client.get(f"{LIST}{row.pk}/change/")
    assert page.status_code == 200
    assert b"/decide/" not in page.content
    assert client.get(f"{LIST}{row.pk}/decide/").status_code == 403
    assert client.post(f"{LIST}{row.pk}/decide/", {"decision": "grant"}).status_code == 403
    assert "approve_selected" not in client.get(LIST).content.decode()
    act(client, "approve_selected", row)
    assert states() == ["pending"]


@pytest.mark.parametrize(("verdict", "state"), [("grant", "granted"), ("refuse", "refused")])
@pytest.mark.parametrize("is_superuser", [True, False])
def test_who_may_decide_does(verdict, state, is_superuser, ada):
    row = make_approval(ada, desk=7)
    user, client = staff("decide_approval", is_superuser=is_superuser)
    assert client.get(LIST).status_code == 200
    change = client.get(f"{LIST}{row.pk}/change/").content.decode()
    assert f"{LIST}{row.pk}/decide/" in change
    assert 'name="_save"' not in change
    page = client.get(f"{LIST}{row.pk}/decide/").content.decode()
    assert "<code>desk</code>" in page
    assert "<script>" not in page
    sent = {"decision": verdict, "reason": "Because."}
    assert client.post(f"{LIST}{row.pk}/decide/", sent).status_code == 302
    row.refresh_from_db()
    assert (row.state, row.decided_by, row.reason) == (state, "boss", "Because.")
    log_entry = LogEntry.objects.get()
    assert (log_entry.user, log_entry.object_id) == (user, str(row.pk))
    # A second time it is too late.
    again = client.post(f"{LIST}{row.pk}/decide/", {"decision": "refuse"}, follow=True)
    assert "already decided, or has expired" in again.content.decode()
    assert states() == [state]
    assert LogEntry.objects.count() == 1


def test_nobody_decides_about_his_own_call(ada):
    for user, client in (
        staff("decide_approval"),
        staff(username="root", is_superuser=True),
    ):
        row = make_approval(user, desk=user.pk)
        assert client.get(f"{LIST}{row.pk}/decide/").status_code == 403
        assert client.post(f"{LIST}{row.pk}/decide/", {"decision": "grant"}).status_code == 403
        act(client, "approve_selected", row)
    assert states() == ["pending", "pending"]


def test_what_the_caller_decides_is_no_affair_of_staff(ada):
    row = make_approval(ada, "found_group", name="crew")
    _, client = staff(is_superuser=True)
    assert client.post(f"{LIST}{row.pk}/decide/", {"decision": "grant"}).status_code == 403
    answer = act(client, "approve_selected", row)
    assert "you may not decide it" in answer.content.decode()
    assert states() == ["pending"]


@pytest.mark.parametrize("decision", ["", "maybe"])
def test_what_is_no_decision_decides_nothing(decision, ada):
    row = make_approval(ada)
    _, client = staff("decide_approval")
    assert client.post(f"{LIST}{row.pk}/decide/", {"decision": decision}).status_code == 403
    client.get(f"{LIST}{row.pk}/decide/", {"decision": "grant"})
    assert states() == ["pending"]


def test_a_decision_needs_the_token_of_the_form(ada):
    row = make_approval(ada)
    user, _ = staff("decide_approval")
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    assert client.post(f"{LIST}{row.pk}/decide/", {"decision": "grant"}).status_code == 403
    assert states() == ["pending"]


def test_nobody_writes_changes_or_deletes_one(ada):
    row = make_approval(ada)
    _, client = staff(is_superuser=True)
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.post(f"{LIST}{row.pk}/change/", {"state": "granted"}).status_code == 403
    assert client.post(f"{LIST}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    act(client, "delete_selected", row)
    assert states() == ["pending"]
    assert client.get(f"{LIST}999999/decide/").status_code == 302


# Several --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "state"), [("approve_selected", "granted"), ("reject_selected", "refused")]
)
def test_several_are_decided_at_once(action, state, ada):
    rows = [make_approval(ada, desk=n) for n in (1, 2, 3)]
    Approval.objects.filter(pk=rows[2].pk).update(expires_at=Now() - timedelta(seconds=1))
    _, client = staff("decide_approval")
    answer = act(client, action, *rows).content.decode()
    assert f"2 calls were {'approved' if state == 'granted' else 'rejected'}." in answer
    assert "1 call was skipped" in answer
    assert states() == [state, state, "pending"]
    assert LogEntry.objects.count() == 2


@pytest.mark.parametrize("action", ["approve_selected", "reject_selected"])
def test_each_call_is_shown_whole_before_several_are_decided(action, ada):
    rows = [make_approval(ada, desk=n) for n in (1, 2)]
    Approval.objects.update(arguments={"desk": 1, "note": "because " * 40})
    Approval.objects.filter(pk=rows[1].pk).update(expires_at=Now() - timedelta(seconds=1))
    _, client = staff("decide_approval")
    data = {"action": action, "_selected_action": [row.pk for row in rows]}
    page = client.post(LIST, data).content.decode()
    assert states() == ["pending", "pending"]
    assert page.count("because " * 39) == 2
    assert page.count("already decided, or has expired") == 1
    for row in rows:
        assert f'name="_selected_action" value="{row.pk}"' in page
    assert f'name="action" value="{action}"' in page
    assert not LogEntry.objects.exists()


def test_a_call_that_nobody_saw_is_not_decided_with_the_others(ada):
    first = make_approval(ada, desk=1)
    _, client = staff("decide_approval")
    data = {"action": ["approve_selected", ""], "_selected_action": [first.pk], "index": "0"}
    page = client.post(LIST, {**data, "select_across": "1"}).content.decode()
    assert 'name="action" value="approve_selected"' in page
    assert "select_across" not in page
    make_approval(ada, desk=2)
    sent = re.findall(
        r'<input type="hidden" name="(action|post|_selected_action)" value="(\w+)"', page
    )
    client.post(LIST, dict(sent))
    assert states() == ["granted", "pending"]


@pytest.mark.parametrize("arguments", [[1], "x", 5, None])
def test_arguments_of_another_shape_close_no_page(arguments, ada):
    row = make_approval(ada)
    Approval.objects.update(arguments=arguments or [])
    _, client = staff("decide_approval", "view_call")
    for address in (LIST, f"{LIST}{row.pk}/change/", f"{LIST}{row.pk}/decide/"):
        assert client.get(address).status_code == 200
    act = {"action": "approve_selected", "_selected_action": [row.pk]}
    assert client.post(LIST, act).status_code == 200


def test_the_list_shows_the_arguments(ada):
    make_approval(ada, desk=1)
    Approval.objects.update(arguments={"desk": 1, "note": "because " * 40})
    _, client = staff("view_approval")
    page = client.get(LIST).content.decode()
    (shown,) = re.findall(r'field-shown_arguments">([^<]+)<', page)
    assert shown.startswith("desk: 1")
    assert len(shown) <= 125


def test_the_page_of_a_call_says_what_the_tool_does_and_what_its_user_did(ada):
    row = make_approval(ada, desk=1)
    called("close_desk", "failed", times=2, user_key=row.user_key, user_name="ada")
    called("close_desk", times=3, user_key="user:0")
    called("close_desk", user_key=row.user_key, ago=7200)
    _, client = staff("decide_approval", "view_call")
    page = client.get(f"{LIST}{row.pk}/decide/").content.decode()
    tool = gated.catalog.by_kind["tool"]["close_desk"]
    assert tool.description in unescape(page)
    assert "may destroy data" in page if tool.destructive else "writes" in page
    assert "<code>close_desk</code>, internal error: 2" in page
    (link,) = re.findall(r'<a href="([^"]+)">\d calls?</a>', page)
    assert client.get(unescape(link)).status_code == 200
    _, other = staff("decide_approval", username="other")
    assert "The last hour of this user" not in other.get(f"{LIST}{row.pk}/decide/").content.decode()


def test_what_waits_comes_first(ada):
    first, second, third = (make_approval(ada, desk=n) for n in (1, 2, 3))
    Approval.objects.filter(pk__in=[second.pk, third.pk]).update(state="used")
    _, client = staff("view_approval")
    page = client.get(LIST).content.decode()
    places = [page.index(f"{LIST}{row.pk}/change/") for row in (first, third, second)]
    assert places == sorted(places)


def test_the_list_costs_the_same_for_one_and_for_many(ada, django_assert_max_num_queries):
    _, client = staff("view_approval")
    for n in range(1, 31):
        make_approval(ada, desk=n)
    with django_assert_max_num_queries(9):
        assert client.get(f"{LIST}?q=close&state=waiting").status_code == 200
    with django_assert_max_num_queries(9):
        client.get(f"{LIST}{Approval.objects.latest('pk').pk}/change/")


def test_what_somebody_else_wrote_is_text(ada):
    row = make_approval(ada, desk=1, reason="x")
    Approval.objects.update(
        arguments={"<b>name</b>": "<script>alert(1)</script>"}, client="<i>client</i>"
    )
    _, client = staff("decide_approval")
    for address in (LIST, f"{LIST}{row.pk}/change/", f"{LIST}{row.pk}/decide/"):
        page = client.get(address).content.decode()
        assert "<script>alert" not in page
        assert "<i>client" not in page
        assert "<b>name" not in page
