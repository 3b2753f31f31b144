"""The context of a function that runs as a task, and the outcome of the task."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection

from mcp_django import Context, Elicit, MCPServer, Text, ToolError, ToolResult
from mcp_django.exceptions import InvalidParams
from mcp_django.execution import approval_guard
from mcp_django.models import AccessToken, Approval, Call, ExternalIdentity, Task
from mcp_django.storage import approval_rows, task_rows
from mcp_django.tasks import runs as task_runs
from tests.kit.servers import open_to_all, person, token_for
from tests.spec import spec
from tests.tasks.shop import FORM, WITH_TASKS, call, make_worker, send, text_of

__all__ = ["make_worker"]

pytestmark = pytest.mark.django_db

YES = {"action": "accept", "content": {"value": "Ada"}}


def answer(server: MCPServer, row: Task, **responses: Any) -> None:
    """Answer the questions of a task: with these responses, or all of them with `YES`."""
    given = responses or dict.fromkeys(row.questions, YES)
    send(server, "tasks/update", {"taskId": row.pk, "inputResponses": given})


@spec("TKE-3", "TKE-5")
def test_the_function_runs_elsewhere_with_what_the_call_said(worker):
    server = open_to_all()

    @server.tool(task="optional")
    def whoami(ctx: Context, n: int) -> dict[str, Any]:
        """Say what is known of the call."""
        ctx.report_progress(1, 2, "half")
        client = {"protocol": ctx.protocol_version, "request": ctx.request, "n": n}
        return client | {"task": ctx.task.is_task, "id": ctx.task.id}

    begun = call(server, "whoami", arguments={"n": 3})
    assert begun["status"] == "working"
    row = worker.run()
    assert row.status == "completed"
    assert row.result["structuredContent"] == {
        "protocol": "2026-07-28",
        "request": None,
        "n": 3,
        "task": True,
        "id": begun["taskId"],
    }


@spec("TKE-2")
def test_without_tasks_the_call_is_a_call(worker):
    server = open_to_all()

    @server.tool(task="optional", ask="before")
    def greet(ctx: Context) -> str:
        """Greet."""
        ctx.task.begin()
        return f"{ctx.task.is_task} {ctx.task.id!r}"

    assert text_of(call(server, "greet", capabilities={})) == "False ''"
    assert not Task.objects.exists()


def test_what_it_asks_waits_in_the_row_and_is_not_asked_again(worker):
    server, runs = open_to_all(), []

    @server.tool(task="optional")
    def order(ctx: Context) -> str:
        """Order."""
        runs.append(ctx.interaction_id)
        name = ctx.elicit("Name?", str)
        Group.objects.create(name=f"{name} {len(runs)}")
        size = ctx.elicit("Size?", int)
        return f"{name} {size}"

    call(server, "order")
    row = worker.run()
    assert (row.status, len(row.questions)) == ("input_required", 1)
    answer(server, row)
    row = worker.run()
    (key,) = row.questions
    assert row.questions[key]["params"]["message"] == "Size?"
    # The answer is not a number: the question is asked again, under another key, with the reason.
    answer(server, row, **{key: YES})
    row = worker.run()
    (other,) = row.questions
    assert other != key
    answer(server, row, **{other: {"action": "accept", "content": {"value": 4}}})
    assert text_of(worker.run().result) == "Ada 4"
    # All runs have one interaction, and what was written before a question was rolled back.
    assert len(set(runs)) == 1
    assert [group.name for group in Group.objects.all()] == ["Ada 4"]


def test_a_malformed_answer_ends_no_task(worker):
    server = open_to_all()

    @server.tool(task="optional")
    async def order(ctx: Context) -> str:
        """Order."""
        return await ctx.aelicit("Name?", str)

    call(server, "order")
    row = worker.run()
    for odd in ({"action": "perhaps"}, {"content": []}, {}):
        task_rows.store_responses(row, dict.fromkeys(row.questions, odd))
        worker.waiting.append((row.pk, row.run))
        row = worker.run()
        assert row.status == "input_required"
    answer(server, row)
    assert text_of(worker.run().result) == "Ada"


@spec("TKE-12")
@pytest.mark.parametrize("is_async", [False, True])
def test_questions_before_the_task_are_those_of_the_call(worker, is_async):
    server, seen = open_to_all(), []

    if is_async:

        @server.tool(task="optional", ask="before")
        async def order(ctx: Context) -> str:
            """Order."""
            name = await ctx.aelicit("Name?", str)
            seen.append(ctx.task.is_task)
            await ctx.task.abegin()
            return name
    else:

        @server.tool(task="optional", ask="before")
        def order(ctx: Context) -> str:
            """Order."""
            name = ctx.elicit("Name?", str)
            Group.objects.create(name=f"order {len(seen)}")
            seen.append(ctx.task.is_task)
            ctx.task.begin()
            return name

    result = call(server, "order")
    assert result["resultType"] == "input_required"
    assert not Task.objects.exists()
    (key,) = result["inputRequests"]
    begun = call(server, "order", inputResponses={key: YES}, requestState=result["requestState"])
    assert begun["resultType"] == "task"
    assert Group.objects.count() == 0
    assert text_of(worker.run().result) == "Ada"
    assert seen == [False, True]


def test_a_function_that_returns_before_it_begins_has_answered(worker):
    server = open_to_all()

    @server.tool(task="optional", ask="before")
    def order(ctx: Context, n: int) -> str:
        """Order."""
        if n:
            ctx.task.begin()
        return f"{n} ordered"

    assert text_of(call(server, "order", arguments={"n": 0})) == "0 ordered"
    assert call(server, "order", arguments={"n": 1})["resultType"] == "task"
    assert text_of(worker.run().result) == "1 ordered"


@spec("TKE-6")
def test_what_fails_in_band_is_completed_and_what_fails_else_is_failed(worker):
    server = open_to_all()

    @server.tool(task="optional")
    def refuse(kind: str) -> ToolResult:
        """Refuse."""
        if kind == "protocol":
            raise InvalidParams("Not so.", data={"why": 1})
        if kind == "no JSON":
            return ToolResult(Text("x", meta={"a": object()}))
        raise ToolError("Not today.")

    def outcome(kind: str) -> Task:
        call(server, "refuse", arguments={"kind": kind})
        return worker.run()

    row = outcome("tool")
    assert (row.status, row.result["isError"]) == ("completed", True)
    row = outcome("protocol")
    assert (row.status, row.status_message) == ("failed", "Not so.")
    assert row.error == {"code": -32602, "message": "Not so.", "data": {"why": 1}}
    row = outcome("no JSON")
    assert (row.status, row.error["code"]) == ("failed", -32603)


def test_what_no_row_can_hold_ends_no_task_otherwise(worker, monkeypatch):
    # Not every handler that captures the logs of tests can write the logged text.
    monkeypatch.setattr(logging.getLogger("mcp_django"), "disabled", True)
    server = open_to_all()

    @server.tool(task="optional")
    def work(ctx: Context, data: str = "") -> str:
        """Work."""
        ctx.report_progress(1, 2, "half of a \ud83d")
        if data:
            odd = {"object": object(), "number": float("nan"), "text": "\ud83d"}[data]
            raise InvalidParams("not \ud83d", data={"why": odd})
        return "done"

    call(server, "work")
    row = worker.run()
    assert text_of(row.result) == "done"
    for data in ("object", "number", "text"):
        call(server, "work", arguments={"data": data})
        row = worker.run()
        assert (row.status, row.error) == ("failed", {"code": -32602, "message": "not ?"})


@pytest.mark.django_db(transaction=True)
def test_what_came_of_it_waits_for_a_database_that_is_away(worker, monkeypatch):
    monkeypatch.setattr(task_runs, "RETRY_PAUSE_SECONDS", 0)
    server, times = open_to_all(), iter([True, False, True, False])

    @server.tool(task="optional")
    def work(ctx: Context) -> str:
        """Work."""
        return ctx.elicit("Name?", str)

    def away(execute: Any, sql: str, params: Any, *others: Any) -> Any:
        changes = sql.partition(" WHERE ")[0]
        if changes.startswith("UPDATE") and "questions" in changes and next(times):
            raise OperationalError("the server closed the connection unexpectedly")
        return execute(sql, params, *others)

    call(server, "work")
    with connection.execute_wrapper(away):
        row = worker.run()
    assert row.status == "input_required"
    answer(server, row)
    with connection.execute_wrapper(away):
        row = worker.run()
    assert text_of(row.result) == "Ada"
    assert next(times, None) is None


@pytest.mark.parametrize("end", ["done", "cancelled", "failed"])
def test_what_its_user_answered_goes_with_its_end(worker, end):
    server = open_to_all()

    @server.tool(task="optional")
    def work(ctx: Context) -> str:
        """Work."""
        ctx.elicit("Pin?", str)
        ctx.ask(Elicit("Name?", str, key="name"), Elicit("Size?", str, key="size"))
        return "done"

    call(server, "work")
    answer(server, worker.run())
    row = worker.run()
    answer(server, row, name=YES)
    row.refresh_from_db()
    assert "Ada" in row.state
    assert "name" in row.answers
    if end == "cancelled":
        send(server, "tasks/cancel", {"taskId": row.pk})
    elif end == "failed":
        task_rows.fail_task(row.pk, "It cannot be run.")
    else:
        answer(server, row, size=YES)
        worker.run()
    row.refresh_from_db()
    assert row.is_terminal
    assert (row.state, row.answers) == ("", {})


@spec("TKE-8", "TKD-5")
def test_what_was_cancelled_before_it_ran_does_not_run(worker):
    server, ran = open_to_all(), []

    @server.tool(task="optional")
    def work() -> str:
        """Work."""
        ran.append(1)
        return ""

    task_id = call(server, "work")["taskId"]
    send(server, "tasks/cancel", {"taskId": task_id})
    assert worker.run().status == "cancelled"
    assert not ran


def test_a_function_sees_that_it_was_cancelled(worker):
    server = open_to_all()

    @server.tool(task="optional")
    def work(ctx: Context) -> bool:
        """Work."""
        task_rows.cancel_task(Task.objects.get(pk=ctx.task.id))
        keep(ctx.task.id)
        return ctx.cancelled

    call(server, "work")
    row = worker.run()
    assert (row.status, row.result) == ("cancelled", None)


def test_an_async_function_is_interrupted(worker):
    server, ends = open_to_all(), []

    @server.tool(task="optional", timeout=30)
    async def work(ctx: Context) -> None:
        """Work."""
        held(ctx.task.id).cancel()
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(1)

    call(server, "work")
    worker.run()
    assert ends == [1]


def held(pk: str) -> Any:
    """Return the run of a task that this process holds."""
    return next(run for (key, _), run in task_runs.lease_renewer._runs.items() if key == pk)


def keep(pk: str) -> None:
    """Renew the leases in this thread, as the renewer's thread does."""
    task_runs.lease_renewer._check_runs(renew=True)


