"""What writes is asked about once more, dry first where it can be; what was confirmed runs."""

from __future__ import annotations

import json
import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group
from django.core import signing
from django.test import Client

from mcp_django.admin.playground.questions import SALT
from tests.admin.playground.desk import Trying, desk, root, visitor
from tests.admin.reading import text_of

pytestmark = pytest.mark.django_db


def staff() -> Client:
    return visitor("try_components")


def names() -> list[str]:
    return sorted(Group.objects.values_list("name", flat=True))


def test_a_writing_tool_is_asked_about_with_its_arguments(trying):
    client = staff()
    response = trying.post(client, "add_group", {"do": "run", "arg.name": "Ops", "arg.pin": "1234"})
    page = text_of(response)
    assert "Are you sure?" in page
    assert "&quot;name&quot;: &quot;Ops&quot;" in page
    assert names() == []
    response = trying.go_on(client, response, do="confirmed")
    assert response.context["answer"].parts[0].text == "Made Ops."
    assert names() == ["Ops"]


def test_what_is_sensitive_is_shown_nowhere(trying):
    client = staff()
    response = trying.post(
        client, "add_group", {"do": "run", "arg.name": "Ops", "arg.pin": "834183418341"}
    )
    assert "834183418341" not in response.content.decode()
    assert "•••" in response.content.decode()
    response = trying.go_on(client, response, do="confirmed")
    assert "834183418341" not in response.context["raw"][0][0]


def test_a_secret_stays_out_of_sight_at_any_depth(trying):
    client = staff()
    login = {"pin": "hunter-1", "codes": ["hunter-2"]}
    typed = {"login": login, "others": [login], "key": "hunter-3"}
    whole = {"arg-json.arguments": json.dumps(typed)}
    confirming = trying.post(client, "keep", {"do": "run", **whole}, **{"as": "json"})
    done = trying.go_on(client, confirming, do="confirmed")
    assert done.context["answer"].parts[0].text == "Kept."
    for response in (confirming, done, trying.go_on(client, confirming, do="edit")):
        assert "hunter" not in response.content.decode()


def test_what_looks_like_a_secret_is_shown_nowhere(trying):
    client = staff()
    token = "mcp_" + "Z" * 43
    confirming = trying.post(client, "add_group", {"do": "run", "arg.name": f"Ops {token}"})
    assert "Ops •••" in confirming.content.decode()
    done = trying.go_on(client, confirming, do="confirmed")
    assert token not in done.context["raw"][0][0]
    assert names() == [f"Ops {token}"]


def test_what_is_sensitive_is_typed_out_of_sight(trying):
    client = staff()
    page = trying.get(client, kind="tool", key="add_group").content.decode()
    assert re.search(r'<input type="password" name="arg.pin"', page)
    sent = {"do": "run", "arg.name": "Ops", "arg.pin": "834183418341"}
    done = trying.go_on(client, trying.post(client, "add_group", sent), do="confirmed")
    assert names() == ["Ops"]
    assert "834183418341" not in done.content.decode()


def test_arguments_can_be_changed_before_anything_runs(trying):
    client = staff()
    response = trying.post(client, "add_group", {"do": "run", "arg.name": "Ops"})
    response = trying.go_on(client, response, do="edit")
    assert "Ops" in response.content.decode()
    assert names() == []


def test_a_dry_run_comes_first_where_there_is_one(trying):
    client = staff()
    page = trying.get(client, kind="tool", key="rename").content.decode()
    assert 'value="preview"' in page
    assert 'value="run"' not in page
    assert "arg.preview" not in page
    response = trying.post(client, "rename", {"do": "preview", "arg.name": "Ops"})
    assert response.context["answer"].parts[0].text == "Would make Ops."
    assert (names(), LogEntry.objects.count()) == ([], 0)
    response = trying.go_on(client, response, do="confirmed")
    assert response.context["answer"].parts[0].text == "Made Ops."
    assert names() == ["Ops"]


def test_an_argument_that_is_called_like_a_dry_run_is_none(trying):
    client = staff()
    page = trying.get(client, kind="tool", key="send").content.decode()
    assert 'value="preview"' not in page
    assert "arg.preview" in page
    sent = {"arg.preview": "=true"}
    trying.post(client, "send", {"do": "preview", **sent})
    assert names() == []
    trying.run(client, "send", sent)
    assert names() == ["sent, True"]
    assert LogEntry.objects.get().change_message == "Tried the tool “send”."


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_the_answer_to_a_question_makes_a_call_write_once(trying, revision):
    client = staff()
    asking = trying.run(client, "asks_first", revision=revision)
    form = {"do": "answer", "question-0-action": "accept", "question-0.value": "Ops"}
    statuses = [trying.go_on(client, asking, **form).status_code for _ in range(3)]
    assert statuses == [200, 400, 400]
    assert names() == ["Ops 0"]


