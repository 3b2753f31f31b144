"""Tasks in the admin: who may look, what there is to see, and how one is cancelled."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django import Context, MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.auth.principal import anonymous_principal, key_of, principal_for
from mcp_django.execution import call_record
from mcp_django.models import Call, Component, Task
from mcp_django.overrides.sync import sync_rows
from mcp_django.storage import task_rows
from mcp_django.storage.databases import rows, seconds_ago
from mcp_django.test import MCPClient
from tests.admin.calls import called
from tests.admin.reading import has_inline_code, text_of
from tests.admin.staff import staff, superuser

pytestmark = pytest.mark.django_db(transaction=True)
LIST = "/admin/mcp_django/task/"
POSSIBLE = (LIST, f"{LIST}{{}}/change/", f"{LIST}{{}}/cancel/")
SECRET = "swordfish"


@pytest.fixture(autouse=True)
def chores(settings):
    """A server whose tools run as tasks, but for one."""
    settings.ROOT_URLCONF = "tests.admin.urls"
    server = MCPServer("chores", permission=AllowAny)

    @server.tool(task="optional")
    def dust(where: str, password: str = "") -> str:
        return where

    @server.tool(task="required", ask="before", log_arguments=True)
    def ask(ctx: Context, where: str, password: str = "") -> str:
        return where

    @server.tool
    def look() -> str:
        return "clean"

    return server


def begun(tool: str = "dust", user: Any = None, **changes: Any) -> Task:
    """A task of a tool of the server that nobody has taken yet."""
    row = task_rows.create_task(
        server="chores",
        tool=tool,
        arguments=changes.pop("arguments", b'{"where":"top","password":"swordfish"}'),
        principal=anonymous_principal() if user is None else principal_for(user),
        user=user,
        capabilities={"elicitation": {"form": {}}},
        client_info={"name": "Robin <b>", "version": "7"},
        trace={},
        protocol_version="2026-07-28",
        ttl=timedelta(hours=1),
        poll=timedelta(seconds=2),
        caller={"note": "kept-for-the-worker"},
    )
    if changes:
        rows(Task).filter(pk=row.pk).update(**changes)
        row.refresh_from_db()
    return row


def ada() -> Any:
    return get_user_model().objects.create_user("ada")


def page_of(row: Task, page: int = 1) -> str:
    return POSSIBLE[page].format(quote(row.pk))


def status_of(row: Task) -> str:
    row.refresh_from_db()
    return row.status


def answered(row: Task, text: str) -> None:
    """Take the task and end it."""
    assert task_rows.start_run(row.pk, row.run)
    assert task_rows.finish_task(
        row.pk, row.run, result={"content": [{"type": "text", "text": text}]}
    )


# Who may --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("permissions", "statuses"),
    [
        ((), [403, 403, 403]),
        (("view_task",), [200, 200, 403]),
        (("delete_task", "read_task_result"), [403, 403, 403]),
        (("view_call", "view_session"), [403, 403, 403]),
        (("view_task", "delete_task"), [200, 200, 200]),
    ],
)
def test_who_may_look_and_who_may_cancel(permissions, statuses):
    row, client = begun(user=ada()), staff(*permissions)
    assert [client.get(page_of(row, n)).status_code for n in range(3)] == statuses
    may = statuses[2] == 200
    assert client.post(page_of(row, 2)).status_code == (302 if may else 403)
    assert status_of(row) == ("cancelled" if may else "working")


def test_nobody_adds_edits_or_deletes_one():
    row, client = begun(), superuser()
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.post(f"{LIST}{quote(row.pk)}/delete/", {"post": "yes"}).status_code == 403
    assert client.post(page_of(row), {"status": "completed"}).status_code == 403
    client.post(LIST, {"action": "delete_selected", "_selected_action": [row.pk], "post": "y"})
    assert status_of(row) == "working"
    assert "deletelink" not in client.get(page_of(row)).content.decode()


@pytest.mark.parametrize(
    ("permissions", "reads"),
    [(("view_task",), False), (("view_task", "read_task_result"), True)],
)
def test_answers_are_for_who_may_read_them(permissions, reads):
    row = begun(user=ada())
    answered(row, "<b>clean</b>")
    page = staff(*permissions).get(page_of(row)).content.decode()
    assert ("&lt;b&gt;clean&lt;/b&gt;" in page) is reads
    assert "<b>clean" not in page
    # How much it was is no secret.
    assert "51\xa0bytes" in page


def test_ids_of_anonymous_tasks_are_hidden_without_the_permission_to_read_results(chores):
    row = begun()
    answered(row, "clean")
    # The id alone gives access to the result.
    by_id = {"taskId": row.pk}
    assert MCPClient(server=chores).request("tasks/get", by_id)["status"] == "completed"
    line = call_of(row)
    pages = [LIST, f"{LIST}?_popup=1", f"/admin/mcp_django/call/{line.pk}/change/"]
    viewer = staff("view_task", "delete_task", "view_call")
    for page in pages:
        assert row.pk not in viewer.get(page).content.decode()
        assert quote(row.pk) not in viewer.get(page).content.decode()
    assert "Tasks of anonymous callers are not listed" in text_of(viewer.get(LIST))
    for page in (page_of(row, 1), page_of(row, 2), f"{LIST}{quote(row.pk)}/history/"):
        assert viewer.get(page).status_code == 302
    viewer.post(LIST, {"action": "cancel", "post": "yes", "_selected_action": [row.pk]})
    reader = staff("view_task", "read_task_result", "view_call")
    for page in pages:
        assert quote(row.pk) in reader.get(page).content.decode()
    assert "Tasks of anonymous callers" not in text_of(reader.get(LIST))
    assert "clean" in text_of(reader.get(page_of(row)))


def test_argument_values_need_the_permission_to_view_calls():
    row = begun("ask", user=ada())
    page = text_of(staff("view_task").get(page_of(row)))
    assert "Names: where, password" in page
    assert "top" not in page
    page = text_of(staff("view_task", "view_call").get(page_of(row)))
    assert "&quot;where&quot;: &quot;top&quot;" in page


# What there is to see -------------------------------------------------------------------------


def test_the_list_says_who_runs_what_and_how_far_it_is():
    ada = get_user_model().objects.create_user("ada")
    row = begun(user=ada)
    task_rows.start_run(row.pk, row.run)
    task_rows.set_status_message(row.pk, row.run, "Half of it <b>\u202eis</b> done")
    asking = begun("ask", user=ada)
    task_rows.start_run(asking.pk, asking.run)
    task_rows.wait_for_responses(
        asking.pk, asking.run, {"q": {"method": "roots/list", "params": {}}}, "s"
    )
    begun("other")
    page = text_of(superuser().get(LIST))
    caller = "ada Robin &lt;b&gt; 7"
    message = "Half of it &lt;b&gt;\\u{202e}is&lt;/b&gt; done"
    assert f"dust chores working {message} {caller}" in page
    assert f"ask chores input required {caller}" in page
    assert "other chores working anonymous Robin" in page
    assert row.pk not in page


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("q=ada", {"dust"}),
        ("q=other", {"other"}),
        ("status__exact=cancelled", {"gone"}),
        ("server__exact=chores", {"dust", "other", "gone"}),
        ("server__exact=nowhere", set()),
    ],
)
def test_tasks_are_found(query, expected):
    begun(user=get_user_model().objects.create_user("ada"))
    begun("other")
    task_rows.cancel_task(begun("gone"))
    tasks = superuser().get(f"{LIST}?{query}").context["cl"].result_list
    assert {task.tool for task in tasks} == expected


def test_a_task_whose_worker_is_gone_is_failed_for_whoever_looks():
    client = superuser()
    for look in (lambda row: LIST, page_of):
        row = begun()
        task_rows.start_run(row.pk, row.run)
        rows(Task).filter(pk=row.pk).update(lease_until=seconds_ago(1))
        assert "that ran this task has stopped" in text_of(client.get(look(row)))
        assert status_of(row) == "failed"


def test_the_page_says_whether_somebody_is_at_it():
    row, client = begun(engine="queue"), superuser()
    assert "Worker: not started yet" in text_of(client.get(page_of(row)))
    task_rows.start_run(row.pk, row.run)
    page = text_of(client.get(page_of(row)))
    assert "Worker: running" in page
    assert "Backend: queue" in page
    answered(begun(), "x")
    task_rows.cancel_task(row)
    assert "Worker: -" in text_of(client.get(page_of(row)))


def test_the_page_shows_questions_and_never_answers():
    row = begun()
    task_rows.start_run(row.pk, row.run)
    questions = {
        "name": {"method": "elicitation/create", "params": {"message": "Your <i>name</i>?"}},
        "why": {"method": "elicitation/create", "params": {"message": "And why?"}},
    }
    task_rows.wait_for_responses(row.pk, row.run, questions, "state-of-it")
    row.refresh_from_db()
    task_rows.store_responses(row, {"name": {"action": "accept", "content": {"name": SECRET}}})
    client = superuser()
    for page in (LIST, page_of(row)):
        html = client.get(page).content.decode()
        for hidden in (SECRET, "state-of-it", "kept-for-the-worker", "Your <i>", "Your &lt;"):
            assert hidden not in html
    assert "And why?" in client.get(page_of(row)).content.decode()


def test_arguments_are_shown_as_the_call_log_shows_them():
    client = superuser()
    page = text_of(client.get(page_of(begun())))
    assert "Values: not logged" in page
    assert "Names: where, password" in page
    page = text_of(client.get(page_of(begun("ask"))))
    assert "&quot;where&quot;: &quot;top&quot;" in page
    assert "[hidden]" in page
    # Nobody can say any more which of them are secret.
    page = text_of(client.get(page_of(begun("long_gone"))))
    assert "Values: not logged" in page
    assert SECRET not in page


@pytest.mark.parametrize(
    "values",
    [
        {"arguments": "no JSON"},
        {"questions": [1]},
        {"questions": {"q": 5, "r": {"method": 5, "params": []}}},
        {"client_info": []},
        {"result": {"isError": True, "content": None}},
        {"result": "x"},
        {"status_message": "a\nb" * 50_000},
    ],
    ids=ascii,
)
def test_rows_that_were_written_past_the_package_open(values):
    row = begun()
    rows(Task).filter(pk=row.pk).update(**values)
    client = superuser()
    for page in range(3):
        answer = client.get(page_of(row, page))
        assert answer.status_code == 200
        assert len(answer.content) < 60_000


def test_a_long_answer_fills_no_page():
    row, client = begun(), superuser()
    answered(row, "y" * 100_000)
    page = client.get(page_of(row)).content.decode()
    assert "y" * 10_000 in page
    assert "y" * 20_001 not in page
    with CaptureQueriesContext(connection) as queries:
        client.get(LIST)
    of_tasks = [query["sql"] for query in queries if "mcp_django_task" in query["sql"]]
    assert of_tasks
    assert not any('."result"' in sql or '."arguments"' in sql for sql in of_tasks)


def test_an_answer_that_is_an_error_for_the_model_is_said():
    row = begun()
    assert task_rows.start_run(row.pk, row.run)
    task_rows.finish_task(row.pk, row.run, result={"content": [], "isError": True})
    assert "completed (with a tool error)" in text_of(superuser().get(page_of(row)))


def test_a_task_leads_to_its_tool(chores):
    sync_rows([chores])
    tool = Component.objects.get(server="chores", key="dust")
    html = superuser().get(page_of(begun())).content.decode()
    assert f"/admin/mcp_django/component/{tool.pk}/change/" in html


def call_of(row: Task, **changes: Any) -> Call:
    """The line of the call that began a task, or one that is like it."""
    values = {
        "server": "chores",
        "at": row.created_at,
        "user_key": "anonymous" if row.user is None else key_of(row.user),
        "arguments_digest": call_record.summarize_arguments(row.arguments.encode()).digest,
    }
    (line,) = called(row.tool, **{**values, **changes})
    return line


def test_a_line_of_the_call_log_leads_to_its_task_for_who_may_see_it():
    ada = get_user_model().objects.create_user("ada")
    row, other = begun(user=ada), begun(user=get_user_model().objects.create_user("bob"))
    lines = [call_of(row), call_of(row, transport="task", at=row.created_at + timedelta(hours=0.5))]
    client, link = superuser(), f"{LIST}{quote(row.pk)}/change/"
    for line in lines:
        html = client.get(f"/admin/mcp_django/call/{line.pk}/change/").content.decode()
        assert link in html
        assert quote(other.pk) not in html
    for changes in (
        {"arguments_digest": "0" * 64},
        {"user_key": "anonymous"},
        {"kind": "prompt"},
        {"at": row.created_at + timedelta(hours=2)},
    ):
        line = call_of(row, **changes)
        assert link not in client.get(f"/admin/mcp_django/call/{line.pk}/change/").content.decode()
    html = staff("view_call").get(f"/admin/mcp_django/call/{lines[0].pk}/change/").content.decode()
    assert row.pk not in html
    assert quote(row.pk) not in html


def test_the_page_of_a_tool_says_how_it_runs(chores):
    sync_rows([chores])
    client = superuser()
    texts = {}
    for key in ("dust", "ask", "look"):
        row = Component.objects.get(server="chores", key=key)
        texts[key] = text_of(client.get(f"/admin/mcp_django/component/{row.pk}/change/"))
    assert "as a task if the client supports it, asks during the task" in texts["dust"]
    assert "only as a task, asks before the task" in texts["ask"]
    assert "as a task" not in texts["look"]


def test_threads_of_the_process_are_said_to_survive_nothing(settings):
    client = superuser()
    assert "a restart ends them" in text_of(client.get(LIST))
    settings.MCP_DJANGO = {"TASK_BACKEND": "default"}
    assert "a restart ends them" not in text_of(client.get(LIST))


# Cancelling -----------------------------------------------------------------------------------


def test_cancelling_ends_it_with_a_line_in_its_history():
    row, client = begun(), superuser()
    assert "ctx.cancelled" in text_of(client.get(page_of(row, 2)))
    assert status_of(row) == "working"
    assert "Cancelled." in text_of(client.post(page_of(row, 2), follow=True))
    assert status_of(row) == "cancelled"
    log_entry = LogEntry.objects.get()
    assert (log_entry.object_id, log_entry.get_change_message()) == (row.pk, "Cancelled.")
    assert "This has already ended." in text_of(client.get(page_of(row, 2)))
    client.post(page_of(row, 2))
    assert LogEntry.objects.count() == 1


def test_several_are_cancelled_at_once_and_those_that_are_over_are_left_alone():
    first, second, over = begun(), begun(), begun()
    answered(over, "done")
    data = {"action": "cancel", "post": "yes", "_selected_action": [first.pk, second.pk, over.pk]}
    assert "2 tasks were cancelled." in text_of(superuser().post(LIST, data, follow=True))
    assert [status_of(row) for row in (first, second, over)] == [
        "cancelled",
        "cancelled",
        "completed",
    ]
    assert LogEntry.objects.count() == 2


def test_the_action_is_offered_to_nobody_who_may_only_look():
    row, client = begun(user=ada()), staff("view_task")
    assert 'value="cancel"' not in client.get(LIST).content.decode()
    client.post(LIST, {"action": "cancel", "post": "yes", "_selected_action": [row.pk]})
    assert status_of(row) == "working"
    assert "/cancel/" not in client.get(page_of(row)).content.decode()


def test_an_id_that_reads_like_something_escaped_is_found():
    row = begun()
    rows(Task).filter(pk=row.pk).update(task_id="a_5Fb_2Fc")
    row, client = Task.objects.get(), superuser()
    page = client.get(LIST).content.decode()
    assert f"{LIST}{quote(row.pk)}/change/" in page
    assert f"{LIST}{quote(row.pk)}/cancel/" in client.get(page_of(row)).content.decode()
    answer = client.post(page_of(row, 2))
    assert answer["Location"] == page_of(row)
    assert status_of(row) == "cancelled"


def test_a_task_that_is_gone_is_no_error():
    client = superuser()
    assert client.get(f"{LIST}nothing/cancel/").status_code == 302
    assert client.post(f"{LIST}nothing/cancel/").status_code == 302
    assert client.get(f"{LIST}nothing/change/").status_code == 302


def test_the_list_costs_the_same_for_one_and_for_many(django_assert_max_num_queries):
    client = superuser()
    for number in range(12):
        begun(user=get_user_model().objects.create_user(f"user-{number}"))
    with django_assert_max_num_queries(6):
        assert client.get(LIST).status_code == 200


def test_a_user_with_a_task_can_be_deleted():
    ada = get_user_model().objects.create_user("ada")
    begun(user=ada)
    superuser().post(f"/admin/auth/user/{ada.pk}/delete/", {"post": "yes"})
    assert not get_user_model().objects.filter(username="ada").exists()


@pytest.mark.parametrize("page", range(3))
def test_no_page_has_anything_inline_and_each_asks_for_a_login(client, page):
    row = begun()
    assert not has_inline_code(superuser().get(page_of(row, page)))
    response = client.get(page_of(row, page))
    assert (response.status_code, "/login/" in response["Location"]) == (302, True)