def test_messages_are_written_by_the_keeper_and_at_the_end_of_a_run(worker):
    server, messages = open_to_all(), []

    @server.tool(task="optional")
    def count(ctx: Context) -> str:
        """Count."""
        ctx.report_progress(1, 3)
        ctx.report_progress(2, 3)
        messages.append(Task.objects.get(pk=ctx.task.id).status_message)
        keep(ctx.task.id)
        messages.append(Task.objects.get(pk=ctx.task.id).status_message)
        ctx.report_progress(3, 3, "nearly")
        return ctx.elicit("Name?", str)

    call(server, "count")
    row = worker.run()
    assert [*messages, row.status_message] == ["", "2 / 3", "nearly"]
    task_rows.cancel_task(row)


# Who may, at the moment when it runs -------------------------------------------------------------


def shut() -> tuple[MCPServer, str, AccessToken]:
    """Return a server with a task that needs a permission, and a token of a user who has it."""
    server = MCPServer("inline", scopes=[])
    user = person("ada", is_superuser=True)

    @server.tool(task="required", permission="auth.view_group")
    def work(ctx: Context) -> str:
        """Work."""
        return str(ctx.user.get_username())

    token, plaintext = token_for(user)
    return server, plaintext, token


def test_the_caller_is_known_to_the_function(worker):
    server, plaintext, _ = shut()
    call(server, "work", token=plaintext)
    assert text_of(worker.run().result) == "ada"