def test_nothing_skips_the_question(trying):
    client = staff()
    for do in ("run", "preview", "confirmed", "edit", ""):
        trying.post(client, "add_group", {"do": do, "arg.name": "Ops"})
    assert names() == []


def test_each_run_that_may_write_leaves_an_entry_without_values(trying):
    client = staff()
    trying.run(client, "add_group", {"arg.name": "Ops"})
    log_entry = LogEntry.objects.get()
    assert log_entry.change_message == "Tried the tool “add_group”."
    assert (log_entry.object_id, log_entry.user.get_username()) == (str(trying.row.pk), "staff")
    trying.run(client, "later", {"arg.a": "1"})
    assert LogEntry.objects.count() == 1


def test_a_state_that_was_changed_runs_nothing(trying):
    client = staff()
    response = trying.post(client, "add_group", {"do": "run", "arg.name": "Ops"})
    state = response.context["state"]
    forged = signing.dumps({"owner": "x"}, salt=SALT, key="another")
    for bad_state in (state[:-1] + ("A" if state[-1] != "A" else "B"), f"x{state}", "", forged):
        answer = client.post(trying.url, {"do": "confirmed", "state": bad_state})
        assert answer.status_code == 400
        assert "data of this page is not valid" in text_of(answer)
    assert names() == []


def test_a_state_is_good_for_its_user_and_its_session_alone(trying):
    client = staff()
    response = trying.post(client, "add_group", {"do": "run", "arg.name": "Ops"})
    other = trying.go_on(root(), response, do="confirmed")
    assert (other.status_code, names()) == (400, [])
    client.logout()
    client.force_login(response.wsgi_request.user)
    again = trying.go_on(client, response, do="confirmed")
    assert (again.status_code, names()) == (400, [])
    assert "belongs to another session" in text_of(again)


def test_what_was_confirmed_runs_once(trying):
    client = staff()
    response = trying.post(client, "add_group", {"do": "run", "arg.name": "Ops"})
    trying.go_on(client, response, do="confirmed")
    again = trying.go_on(client, response, do="confirmed")
    assert again.status_code == 400
    assert "was already run" in text_of(again)
    assert LogEntry.objects.count() == 1


def test_a_state_is_good_for_its_server_alone(trying):
    client = staff()
    response = trying.post(client, "add_group", {"do": "run", "arg.name": "Ops"})
    elsewhere = Trying(desk())
    assert elsewhere.go_on(client, response, do="confirmed").status_code == 400
    assert names() == []


def test_a_state_is_good_for_a_while(trying, settings):
    client = staff()
    response = trying.post(client, "add_group", {"do": "run", "arg.name": "Ops"})
    settings.MCP_DJANGO = {"CLIENT_REQUEST_TIMEOUT": 1e-9}
    late = trying.go_on(client, response, do="confirmed")
    assert (late.status_code, names()) == (400, [])
    assert "page has expired" in text_of(late)


def test_a_tool_that_vanished_meanwhile_does_not_run(trying):
    client = staff()
    response = trying.post(client, "add_group", {"do": "run", "arg.name": "Ops"})
    trying.server.unregister(trying.server.tools["add_group"])
    gone = trying.go_on(client, response, do="confirmed")
    assert gone.status_code == 404
    assert "No component with this name exists" in text_of(gone)
    assert trying.run(client, "add_group", {"arg.name": "Ops"}).status_code == 404
    assert names() == []


def test_a_permission_that_was_lost_meanwhile_counts(trying):
    client = staff()
    response = trying.post(client, "add_group", {"do": "run", "arg.name": "Ops"})
    response.wsgi_request.user.user_permissions.clear()
    assert trying.go_on(client, response, do="confirmed").status_code == 403
    assert names() == []


def test_a_confirmation_needs_the_token_against_forgery(trying):
    first = staff()
    client = Client(enforce_csrf_checks=True)
    client.cookies = first.cookies
    assert trying.post(client, "add_group", {"do": "run", "arg.name": "Ops"}).status_code == 403
    page = trying.get(client, kind="tool", key="add_group").content.decode()
    token = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)[0]
    data = {"do": "run", "arg.name": "Ops", "csrfmiddlewaretoken": token}
    assert trying.post(client, "add_group", data).status_code == 200


def test_what_is_too_large_for_a_page_says_so(trying, monkeypatch):
    monkeypatch.setattr("mcp_django.admin.playground.questions.MAX_STATE_BYTES", 100)
    response = trying.post(staff(), "add_group", {"do": "run", "arg.name": "Ops"})
    assert "too large to be kept in the page" in text_of(response)
    assert "state" not in response.context
