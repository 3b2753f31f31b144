"""Tasks of 2025-11-25: requested with each call, awaited, and listed."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django import MCPServer
from mcp_django.auth.permissions import IsStaff
from mcp_django.models import Task
from mcp_django.protocol.envelope import MODEL_IMMEDIATE_RESPONSE, RELATED_TASK
from mcp_django.protocol.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RATE_LIMITED,
    TASKS,
    extension_declaration,
)
from mcp_django.tasks import handlers
from mcp_django.test import DECLINE, ErrorResponse, MCPClient
from mcp_django.transports import client_requests
from tests.kit.servers import person
from tests.spec import spec
from tests.tasks import wire_site
from tests.tasks.wire_site import everybody, gate, members, plain

D = "2025-11-25"
MEMBERS = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}


def older(**options: Any) -> MCPClient:
    options = {"server": everybody, "protocol_version": D, "raise_exceptions": False} | options
    return MCPClient(**options)


@pytest.fixture
def client(db):
    """A client whose tasks run before their calls return."""
    return older()


@pytest.fixture
def remote(transactional_db):
    """A client over HTTP, whose tasks run in a thread of their own."""
    gate.close()
    with older(transport="http") as client:
        yield client
    gate.opened.set()


def refused(client: MCPClient, method: str, **params: Any) -> ErrorResponse:
    with pytest.raises(ErrorResponse) as caught:
        client.request(method, params)
    return caught.value


def agreed(client: MCPClient) -> dict[str, Any]:
    """Return the server's capabilities for this client's revision."""
    params = {
        "protocolVersion": client._client.revision.version,
        "capabilities": extension_declaration(TASKS),
        "clientInfo": {"name": "test", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    capabilities: dict[str, Any] = client._client.send(message)["result"]["capabilities"]
    return capabilities


# What is declared -------------------------------------------------------------------------------


@spec("TKD-1", "TKD-9", "EXT-4")
def test_the_capability_and_the_support_of_each_tool(db):
    calls = {"cancel": {}, "requests": {"tools": {"call": {}}}}
    assert agreed(older())["tasks"] == calls
    assert agreed(older(server=members, user=person()))["tasks"] == {"list": {}, **calls}
    assert "tasks" not in agreed(older(server=plain))
    assert "tasks" not in agreed(older(protocol_version="2025-06-18"))
    assert "extensions" not in agreed(older())
    support = {tool["name"]: tool.get("execution") for tool in older().list_tools()}
    assert support["greet"] is None
    assert support["add"] == {"taskSupport": "optional"}
    assert support["only"] == {"taskSupport": "required"}
    assert support["started"] == {"taskSupport": "optional"}
    assert not any(
        "execution" in tool for tool in older(protocol_version="2025-06-18").list_tools()
    )


@spec("TKE-14")
def test_the_extension_in_a_handshake_enables_nothing(db):
    client = older(capabilities=extension_declaration(TASKS))
    assert client.call_tool("add", {"a": 1, "b": 2}).structured == {"total": 3}
    assert refused(client, "tools/call", name="only").code == METHOD_NOT_FOUND


@spec("TKD-3")
def test_a_client_does_what_the_tool_declares(client):
    assert refused(client, "tools/call", name="only").code == METHOD_NOT_FOUND
    named = {"name": "greet", "arguments": {"name": "Ada"}}
    assert refused(client, "tools/call", **named, task={}).code == METHOD_NOT_FOUND
    without = older(server=plain)
    assert without.request("tools/call", {**named, "task": {}})["content"]
    assert refused(without, "tasks/get", taskId="x").code == METHOD_NOT_FOUND


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_before_there_are_no_tasks(version, db):
    client = older(protocol_version=version)
    added = client.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}, "task": {}})
    assert added["content"][0]["text"] == '{"total":3}'
    only = client.call_tool("only", check=False)
    assert only.is_error
    assert "runs only as a task" in only.text
    handle = Task.objects.get(pk=client.call_tool("started").text.rpartition(" ")[2].rstrip("."))
    assert handle.status == "completed"
    assert refused(client, "tasks/get", taskId=handle.pk).code == METHOD_NOT_FOUND


@spec("TKD-2")
def test_what_fails_before_a_task_began_is_an_error(client):
    with pytest.raises(ErrorResponse, match="declined") as caught:
        client.call_tool("ask_before", as_task=True, answers=[DECLINE])
    assert caught.value.code == INTERNAL_ERROR
    assert not Task.objects.exists()


@spec("TKD-2")
def test_a_client_that_wants_a_task_is_limited_by_an_error(client, settings):
    settings.MCP_DJANGO = {"THROTTLE_AS": "result", "RATE": "1/h"}
    client.call_tool("fail", as_task=True)
    with pytest.raises(ErrorResponse) as caught:
        client.call_tool("fail", as_task=True)
    assert caught.value.code == RATE_LIMITED
    assert client.call_tool("fail", check=False).is_error


@spec("TKD-2")
@pytest.mark.parametrize("ttl", [1e300, 2**80, 1e17])
def test_more_time_than_any_task_gets_is_the_most(client, ttl):
    params = {"name": "add", "arguments": {"a": 1, "b": 2}, "task": {"ttl": ttl}}
    assert client.request("tools/call", params)["task"]["ttl"] == 24 * 3600 * 1000


# What a task is ---------------------------------------------------------------------------------


@spec("TKD-2", "MET-5")
def test_a_call_that_asks_for_a_task_gets_one(client):
    created = client.request(
        "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}, "task": {"ttl": 90_000}}
    )
    assert set(created) == {"task", "_meta"}
    assert set(created["task"]) == MEMBERS
    assert (created["task"]["status"], created["task"]["ttl"]) == ("working", 90_000)
    assert set(created["_meta"]) == {MODEL_IMMEDIATE_RESPONSE}


@spec("TKD-2")
@pytest.mark.parametrize("task", [5, ["ttl"], {"ttl": "long"}, {"ttl": -1}, {"ttl": 0}])
def test_a_wish_that_is_none_is_refused(task, client):
    error = refused(client, "tools/call", name="add", arguments={"a": 1, "b": 2}, task=task)
    assert error.code == INVALID_PARAMS


@spec("TKD-2")
def test_a_client_that_asks_for_a_task_is_answered_with_one_or_an_error(client):
    given = {"name": "add", "arguments": {"a": "one"}, "task": {}}
    assert refused(client, "tools/call", **given).code == INVALID_PARAMS
    params = {"leave": True}
    created = client.call_tool("ask_before", params, as_task=True, answers=[{"name": "Ada"}])
    assert client.task_result(created).text == "Bye Ada."


@spec("TKD-4", "TKD-8")
def test_its_result_is_that_of_the_call_and_names_the_task(client):
    created = client.call_tool("add", {"a": 1, "b": 2}, as_task=True)
    result = client.task_result(created)
    assert result.structured == {"total": 3}
    assert result.raw["_meta"] == {RELATED_TASK: {"taskId": created.task_id}}
    assert "resultType" not in result.raw
    task = client.get_task(created.task_id)
    assert set(task) == MEMBERS
    assert task["status"] == "completed"


@spec("TKD-6", "TKD-4")
def test_what_fails_fails_its_task(client):
    failed = client.call_tool("fail", as_task=True)
    task = client.get_task(failed.task_id)
    assert (task["status"], task["statusMessage"]) == ("failed", "Not today.")
    assert client.task_result(failed, check=False).is_error
    broken = client.call_tool("break_down", as_task=True)
    assert client.get_task(broken.task_id)["status"] == "failed"
    error = refused(client, "tasks/result", taskId=broken.task_id)
    assert (error.code, error.message, error.data) == (
        INVALID_PARAMS,
        "Not like this.",
        {"field": "a"},
    )


@spec("TKD-4", "TKD-5", "TKD-7")
def test_canceling_answers_with_the_task_and_ends_it(client):
    asking = client.call_tool("ask_name", as_task=True).task_id
    canceled = client.cancel_task(asking)
    assert set(canceled) == MEMBERS
    assert canceled["status"] == "cancelled"
    assert refused(client, "tasks/cancel", taskId=asking).code == INVALID_PARAMS
    assert client.get_task(asking)["status"] == "cancelled"
    over = client.call_tool("add", {"a": 1, "b": 2}, as_task=True).task_id
    assert refused(client, "tasks/cancel", taskId=over).code == INVALID_PARAMS


@spec("TKD-7", "TKD-9")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
def test_the_tasks_of_others_are_not_there(method, db):
    ada, eve = (older(server=members, user=person(name)) for name in ("ada", "eve"))
    hers = ada.call_tool("only", as_task=True).task_id
    foreign, unknown = (refused(eve, method, taskId=task_id) for task_id in (hers, "x" * 43))
    assert foreign.code == unknown.code == INVALID_PARAMS
    assert foreign.message.replace(hers, "x" * 43) == unknown.message


@spec("TKD-4", "TKD-9", "TKD-7")
def test_a_caller_lists_his_tasks_and_no_others(monkeypatch, db):
    monkeypatch.setattr(handlers, "MAX_LISTED", 2)
    ada, eve = (older(server=members, user=person(name)) for name in ("ada", "eve"))
    hers = [ada.call_tool("only", as_task=True).task_id for _ in range(3)]
    eve.call_tool("only", as_task=True)
    first = ada.request("tasks/list")
    second = ada.request("tasks/list", {"cursor": first["nextCursor"]})
    listed = [*first["tasks"], *second["tasks"]]
    assert {task["taskId"] for task in listed} == set(hers)
    assert len(listed) == len(hers)
    assert "nextCursor" not in second
    assert set(listed[0]) == MEMBERS
    assert refused(ada, "tasks/list", cursor="no-cursor").code == INVALID_PARAMS
    assert refused(eve, "tasks/list", cursor=first["nextCursor"]).code == INVALID_PARAMS


def test_a_task_of_a_hidden_tool_is_listed_by_no_former_name(db):
    server, ada = MCPServer("renaming"), person("ada", is_staff=True)
    server.tool("old", task="optional")(lambda: "x")
    client = older(server=server, user=ada)
    made = client.call_tool("old", as_task=True).task_id
    (known,) = server.tools.values()
    server.unregister(known)
    server.tool("new", aliases=["old"], task="optional", permission=IsStaff)(lambda: "x")
    assert [task["taskId"] for task in client.request("tasks/list")["tasks"]] == [made]
    ada.is_staff = False
    ada.save()
    assert client.request("tasks/list")["tasks"] == []
    assert refused(client, "tasks/get", taskId=made).code == INVALID_PARAMS


@spec("TKD-9")
def test_where_everybody_may_come_in_nothing_is_listed(client):
    assert refused(client, "tasks/list").code == METHOD_NOT_FOUND


@spec("TKE-13")
def test_a_task_is_one_for_both_revisions(client):
    newer = MCPClient(server=everybody)
    task_id = client.call_tool("ask_name", as_task=True).task_id
    assert newer.get_task(task_id)["inputRequests"].keys() == {"who"}
    assert newer.task_result(task_id, answers=[{"name": "Ada"}]).text == "Hello Ada."
    assert client.task_result(task_id).text == "Hello Ada."


# Awaited ----------------------------------------------------------------------------------------


@spec("TKD-4")
def test_the_result_is_waited_for(remote):
    created = remote.call_tool("held", as_task=True)
    assert gate.reached.wait(wire_site.PATIENCE)
    assert remote.get_task(created.task_id)["status"] == "working"
    gate.opened.set()
    assert remote.task_result(created).text == "passed, wanted"


@spec("TKD-5")
def test_whoever_waits_for_a_canceled_task_is_told(remote):
    created = remote.call_tool("held", as_task=True)
    assert gate.reached.wait(wire_site.PATIENCE)
    assert remote.cancel_task(created.task_id)["status"] == "cancelled"
    gate.opened.set()
    with pytest.raises(ErrorResponse, match="cancelled"):
        remote.task_result(created)
    assert remote.get_task(created.task_id)["status"] == "cancelled"


def test_whoever_loses_the_tool_while_he_waits_hears_no_result(transactional_db, monkeypatch):
    gate.close()
    ada, is_waiting, wait = (
        person("ada", is_superuser=True),
        Event(),
        client_requests._TaskResultStream.wait,
    )

    def waits(waiting: Any) -> Any:
        is_waiting.set()
        return wait(waiting)

    monkeypatch.setattr(client_requests._TaskResultStream, "wait", waits)
    with (
        older(server=members, user=ada, transport="http") as client,
        ThreadPoolExecutor(1) as waiter,
    ):
        created = client.call_tool("staff_held", as_task=True)
        result = waiter.submit(client.task_result, created)
        assert is_waiting.wait(wire_site.PATIENCE)
        type(ada).objects.update(is_superuser=False)
        gate.opened.set()
        with pytest.raises(ErrorResponse, match="no longer exists"):
            result.result()


@spec("TKD-8", "TKD-10")
@pytest.mark.parametrize("transport", ["memory", "http", "stdio"])
def test_questions_travel_on_the_stream_that_awaits(transport, transactional_db):
    heard: list[dict[str, Any]] = []
    with older(transport=transport) as client:
        created = client.call_tool("ask_two", as_task=True)
        reply = client._answer

        def answer(questions: Any) -> Any:
            heard.extend(questions.values())
            return reply(questions)

        client._client._answer = answer
        result = client.task_result(created, answers=[{"name": "Ada"}, {"sure": True}])
    assert result.text == "Ada is sure."
    assert len(heard) == 2
    assert {question["method"] for question in heard} == {"elicitation/create"}
    if transport != "memory":
        related = [question["params"]["_meta"][RELATED_TASK] for question in heard]
        assert related == [{"taskId": created.task_id}] * 2


@spec("CAN-6")
async def test_leaving_the_wait_leaves_the_task(transactional_db):
    gate.close()
    async with older(transport="stdio") as client:
        created = await client.acall_tool("held", as_task=True)
        waiting = asyncio.ensure_future(
            client.arequest("tasks/result", {"taskId": created.task_id})
        )
        await sync_to_async(gate.reached.wait)(wire_site.PATIENCE)
        waiting.cancel()
        await asyncio.wait([waiting])
        task = await client.arequest("tasks/get", {"taskId": created.task_id})
        gate.opened.set()
        assert task["status"] == "working"
        assert (await client.atask_result(created)).text == "passed, wanted"


@spec("TKD-11")
def test_the_client_is_not_asked_to_make_a_task_of_a_question(transactional_db):
    hosting = {"tasks": {"requests": {"elicitation": {"create": {}}}}, "elicitation": {}}
    heard: list[dict[str, Any]] = []
    with older(transport="http", capabilities=hosting) as client:
        created = client.call_tool("ask_name", as_task=True)
        client._client._answer = lambda questions: heard.extend(questions.values())
        client.task_result(created)
    (question,) = heard
    assert "task" not in question["params"]


@spec("PRG-4", "TKD-8")
def test_a_task_that_reports_progress_sends_none(remote):
    created = remote.call_tool("held", as_task=True)
    assert gate.reached.wait(wire_site.PATIENCE)
    gate.opened.set()
    remote.task_result(created)
    assert {message["method"] for message in remote._recorder.messages} <= {
        "notifications/tasks/status"
    }