def test_a_caller_of_another_issuer_keeps_the_claims_of_its_token(worker, settings):
    pytest.importorskip("jwt")
    from tests.auth.issuers import issuer

    server = MCPServer("inline", scopes=[])

    @server.tool(task="required")
    def work(ctx: Context) -> dict[str, Any]:
        """Work."""
        return {"user": ctx.user.get_username(), "claims": dict(ctx.principal.claims)}

    with issuer() as company:
        settings.DEBUG = True
        trusted = {"ISSUER": company.url, "AUDIENCES": ["shop"]}
        settings.MCP_DJANGO = {"AUTH": ["jwt"], "JWT": [trusted]}
        ExternalIdentity.objects.create(issuer=company.url, subject="s-1", user=person("ada"))
        token = company.token(sub="s-1", aud="shop", department={"id": 7, "name": "a\ud800"})
        call(server, "work", token=token)
        result = worker.run().result["structuredContent"]
    assert result["user"] == "ada"
    assert result["claims"]["department"] == {"id": 7, "name": "a?"}


@pytest.mark.parametrize("loss", ["token", "user", "permission"])
def test_who_has_lost_what_it_takes_is_refused(worker, loss):
    server, plaintext, token = shut()
    call(server, "work", token=plaintext)
    if loss == "token":
        token.revoke()
    elif loss == "user":
        type(token.user).objects.update(is_active=False)
    else:
        type(token.user).objects.update(is_superuser=False)
    row = worker.run()
    assert row.status == "failed"
    reason = "No tool named" if loss == "permission" else "may not use the site"
    assert reason in row.status_message


