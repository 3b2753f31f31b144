"""Tasks of the extension of 2026-07-28: which calls become one, and who may see its contents."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django.models import Task
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES
from mcp_django.protocol.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    TASKS,
    extension_declaration,
)
from mcp_django.test import ErrorResponse, MCPClient
from tests.kit.drivers import message, send
from tests.kit.servers import person
from tests.spec import spec
from tests.tasks import wire_site
from tests.tasks.wire_site import everybody, gate, members, plain

DECLARED = {CLIENT_CAPABILITIES: {"elicitation": {}, **extension_declaration(TASKS)}}
UNDECLARED = {CLIENT_CAPABILITIES: {"tasks": {"requests": {"tools": {"call": {}}}}}}
MEMBERS = {
    "resultType",
    "taskId",
    "status",
    "createdAt",
    "lastUpdatedAt",
    "ttlMs",
    "pollIntervalMs",
    "_meta",
}


@pytest.fixture
def client(db):
    """A client of the server `everybody`, whose tasks run before their calls return."""
    return MCPClient(server=everybody, raise_exceptions=False)


def refused(client: MCPClient, method: str, params: dict[str, Any]) -> ErrorResponse:
    with pytest.raises(ErrorResponse) as caught:
        client.request(method, params)
    return caught.value


# Who gets one -----------------------------------------------------------------------------------


@spec("TKE-1", "EXT-1", "EXT-3")
def test_the_extension_is_advertised_where_a_tool_runs_as_a_task(client):
    capabilities = client.discover()["capabilities"]
    assert capabilities["extensions"][TASKS] == {}
    assert "tasks" not in capabilities
    without = MCPClient(server=plain).discover()["capabilities"]
    assert TASKS not in without.get("extensions", {})
    assert refused(MCPClient(server=plain), "tasks/get", {"taskId": "x"}).code == METHOD_NOT_FOUND
    assert all("execution" not in tool for tool in client.list_tools())


@spec("TKE-3", "TKE-4", "TKE-5")
def test_a_task_is_flat_and_its_result_is_got(client):
    created = client.call_tool("add", {"a": 1, "b": 2}, as_task=True)
    assert set(created.raw) == MEMBERS
    assert (created.raw["resultType"], created.raw["status"]) == ("task", "working")
    for member in ("ttlMs", "pollIntervalMs"):
        assert type(created.raw[member]) is int
        assert created.raw[member] > 0
    for member in ("createdAt", "lastUpdatedAt"):
        assert created.raw[member].endswith("Z")
        datetime.fromisoformat(created.raw[member])
    assert len(created.task_id) >= 32
    task = client.get_task(created.task_id)
    assert (task["resultType"], task["status"]) == ("complete", "completed")
    assert task["result"]["structuredContent"] == {"total": 3}
    assert (task["result"]["resultType"], "_meta" in task["result"]) == ("complete", False)
    assert set(task) == MEMBERS | {"result"}
    assert client.task_result(created).structured == {"total": 3}


@spec("TKE-1", "TKE-13", "TOOL-18", "EXT-2")
def test_a_client_without_the_extension_is_answered_at_once(client):
    for params in ({"_meta": UNDECLARED}, {"_meta": UNDECLARED, "task": {"ttl": 1}}, {"task": 5}):
        given = {"name": "add", "arguments": {"a": 1, "b": 2}, **params}
        result = client.request("tools/call", given)
        assert (result["resultType"], result["structuredContent"]) == ("complete", {"total": 3})
    assert not Task.objects.exists()


@spec("TKE-1", "TKE-13")
def test_a_tool_that_runs_as_no_task_never_is_one(client):
    params = {"name": "greet", "arguments": {"name": "Ada"}, "task": {"ttl": 60_000}}
    result = client.request("tools/call", {**params, "_meta": DECLARED})
    assert (result["resultType"], result["content"][0]["text"]) == ("complete", "Hello Ada.")


@spec("TKE-2")
def test_a_tool_that_has_to_be_a_task_names_what_the_client_lacks(client):
    error = refused(client, "tools/call", {"name": "only", "arguments": {}})
    assert error.code == MISSING_CAPABILITY
    assert error.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    assert client.task_result(client.call_tool("only", {"a": 7}, as_task=True)).text == "done 7"


def test_arguments_that_do_not_fit_are_told_at_once(client):
    result = client.call_tool("add", {"a": "one"}, as_task=True, check=False)
    assert result.is_error
    assert not Task.objects.exists()


def test_a_handle_is_for_clients_that_know_of_no_tasks(client):
    result = client.call_tool("started")
    handle = result.structured["handle"]
    assert handle in result.text
    assert client.call_tool("get_result", {"handle": handle}).text == "the result"
    assert client.call_tool("started", as_task=True).task_id


# How it ends ------------------------------------------------------------------------------------


@spec("TKE-6")
def test_a_tool_that_says_it_failed_has_completed(client):
    task = client.get_task(client.call_tool("fail", as_task=True).task_id)
    assert task["status"] == "completed"
    assert task["result"]["isError"] is True
    assert task["result"]["content"][0]["text"] == "Not today."


@spec("TKE-6", "TKE-5")
def test_a_protocol_error_fails_the_task(client):
    task = client.get_task(client.call_tool("break_down", as_task=True).task_id)
    assert task["status"] == "failed"
    assert task["error"] == {
        "code": INVALID_PARAMS,
        "message": "Not like this.",
        "data": {"field": "a"},
    }
    assert task["statusMessage"] == "Not like this."
    assert "result" not in task


@spec("TKE-8", "TKE-4")
def test_canceling_is_acknowledged_whatever_the_task_does(client):
    asking, over = (client.call_tool(tool, as_task=True).task_id for tool in ("ask_name", "fail"))
    for task_id in (asking, asking, over):
        answer = client.cancel_task(task_id)
        assert (answer.pop("resultType"), set(answer)) == ("complete", {"_meta"})
    assert client.get_task(asking)["status"] == "cancelled"
    assert client.get_task(over)["status"] == "completed"
    assert "inputRequests" not in client.get_task(asking)


# What it asks -----------------------------------------------------------------------------------


@spec("TKE-5", "TKE-7", "TKE-4")
def test_answers_are_taken_one_by_one_and_others_ignored(client):
    task_id = client.call_tool("ask_two", as_task=True).task_id
    task = client.get_task(task_id)
    assert (task["status"], set(task["inputRequests"])) == ("input_required", {"who", "sure"})
    assert task["inputRequests"]["who"]["method"] == "elicitation/create"
    assert "requestState" not in task

    def update(**answers: Any) -> dict[str, Any]:
        given = {"taskId": task_id, "inputResponses": answers}
        answer = client.request("tasks/update", given)
        assert (answer.pop("resultType"), set(answer)) == ("complete", {"_meta"})
        return client.get_task(task_id)

    ada = {"action": "accept", "content": {"name": "Ada"}}
    assert update(other=ada, who=ada)["inputRequests"].keys() == {"sure"}
    assert update(who={"action": "decline"})["inputRequests"].keys() == {"sure"}
    done = update(sure={"action": "accept", "content": {"sure": True}})
    assert done["result"]["content"][0]["text"] == "Ada is sure."


@spec("TKE-7")
def test_a_key_is_never_used_twice(client):
    task_id = client.call_tool("ask_name", as_task=True).task_id
    unfit = {"who": {"action": "accept", "content": {"nom": "Ada"}}}
    client.request("tasks/update", {"taskId": task_id, "inputResponses": unfit})
    (again,) = client.get_task(task_id)["inputRequests"]
    assert again != "who"
    assert client.task_result(task_id, answers=[{"name": "Ada"}]).text == "Hello Ada."


@spec("TKE-7")
def test_an_answer_that_is_none_is_refused(client):
    task_id = client.call_tool("ask_name", as_task=True).task_id
    for given in ({"who": 5}, [], None):
        params = {"taskId": task_id, "inputResponses": given}
        assert refused(client, "tasks/update", params).code == INVALID_PARAMS
    assert refused(client, "tasks/update", {"taskId": task_id}).code == INVALID_PARAMS
    assert client.get_task(task_id)["status"] == "input_required"


@spec("TKE-12")
def test_what_is_asked_before_a_task_is_asked_by_the_call(client):
    result = client.call_tool("ask_before", as_task=True)
    assert (result.raw["resultType"], result.task_id) == ("input_required", "")
    assert not Task.objects.exists()
    created = client.call_tool("ask_before", as_task=True, answers=[{"name": "Ada"}])
    assert set(created.raw) == MEMBERS
    assert client.task_result(created).text == "Hello Ada, later."
    assert [group.name for group in Group.objects.all()] == ["Ada"]


def test_a_call_that_ends_before_its_task_is_a_call(client):
    answered = client.call_tool(
        "ask_before", {"leave": True}, as_task=True, answers=[{"name": "Ada"}]
    )
    assert (answered.task_id, answered.text) == ("", "Bye Ada.")
    synchronous = client.call_tool("ask_before", answers=[{"name": "Eve"}])
    assert synchronous.text == "Hello Eve, now."


# Whose it is ------------------------------------------------------------------------------------


@spec("TKE-9", "EXT-2")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_request_that_does_not_declare_the_extension_is_told_so(method, client):
    given = {"taskId": "x", "inputResponses": {}, "_meta": UNDECLARED}
    error = refused(client, method, given)
    assert (error.code, error.data) == (
        MISSING_CAPABILITY,
        {"requiredCapabilities": {"extensions": {TASKS: {}}}},
    )


@spec("TKE-9", "TKE-10")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_the_tasks_of_others_and_none_are_one(method, db):
    ada, eve = (MCPClient(server=members, user=person(name)) for name in ("ada", "eve"))
    hers = ada.call_tool("ask_name", as_task=True).task_id
    messages = {}
    for task_id in (hers, "no-such-task", "\0"):
        error = refused(eve, method, {"taskId": task_id, "inputResponses": {}})
        assert error.code == INVALID_PARAMS
        messages[task_id] = error.message.replace(repr(task_id)[1:-1], "…")
    assert len(set(messages.values())) == 1
    assert ada.get_task(hers)["status"] == "input_required"


@spec("TKE-10")
def test_whoever_may_not_use_the_tool_any_more_does_not_read_its_results(db):
    ada = person("ada", is_superuser=True)
    task_id = MCPClient(server=members, user=ada).call_tool("staff_only", as_task=True).task_id
    ada.is_superuser = False
    ada.save()
    refusals = []
    for requested_id in (task_id, "0" * len(task_id)):
        client = MCPClient(server=members, user=type(ada).objects.get(pk=ada.pk))
        with CaptureQueriesContext(connection) as captured:
            error = refused(client, "tasks/get", {"taskId": requested_id})
        statements = [query["sql"].replace(requested_id, "…") for query in captured]
        refusals.append((error.code, error.message.replace(requested_id, "…"), statements))
    assert refusals[0][0] == INVALID_PARAMS
    # A task that never existed causes the same queries.
    assert refusals[0] == refusals[1]


@spec("TKE-9")
@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
def test_the_older_methods_are_gone(method, client):
    assert refused(client, method, {"taskId": "x"}).code == METHOD_NOT_FOUND


@spec("TKE-15", "HDR-4")
@pytest.mark.django_db(transaction=True)
async def test_the_name_header_of_task_methods_is_the_task_id():
    body = message("tasks/get", {"taskId": "x"}, **DECLARED)
    codes = []
    for name in ("x", "y", None):
        answer = await send(everybody.asgi, "/mcp", body, mcp_name=name)
        codes.append(answer.json()["error"]["code"])
    assert codes == [INVALID_PARAMS, HEADER_MISMATCH, HEADER_MISMATCH]


# Over HTTP, where it runs in a thread of its own --------------------------------------------------


@pytest.fixture
def remote(transactional_db):
    gate.close()
    with MCPClient(server=everybody, transport="http") as client:
        yield client
    gate.opened.set()


@spec("TKE-3", "TKE-8")
def test_a_task_is_there_before_its_call_is_answered(remote):
    task_id = remote.call_tool("held", as_task=True).task_id
    assert remote.get_task(task_id)["status"] == "working"
    assert gate.reached.wait(wire_site.PATIENCE)
    gate.opened.set()
    assert remote.task_result(task_id).text == "passed, wanted"


@spec("TKE-8")
def test_a_task_that_was_canceled_stays_so(remote):
    task_id = remote.call_tool("held", as_task=True).task_id
    assert gate.reached.wait(wire_site.PATIENCE)
    remote.cancel_task(task_id)
    gate.opened.set()
    with pytest.raises(ErrorResponse, match="cancelled"):
        remote.task_result(task_id)


@spec("TKE-7")
def test_a_task_asks_over_http(remote):
    created = remote.call_tool("ask_name", as_task=True)
    assert remote.task_result(created, answers=[{"name": "Ada"}]).text == "Hello Ada."
