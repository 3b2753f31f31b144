"""What runs only as a task is begun, looked at, answered and read in the end."""

from __future__ import annotations

import pytest
from django.urls import resolve

from mcp_django import Context, MCPServer
from mcp_django.auth.permissions import IsStaff
from mcp_django.models import Task
from mcp_django.storage import task_rows
from mcp_django.tasks import worker as task_worker
from tests.admin.playground.desk import Trying, visitor
from tests.admin.reading import has_inline_code, text_of

pytestmark = pytest.mark.django_db
REVISIONS = ["2026-07-28", "2025-11-25"]


@pytest.fixture(autouse=True)
def _here():
    """A task has run when its call returns, in the transaction of the test."""
    with task_worker.run_tasks_inline():
        yield


@pytest.fixture
def trying(db):
    """The pages of a server with a tool of each kind."""
    server = MCPServer("long", permission=IsStaff)

    @server.tool(task="required")
    def copy(text: str) -> str:
        return f"copied {text}"

    @server.tool(task="required")
    def paint(ctx: Context) -> str:
        color = ctx.elicit("Which color?", str)
        return f"painted it {color}, {ctx.elicit('Which paper?', str)}"

    @server.tool(task="optional", read_only=True)
    def look(ctx: Context) -> str:
        return f"task: {ctx.task.is_task}"

    @server.tool(task="required", polling_fallback=True, read_only=True)
    def fetch() -> str:
        return "fetched"

    @server.tool(task="required", read_only=True)
    def fall() -> str:
        raise RuntimeError("down")

    return Trying(server)


@pytest.fixture
def client():
    return visitor("try_components")


def answered(value: str) -> dict[str, str]:
    return {"do": "answer", "question-0-action": "accept", "question-0.value": value}


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_task_is_begun_and_its_answer_is_read(trying, client, revision):
    response = trying.run(client, "copy", {"arg.text": "it"}, revision=revision)
    page = text_of(response)
    assert "Status working" in page
    assert "continues even if you leave" in page
    assert not has_inline_code(response)
    # Who may not see tasks is not sent to one.
    assert "/admin/mcp_django/task/" not in response.content.decode()
    response = trying.go_on(client, response, do="look")
    assert "Status completed" in text_of(response)
    [part] = response.context["answer"].parts
    assert part.text == "copied it"
    assert not has_inline_code(response)


def test_a_task_asks_as_often_as_it_likes(trying, client):
    response = trying.run(client, "paint")
    response = trying.go_on(client, response, do="look")
    assert "Which color?" in text_of(response)
    assert "runs as a task, which waits" in text_of(response)
    wrong = trying.go_on(client, response, do="answer")
    assert "Response This field is required." in text_of(wrong)
    response = trying.go_on(client, response, **answered("red"))
    assert "Which paper?" in text_of(response)
    response = trying.go_on(client, response, **answered("gray"))
    assert response.context["answer"].parts[0].text == "painted it red, gray"
    assert Task.objects.get().status == "completed"


def test_the_handshake_revision_is_told_where_the_questions_are(trying, client):
    response = trying.run(client, "paint", revision="2025-11-25")
    response = trying.go_on(client, response, do="look")
    assert "use revision 2026-07-28" in text_of(response)


def test_what_may_run_as_a_task_is_run_at_once(trying, client):
    assert "runs without one here" in text_of(trying.get(client, kind="tool", key="look"))
    response = trying.run(client, "look")
    assert response.context["answer"].parts[0].text == "task: False"
    assert not Task.objects.exists()


def test_a_tool_with_handles_gives_one(trying, client):
    response = trying.run(client, "fetch")
    assert "get_result" in response.context["answer"].parts[0].text


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_task_that_fell_says_so(trying, client, revision):
    response = trying.run(client, "fall", revision=revision)
    response = trying.go_on(client, response, do="look")
    assert 'role="alert"' in response.content.decode()
    assert "down" not in text_of(response)


def test_a_revision_without_tasks_is_refused_in_words(trying, client):
    response = trying.run(client, "copy", {"arg.text": "it"}, revision="2025-06-18")
    assert "runs only as a task" in text_of(response)


def test_a_task_that_was_cancelled_or_is_gone_is_no_error(trying):
    client = visitor("try_components", "view_task")
    for is_gone in (False, True):
        response = trying.run(client, "paint")
        row = Task.objects.latest("created_at")
        assert "/admin/mcp_django/task/" in response.content.decode()
        if is_gone:
            row.delete()
        else:
            task_rows.cancel_task(row)
        response = trying.go_on(client, response, do="look")
        assert ("No task" if is_gone else "Status cancelled") in text_of(response)


def test_a_link_to_a_task_of_somebody_else_shows_nothing(trying, client):
    response = trying.run(client, "copy", {"arg.text": "it"})
    stranger = visitor("try_components", name="stranger")
    again = trying.go_on(stranger, response, do="look")
    assert again.status_code == 400
    assert "copied" not in text_of(again)


def test_others_see_what_a_page_began_whatever_the_site_does_with_requests(trying):
    # With ATOMIC_REQUESTS the worker would look for a row that is not committed.
    assert "default" in resolve(trying.url).func._non_atomic_requests