def test_a_tool_that_is_gone_is_said_to_be(worker):
    server = open_to_all()

    @server.tool(task="optional")
    def work() -> str:
        """Work."""
        return ""

    call(server, "work")
    server.unregister(work)
    row = worker.run()
    assert (row.status, row.error["code"]) == ("failed", -32602)


def test_a_task_from_before_its_tool_had_another_name_goes_on(worker):
    server = open_to_all()

    def work() -> str:
        """Work."""
        return "done"

    server.tool("old", task="optional")(work)
    call(server, "old")
    server.unregister(work)
    server.tool("new", aliases=["old"], task="optional")(work)
    assert text_of(worker.run().result) == "done"


def test_a_task_of_a_deleted_user_is_deleted(worker):
    server, plaintext, token = shut()
    call(server, "work", token=plaintext)
    token.user.delete()
    assert not Task.objects.exists()
    assert task_runs.take_lease(*worker.waiting.pop()) is None


@pytest.mark.usefixtures("call_log")
def test_each_run_is_a_line_of_the_call_log(worker):
    server, seen = open_to_all(), []

    @server.tool(task="optional")
    def work() -> str:
        """Work."""
        seen.extend(Call.objects.filter(transport="task").values_list("outcome", flat=True))
        return "done"

    call(server, "work")
    assert text_of(worker.run().result) == "done"
    # The row of a call that may write is stored before the call runs.
    assert seen == ["started"]
    lines = Call.objects.filter(component="work").order_by("pk")
    assert [(line.transport == "task", line.outcome) for line in lines] == [
        (False, "ok"),
        (True, "ok"),
    ]


def test_a_yes_is_asked_for_before_there_is_a_task(worker):
    server = MCPServer("inline", scopes=[])
    _, plaintext = token_for(person("ada"))

    @server.tool(task="optional", approval="caller")
    def work() -> str:
        """Work."""
        return "done"

    waiting = call(server, "work", token=plaintext)
    assert "Nothing was done yet" in text_of(waiting)
    assert not Task.objects.exists()
    approval_rows.save_decision(Approval.objects.get(), is_granted=True, by="ada", reason="")
    begun = call(server, "work", token=plaintext)
    assert begun["resultType"] == "task"
    assert Approval.objects.get().state == "used"
    assert text_of(worker.run().result) == "done"


def test_a_yes_is_not_spent_on_a_task_that_cannot_be_made(worker, settings):
    settings.MCP_DJANGO = {"TASKS_PER_PRINCIPAL": 1}
    server = MCPServer("inline", scopes=[])
    _, plaintext = token_for(person("ada"))

    @server.tool(task="optional", approval="caller")
    def work(n: int = 0) -> str:
        """Work."""
        return "done"

    @server.tool(task="optional")
    def other() -> str:
        """Be in the way."""
        return ""

    call(server, "other", token=plaintext)
    call(server, "work", token=plaintext)
    approval_rows.save_decision(Approval.objects.get(), is_granted=True, by="ada", reason="")
    refused = send(server, "tools/call", {"name": "work", "arguments": {}}, token=plaintext)
    assert "open tasks" in refused["error"]["message"]
    assert Approval.objects.get().state == "granted"
    worker.run()
    assert call(server, "work", token=plaintext)["resultType"] == "task"
    assert text_of(worker.run().result) == "done"
    assert Approval.objects.get().state == "used"


