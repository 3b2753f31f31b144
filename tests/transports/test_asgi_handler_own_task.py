"""An async function runs as in a task of its own, whether it waits or not, on every mount.

asyncio and anyio store cancel scopes by task, and context variables belong to a task; the next
message of the same connection and the next member of a batch must not see those of a call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from django.contrib.auth.models import Group
from django.utils import translation

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.execution.invoke import run_stepped
from mcp_django.transports.asgi_handler import RawASGIMount
from tests.kit.drivers import connect, headers_for, message
from tests.transports.http_session.handshakes import B, call, opened
from tests.transports.stage import stage, until

HOUR = 3600
color: ContextVar[str] = ContextVar("color", default="none")


# Each function uses state that belongs to a task, and returns "right" if that works.


async def move_on() -> str:
    with anyio.move_on_after(0) as first:
        await anyio.sleep(HOUR)
    await anyio.lowlevel.checkpoint()
    with anyio.move_on_after(0) as second:
        await anyio.sleep(HOUR)
    with anyio.move_on_after(HOUR) as third:
        await anyio.lowlevel.checkpoint()
    caught = (first.cancelled_caught, second.cancelled_caught, third.cancelled_caught)
    return "right" if caught == (True, True, False) else repr(caught)


async def time_out() -> str:
    caught = 0
    for _ in range(2):
        try:
            async with asyncio.timeout(0):
                await asyncio.sleep(HOUR)
        except TimeoutError:
            caught += 1
    task = asyncio.current_task()
    assert task is not None
    return "right" if caught == 2 and not task.cancelling() else "wrong"


async def group() -> str:
    async def fail() -> None:
        raise KeyError("of a child")

    for _ in range(2):
        try:
            async with asyncio.TaskGroup() as children:
                children.create_task(fail())
                await asyncio.sleep(HOUR)
        except* KeyError:
            await asyncio.sleep(0)
    return "right"


async def variable() -> str:
    before = color.get()
    token = color.set("red")
    await asyncio.sleep(0)
    inside = color.get()
    color.reset(token)
    color.set("blue")
    return "right" if (before, inside) == ("none", "red") else repr((before, inside))


async def variable_at_once() -> str:
    before = color.get()
    color.set("green")
    return "right" if before == "none" else before


async def language() -> str:
    before = translation.get_language()
    translation.activate("de")
    return "right" if before == "en-us" else before


async def orm() -> str:
    first = await Group.objects.acount()
    await asyncio.sleep(0)
    second = await Group.objects.acount()
    return "right" if first == second else "wrong"


TOOLS = (move_on, time_out, group, variable, variable_at_once, language, orm)
NAMES = [tool.__name__ for tool in TOOLS]


@pytest.fixture(autouse=True)
def _tools():
    """Register these functions as tools of the stage."""
    functions = [stage.tool(read_only=True)(function) for function in TOOLS]
    yield
    for function in functions:
        stage.unregister(function)


async def talk(app: Any, body: dict[str, Any]) -> Any:
    """Send a request in the task of the test itself, as a server with one task would."""
    parts = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    sent: list[dict[str, Any]] = []
    answered = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if parts:
            return parts.pop()
        await answered.wait()
        return {"type": "http.disconnect"}

    async def send(part: dict[str, Any]) -> None:
        sent.append(part)
        if part["type"] == "http.response.body" and not part.get("more_body"):
            answered.set()

    headers = [(k.encode(), v.encode()) for k, v in headers_for(body).items()]
    await app(
        {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/stage/mcp",
            "raw_path": b"/stage/mcp",
            "root_path": "",
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 5000),
            "server": ("testserver", 80),
        },
        receive,
        send,
    )
    return json.loads(b"".join(part.get("body", b"") for part in sent))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", NAMES)
async def test_a_function_runs_as_in_a_task_of_its_own(name, app):
    for number in range(2):
        body = message("tools/call", {"name": name, "arguments": {}}, id=number)
        answer = await talk(app, body)
        assert answer["result"]["content"][0]["text"] == "right", number
    assert color.get() == "none"
    assert translation.get_language() == "en-us"
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


@pytest.mark.django_db(transaction=True)
async def test_members_of_a_batch_see_nothing_of_each_other(mount):
    peer = await opened(mount, "/stage/mcp", version=B)
    batch = [call(name, id=f"{name} {n}") for n in range(2) for name in NAMES]
    answer = await peer.send(batch, accept="application/json")
    texts = {response["id"]: response["result"]["content"][0]["text"] for response in answer.json()}
    assert texts == {member["id"]: "right" for member in batch}


# A coroutine that was begun is closed -------------------------------------------------------------


class Begun:
    """A coroutine function that records how it is left."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.waits = asyncio.Event()

    async def wait(self) -> str:
        """Wait for the test, between a beginning and an end."""
        self.events.append("begun")
        try:
            await self.waits.wait()
        except BaseException as exc:
            self.events.append(type(exc).__name__)
            raise
        finally:
            self.events.append("left")
        return "done"


@asynccontextmanager
async def unguarded() -> AsyncIterator[None]:
    yield


async def test_what_does_not_wait_enters_no_guard():
    begun = Begun()
    begun.waits.set()

    def guard() -> Any:
        raise AssertionError("a guard for a coroutine that does not wait")

    assert await run_stepped(begun.wait(), guard) == "done"
    assert begun.events == ["begun", "left"]


async def test_a_guard_that_fails_closes_the_coroutine():
    begun = Begun()

    def guard() -> Any:
        raise LookupError("no guard")

    # A reference of the test's own, so that garbage collection does not close it.
    coroutine = begun.wait()
    with pytest.raises(LookupError, match="no guard"):
        await run_stepped(coroutine, guard)
    assert begun.events == ["begun", "GeneratorExit", "left"]


async def test_a_task_that_is_cancelled_ends_the_coroutine():
    begun = Begun()
    task = asyncio.create_task(run_stepped(begun.wait(), unguarded))
    await until(lambda: begun.events)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert begun.events == ["begun", "CancelledError", "left"]


async def test_a_coroutine_that_is_abandoned_is_closed():
    begun = Begun()
    coroutine = begun.wait()
    stepped = run_stepped(coroutine, unguarded)
    stepped.send(None)
    stepped.close()
    assert begun.events == ["begun", "GeneratorExit", "left"]


async def test_what_another_language_implements_is_awaited():
    class Foreign:
        def __await__(self) -> Iterator[Any]:
            yield from asyncio.sleep(0).__await__()
            return "foreign"

    assert await run_stepped(Foreign(), unguarded) == "foreign"


@pytest.mark.parametrize("leaving", ["client", "server"])
async def test_leaving_closes_a_function_that_waits(leaving):
    begun = Begun()
    server = MCPServer("waiting", permission=AllowAny)
    server.tool(read_only=True, name="wait")(begun.wait)
    body = message("tools/call", {"name": "wait", "arguments": {}})
    async with connect(RawASGIMount(server), "/mcp", body) as connection:
        await until(lambda: begun.events)
        if leaving == "client":
            connection.disconnect()
        else:
            connection.task.cancel()
        await asyncio.wait([connection.task])
        assert begun.events == ["begun", "CancelledError", "left"]
        if leaving == "server":
            assert connection.task.cancelled()
            connection.task = asyncio.create_task(asyncio.sleep(0))
