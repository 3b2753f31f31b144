"""Tasks on listen streams, over every mount, and on mounts without streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django.auth.limits import ANONYMOUS
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES, SUBSCRIPTION_ID
from mcp_django.protocol.errors import (
    INVALID_REQUEST,
    MISSING_CAPABILITY,
    TASKS,
    extension_declaration,
)
from mcp_django.tasks import handlers
from mcp_django.test import MCPClient
from tests.kit.drivers import Connection, connect, message, send
from tests.kit.servers import person
from tests.spec import spec
from tests.tasks import wire_site
from tests.tasks.wire_site import everybody, gate, members

pytestmark = pytest.mark.django_db(transaction=True)

DECLARED = {CLIENT_CAPABILITIES: {"elicitation": {}, **extension_declaration(TASKS)}}
SUBSCRIPTION = 7


async def called(tool: str) -> str:
    """Call a tool, and return the id of its task."""
    body = message("tools/call", {"name": tool, "arguments": {}}, **DECLARED)
    answer = await send(everybody.asgi, "/mcp", body)
    task_id: str = answer.response()["result"]["taskId"]
    return task_id


async def updated(task_id: str, **answers: Any) -> None:
    params = {"taskId": task_id, "inputResponses": answers}
    body = message("tasks/update", params, **DECLARED)
    assert (await send(everybody.asgi, "/mcp", body, mcp_name=task_id)).status == 200


@asynccontextmanager
async def listening(*task_ids: str) -> AsyncIterator[Connection]:
    body = message(
        "subscriptions/listen",
        {"notifications": {"taskIds": list(task_ids)}},
        id=SUBSCRIPTION,
        **DECLARED,
    )
    async with connect(everybody.asgi, "/mcp", body) as connection:
        connection.acknowledged = (await connection.event())["params"]
        yield connection


async def task_notification(connection: Connection, status: str) -> dict[str, Any]:
    """Return the first notification that reports a task with this status."""
    while True:
        event = await connection.event()
        assert event["method"] == "notifications/tasks"
        assert event["params"]["_meta"] == {SUBSCRIPTION_ID: SUBSCRIPTION}
        if event["params"]["status"] == status:
            params: dict[str, Any] = event["params"]
            return params


@spec("TKE-11", "SUB-7", "SUB-8", "PRG-4")
async def test_each_change_is_told_as_a_whole():
    gate.close()
    task_id = await called("held")
    async with listening(task_id, "no-such-task") as connection:
        assert connection.acknowledged["notifications"] == {"taskIds": [task_id]}
        gate.opened.set()
        done = await task_notification(connection, "completed")
    assert done["result"]["content"] == [{"type": "text", "text": "passed, wanted"}]
    assert done["result"]["resultType"] == "complete"
    assert "resultType" not in done
    del done["_meta"]
    body = message("tasks/get", {"taskId": task_id}, **DECLARED)
    got = (await send(everybody.asgi, "/mcp", body, mcp_name=task_id)).json()["result"]
    assert done == {key: got[key] for key in got if key not in ("_meta", "resultType")}


@spec("TKE-11", "TKE-7")
async def test_a_question_is_told_and_its_answer_taken():
    task_id = await called("ask_name")
    async with listening(task_id) as connection:
        asking = await task_notification(connection, "input_required")
        (key,) = asking["inputRequests"]
        await updated(task_id, **{key: {"action": "accept", "content": {"name": "Ada"}}})
        done = await task_notification(connection, "completed")
    assert done["result"]["content"][0]["text"] == "Hello Ada."


@spec("TKE-11")
async def test_what_is_over_is_told_to_whoever_comes_late():
    task_id = await called("fail")
    async with listening(task_id) as connection:
        assert (await task_notification(connection, "completed"))["result"]["isError"] is True


@spec("SUB-17")
async def test_asking_for_tasks_needs_the_extension():
    body = message("subscriptions/listen", {"notifications": {"taskIds": ["x"]}})
    answer = await send(everybody.asgi, "/mcp", body)
    error = answer.json()["error"]
    assert (answer.status, error["code"]) == (400, MISSING_CAPABILITY)
    assert error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


@spec("SUB-8", "TKE-10")
async def test_the_tasks_of_others_are_not_acknowledged():
    ada = await sync_to_async(person)("ada")
    theirs = await MCPClient(server=members, user=ada).acall_tool("only", as_task=True)
    mine = await called("fail")
    async with listening(theirs.task_id, mine) as connection:
        assert connection.acknowledged["notifications"] == {"taskIds": [mine]}


async def test_the_test_client_listens():
    async with MCPClient(server=everybody, transport="http") as client:
        created = await client.acall_tool("ask_name", as_task=True)
        async with client.listen(tasks=[created.task_id]) as notifications:
            assert (await anext(notifications))["params"]["notifications"]["taskIds"]
            while (await anext(notifications))["params"]["status"] != "input_required":
                pass
        result = await client.atask_result(created, answers=[{"name": "Ada"}])
    assert result.text == "Hello Ada."


# Without a stream -------------------------------------------------------------------------------


@spec("TKD-4", "TKD-10")
async def test_a_client_that_takes_json_alone_waits_for_a_while(monkeypatch):
    monkeypatch.setattr(handlers, "WAIT_SECONDS", 0)
    gate.close()

    async def post(method: str, params: Any, **headers: str) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        given = {"accept": "application/json", "mcp_protocol_version": None, "mcp_name": None}
        return await send(everybody.asgi, "/mcp", body, **{**given, "mcp_method": None, **headers})

    opening = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "test", "version": "1"},
    }
    session = (await post("initialize", opening)).headers["mcp-session-id"]

    async def request(method: str, **params: Any) -> Any:
        return (await post(method, params, mcp_session_id=session)).json()

    called = await request("tools/call", name="held", arguments={}, task={})
    task_id = called["result"]["task"]["taskId"]
    error = (await request("tasks/result", taskId=task_id))["error"]
    assert error["code"] == INVALID_REQUEST
    assert "still working" in error["message"]
    # All places are taken, or another anonymous request waits: this request does not wait.
    for waiting in ({"user:1", "user:2"}, {ANONYMOUS}):
        with monkeypatch.context() as many:
            many.setattr(handlers, "_waiting", waiting)
            many.setattr(handlers, "wait_for_task", None)
            assert (await request("tasks/result", taskId=task_id))["error"] == error
    # A waiting request of another caller leaves a place for anonymous callers.
    monkeypatch.setattr(handlers, "_waiting", {"user:1"})
    gate.opened.set()
    monkeypatch.setattr(handlers, "WAIT_SECONDS", wire_site.PATIENCE)
    result = (await request("tasks/result", taskId=task_id))["result"]
    assert result["content"][0]["text"] == "passed, wanted"
    assert handlers._waiting == {"user:1"}
    asking = await request("tools/call", name="ask_name", arguments={}, task={})
    error = (await request("tasks/result", taskId=asking["result"]["task"]["taskId"]))["error"]
    assert "text/event-stream" in error["message"]