def test_the_page_of_an_approval_is_no_question_of_the_function(worker, monkeypatch):
    monkeypatch.setattr(approval_guard, "page_url", lambda *_: "https://shop.example/approve")
    server = MCPServer("inline", scopes=[])
    _, plaintext = token_for(person("ada"))

    @server.tool(task="optional", ask="before", approval="caller")
    def work(ctx: Context) -> str:
        """Work."""
        name = ctx.elicit("Name?", str)
        ctx.task.begin()
        return f"{name} {ctx.elicit('Size?', str)}"

    def round_of(*answers: Any) -> dict[str, Any]:
        return call(server, "work", token=plaintext, capabilities=opens_pages, **dict(answers))

    opens_pages = {**WITH_TASKS, "elicitation": {"form": {}, "url": {}}}
    page = round_of()
    assert [*page["inputRequests"]] == ["approval"]
    approval_rows.save_decision(Approval.objects.get(), is_granted=True, by="ada", reason="")
    accepted = {"approval": {"action": "accept"}}
    result = round_of(("inputResponses", accepted), ("requestState", page["requestState"]))
    named = dict.fromkeys(result["inputRequests"], YES)
    begun = round_of(("inputResponses", named), ("requestState", result["requestState"]))
    assert begun["resultType"] == "task"
    # The task does not ask again what was answered before it began.
    row = worker.run()
    (size,) = row.questions.values()
    assert size["params"]["message"] == "Size?"
    given = {"taskId": row.pk, "inputResponses": dict.fromkeys(row.questions, YES)}
    send(server, "tasks/update", given, token=plaintext)
    assert text_of(worker.run().result) == "Ada Ada"


# Handles -----------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_client_without_tasks_gets_a_handle(worker):
    server = open_to_all()

    @server.tool(task="required", polling_fallback=True)
    def work(ctx: Context, ask: bool = False) -> dict[str, bool]:
        """Work."""
        return {"done": bool(ctx.elicit("Sure?", str)) if ask else True}

    @server.tool(task="required", polling_fallback=True)
    def other() -> str:
        """There is one tool for the handles of all of them."""
        return ""

    assert [*server.tools] == ["work", "get_result", "other"]
    begun = call(server, "work", capabilities=FORM)
    handle = begun["structuredContent"]["handle"]
    assert handle in text_of(begun)
    worker.run()
    got = call(server, "get_result", arguments={"handle": handle}, capabilities={})
    assert got["structuredContent"] == {"done": True}
    unknown = call(server, "get_result", arguments={"handle": "x"}, capabilities={})
    assert unknown["isError"]
    assert "handle does not exist" in text_of(unknown)
    call(server, "work", arguments={"ask": True}, capabilities=FORM)
    row = worker.run()
    assert row.result["isError"]
    assert "cannot be asked any more" in text_of(row.result)


@pytest.mark.django_db(transaction=True)
def test_a_handle_is_for_those_who_may_use_its_tool(worker):
    server = MCPServer("inline", scopes=[])
    user = person("ada", is_superuser=True)
    _, plaintext = token_for(user)

    @server.tool(task="required", polling_fallback=True, permission="auth.view_group")
    def work() -> str:
        """Work."""
        return "secret"

    begun = call(server, "work", token=plaintext, capabilities={})
    worker.run()
    given = {"arguments": begun["structuredContent"], "token": plaintext, "capabilities": {}}
    given["arguments"].pop("status")
    assert text_of(call(server, "get_result", **given)) == "secret"
    type(user).objects.update(is_superuser=False)
    got = call(server, "get_result", **given)
    assert got["isError"]
    assert "handle does not exist" in text_of(got)


@pytest.mark.django_db(transaction=True)
def test_a_handle_that_is_not_over_says_so(worker, monkeypatch):
    from mcp_django.tasks import status as task_status

    monkeypatch.setattr(task_status, "WAIT_SECONDS", 0)
    server = open_to_all()

    @server.tool(task="required", polling_fallback=True)
    def work() -> str:
        """Work."""
        return ""

    handle = call(server, "work", capabilities={})["structuredContent"]["handle"]
    got = call(server, "get_result", arguments={"handle": handle}, capabilities={})
    assert text_of(got).startswith("Still working")
    row = Task.objects.get(pk=handle)
    task_rows.cancel_task(row)
    got = call(server, "get_result", arguments={"handle": handle}, capabilities={})
    assert got["isError"]
    worker.run()
