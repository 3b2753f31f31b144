"""The limits of a call apply to its thread only during the call; the next call finds no trace."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import SyncToAsync, sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, connections
from django.test import override_settings

from mcp_django import Context, MCPServer
from mcp_django.exceptions import MCPError
from mcp_django.execution import invoke, thread_sensitive, threads
from mcp_django.execution.call import Call
from mcp_django.execution.threads import BoundedPool
from mcp_django.test import MCPClient
from tests.execution.query_limits.reading import (
    SLOW,
    count_names,
    fetch,
    groups,
    names,
    reader,
    still_writes,
    write_name,
)
from tests.kit.drivers import PATIENCE, message
from tests.kit.servers import open_to_all, real_client


async def write_later() -> str:
    """Read, and then write a row from an event loop."""
    await Group.objects.acount()
    await Group.objects.acreate(name="written")
    return "written"


async def write_in_portions() -> AsyncIterator[str]:
    """Yield from a loop, and write meanwhile."""
    async for group in Group.objects.all():
        yield group.name
    await Group.objects.acreate(name="written")


async def read_rows() -> list[str]:
    """Read more than some may."""
    return [group.name async for group in Group.objects.all()]


async def read_long() -> list[Any]:
    """Read for longer than anybody may."""
    return await sync_to_async(fetch)(SLOW[0])


@pytest.fixture(autouse=True)
def _close():
    """Close connections afterwards, because a database with open connections cannot be dropped."""
    yield
    SyncToAsync.single_thread_executor.submit(connections.close_all).result(PATIENCE)


@pytest.fixture
def thread(monkeypatch):
    """A pool of one tool thread, which keeps its connection between calls."""
    pool = BoundedPool("governed", threads=1, queue=8, queue_seconds=PATIENCE)
    for module in (threads, invoke, thread_sensitive):
        monkeypatch.setattr(module, "get_pool", lambda name: pool)
    monkeypatch.setitem(connections["default"].settings_dict, "CONN_MAX_AGE", None)
    yield pool
    pool.submit(connections.close_all).result(PATIENCE)


def opened(server: MCPServer, name: str) -> Call:
    """Return an authorized call of a tool that has not run yet."""
    client = MCPClient(server=server)
    call = client._client.open(message("tools/call", {"name": name, "arguments": {}}))
    assert isinstance(call, Call)
    return call


async def run(server: MCPServer, name: str) -> str:
    """Run a tool from the event loop, and return the text of its result."""
    invocation = await sync_to_async(opened)(server, name)
    async with asyncio.timeout(PATIENCE):
        result = await invoke.run_from_event_loop(invocation)
    return str(result["content"][0]["text"])


@pytest.mark.django_db(transaction=True)
@override_settings(MCP_DJANGO={"LIMITS": {"rows": 20, "seconds": 0.05}})
async def test_every_end_of_a_call_leaves_its_thread_as_it_was(thread):
    await sync_to_async(groups)(21)
    server = open_to_all()
    for function in (write_name, write_later, write_in_portions, read_rows, read_long, count_names):
        server.tool(read_only=True)(function)
    server.tool("write", enforce=False)(write_name)
    answers = {
        "write_name": "may only read",
        "write_later": "may only read",
        "write_in_portions": "read more than 20 rows",
        "read_rows": "read more than 20 rows",
        "read_long": "seconds of database time",
        "count_names": "21",
    }
    for name, part in answers.items():
        assert part in await run(server, name)
        assert await asyncio.wrap_future(thread.submit(still_writes))
        assert await run(server, "write") == "written"
        await Group.objects.filter(name="written").adelete()


@pytest.mark.django_db(transaction=True)
async def test_an_async_generator_is_governed_while_it_runs(thread):
    assert "may only read" in await run(reader(write_in_portions), "write_in_portions")
    assert await asyncio.wrap_future(thread.submit(still_writes))


@pytest.mark.django_db(transaction=True)
async def test_a_cancelled_call_leaves_its_thread_as_it_was(thread):
    server, reads = open_to_all(), asyncio.Event()

    @server.tool(read_only=True)
    async def wait() -> str:
        await Group.objects.acount()
        reads.set()
        await asyncio.Event().wait()
        return "never"

    invocation = await sync_to_async(opened)(server, "wait")
    running = asyncio.ensure_future(invoke.run_from_event_loop(invocation))
    async with asyncio.timeout(PATIENCE):
        await reads.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.wrap_future(thread.submit(still_writes))


@pytest.mark.django_db(transaction=True)
async def test_a_call_that_runs_out_of_time_does_too(thread):
    server = open_to_all()

    @server.tool(read_only=True, timeout=0.2)
    async def wait() -> str:
        await Group.objects.acount()
        await asyncio.Event().wait()
        return "never"

    assert "took longer than 0.2 seconds" in await run(server, "wait")
    assert await asyncio.wrap_future(thread.submit(still_writes))


@pytest.mark.django_db(transaction=True)
async def test_a_synchronous_call_that_nobody_waits_for_any_more_is_still_governed(thread):
    server, goes_on, ended = open_to_all(), threading.Event(), threading.Event()

    @server.tool(read_only=True, timeout=0.2)
    def stay() -> str:
        count_names()
        goes_on.wait(PATIENCE)
        try:
            return write_name()
        finally:
            ended.set()

    assert "took longer than 0.2 seconds" in await run(server, "stay")
    goes_on.set()
    assert await asyncio.to_thread(ended.wait, PATIENCE)
    assert await asyncio.wrap_future(thread.submit(still_writes))


@pytest.mark.django_db(transaction=True)
async def test_an_async_tool_reads_a_resource_within_its_own_limits(thread):
    server = open_to_all()
    server.resource("x://writes")(write_later)
    server.resource("x://counts", read_only=True)(count_names)

    @server.tool(read_only=True)
    async def work(ctx: Context) -> str:
        contents = await ctx.aread_resource("x://counts")
        try:
            await ctx.aread_resource("x://writes")
        except MCPError as exc:
            return f"{contents[0].content} {exc}"
        return "written"

    answer = await run(server, "work")
    assert answer.startswith("0 ")
    assert "may only read" in answer
    assert await asyncio.wrap_future(thread.submit(still_writes))


@pytest.mark.django_db(transaction=True)
async def test_the_test_client_governs_calls_that_share_a_thread():
    server = reader(write_later)
    server.tool("write")(write_later)
    client = real_client(server=server)
    assert (await client.acall_tool("write_later", check=False)).is_error
    both = await asyncio.gather(*(client.acall_tool("write_later", check=False) for _ in range(3)))
    assert all(result.is_error for result in both)
    assert await sync_to_async(still_writes)()
    assert (await client.acall_tool("write")).text == "written"
    assert await sync_to_async(names)() == {"written"}


@pytest.mark.django_db(transaction=True)
def test_an_async_tool_of_a_synchronous_mount_is_governed():
    client = real_client(server=reader(write_later))
    assert client.call_tool("write_later", check=False).is_error
    assert connection.execute_wrappers == []
    assert still_writes()


async def test_an_async_function_without_a_database_takes_no_thread(thread):
    async def plain() -> str:
        return "plain"

    invocation = opened(reader(plain), "plain")
    thread.submit = None
    try:
        result = await invoke.run_from_event_loop(invocation)
    finally:
        del thread.submit
    assert result["content"][0]["text"] == "plain"
