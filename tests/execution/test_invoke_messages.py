"""Progress, log messages, cancellation and time limits of a running call."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import Any

import pytest
from django.test import override_settings

from mcp_django import Context
from mcp_django.execution import invoke
from mcp_django.execution.call import Call
from mcp_django.protocol import envelope
from mcp_django.protocol.errors import INTERNAL_ERROR
from mcp_django.protocol.jsonrpc import Request
from mcp_django.test import CallResult, ErrorResponse
from tests.kit.servers import open_to_all, real_client
from tests.spec import spec

PATIENCE = 5


def talk(function: Any, arguments: dict[str, Any] | None = None, **envelope: Any) -> CallResult:
    """Call a tool with this envelope."""
    server = open_to_all()
    server.tool("tool")(function)
    client = real_client(server=server)
    raw = client.request(
        "tools/call", {"name": "tool", "arguments": arguments or {}, "_meta": envelope}
    )
    return client._call_result(raw)


# Progress -------------------------------------------------------------------------------------


def steps(ctx: Context) -> str:
    for value in (0, 0.5, 0.5, 0.25, 1, float("nan"), float("inf"), 2):
        ctx.report_progress(value)
    ctx.report_progress(3, 4, "almost")
    return "done"


@spec("PRG-1", "PRG-2", "PRG-5")
def test_progress_grows_and_the_rest_is_dropped():
    progress = talk(steps).progress
    assert [report["progress"] for report in progress] == [0, 0.5, 1, 2, 3]
    assert progress[-1] == {"progress": 3, "total": 4, "message": "almost"}
    assert progress[0] == {"progress": 0, "total": None, "message": None}


@spec("PRG-1")
def test_without_a_token_there_is_no_progress():
    assert talk(steps, progressToken=None).progress == []


@spec("PRG-1", "PRG-6")
@pytest.mark.parametrize("token", ["a", "", 0, 7, 2**60])
def test_the_token_comes_back_with_its_type(token):
    server = open_to_all()
    server.tool("tool")(steps)
    client = real_client(server=server)
    for _ in range(2):
        client.request("tools/call", {"name": "tool", "_meta": {envelope.PROGRESS_TOKEN: token}})
        sent = [message["params"]["progressToken"] for message in client._recorder.messages]
        assert sent == [token] * 5
        assert {type(value) for value in sent} == {type(token)}


def test_a_failed_call_has_made_progress_too():
    def fail(ctx: Context) -> str:
        ctx.report_progress(1)
        raise RuntimeError("no")

    result = talk(fail)
    assert result.is_error
    assert len(result.progress) == 1


async def test_progress_is_reported_from_a_loop():
    server = open_to_all()

    @server.tool
    async def tool(ctx: Context) -> str:
        await ctx.areport_progress(1, 2, "half")
        await ctx.alog("error", {"a": 1}, logger="x")
        return "done"

    result = await real_client(server=server).acall_tool("tool")
    assert result.progress == [{"progress": 1, "total": 2, "message": "half"}]
    assert result.logs == [{"level": "error", "data": {"a": 1}, "logger": "x"}]


# Log messages ---------------------------------------------------------------------------------


LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


def log_all(ctx: Context) -> str:
    for level in LEVELS:
        ctx.log(level, level)
    return "done"


@spec("LOG-1", "LOG-4")
@pytest.mark.parametrize("level", LEVELS)
def test_messages_of_the_level_and_above_are_sent(level):
    logs = talk(log_all, **{envelope.LOG_LEVEL: level}).logs
    assert [log["level"] for log in logs] == LEVELS[LEVELS.index(level) :]


@spec("LOG-4")
def test_without_a_level_nothing_is_sent():
    assert talk(log_all, **{envelope.LOG_LEVEL: None}).logs == []


@pytest.mark.parametrize("level", ["loud", "", "INFO"])
@pytest.mark.parametrize("envelope", [{}, {envelope.LOG_LEVEL: None}])
def test_an_unknown_level_is_a_mistake_whether_the_client_listens_or_not(level, envelope):
    def shout(ctx: Context) -> str:
        with pytest.raises(ValueError, match="not a log level; use one of debug"):
            ctx.log(level, "x")
        return "done"

    assert talk(shout, **envelope).text == "done"


@pytest.mark.parametrize("data", ["text", None, 0, [1], {"a": {"b": 1}}])
def test_a_message_holds_any_json(data):
    def log(ctx: Context) -> None:
        ctx.log("info", data, logger="shop")

    assert talk(log).logs == [{"level": "info", "data": data, "logger": "shop"}]


@spec("LOG-7")
def test_the_log_of_the_site_is_not_sent_to_the_client(caplog):
    def fail(ctx: Context) -> str:
        ctx.log("info", "public")
        logging.getLogger("shop").error("secret")
        raise RuntimeError("secret")

    result = talk(fail, **{envelope.LOG_LEVEL: "debug"})
    assert result.logs == [{"level": "info", "data": "public", "logger": None}]
    assert "secret" not in json.dumps(result.raw)
    assert "secret" in caplog.text


# Cancellation ---------------------------------------------------------------------------------


def invocation(server: Any, name: str = "tool", **arguments: Any) -> Call:
    client = real_client(server=server)
    opened = client._client.open(
        client._client.message("tools/call", {"name": name, "arguments": arguments})
    )
    assert isinstance(opened, Call)
    return opened


@spec("CAN-9")
async def test_a_synchronous_call_learns_of_its_cancellation_when_it_asks():
    server = open_to_all()
    entered, gate = threading.Event(), threading.Event()
    seen: list[bool] = []

    @server.tool
    def tool(ctx: Context) -> str:
        seen.append(ctx.cancelled)
        entered.set()
        gate.wait(PATIENCE)
        seen.append(ctx.cancelled)
        return "done"

    opened = invocation(server)
    running = asyncio.ensure_future(invoke.run_from_event_loop(opened))
    await asyncio.to_thread(entered.wait, PATIENCE)
    opened.cancellation.cancel()
    opened.cancellation.cancel()
    gate.set()
    async with asyncio.timeout(PATIENCE):
        await running
    assert seen == [False, True]


@spec("CAN-9")
async def test_an_async_call_is_interrupted():
    server = open_to_all()
    ended = asyncio.Event()

    @server.tool
    async def tool() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    running = asyncio.ensure_future(invoke.run_from_event_loop(invocation(server)))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


# Time limits ----------------------------------------------------------------------------------


async def test_an_async_tool_has_a_time_limit():
    server = open_to_all()

    @server.tool(timeout=0.01)
    async def tool(ctx: Context) -> str:
        await asyncio.Event().wait()
        return "never"

    result = await real_client(server=server).acall_tool("tool", check=False)
    assert result.is_error
    assert result.text == (
        "tool 'tool' took longer than 0.01 seconds. Ask for less, or try again later."
    )


async def test_a_synchronous_tool_is_answered_for_in_time_and_told():
    server = open_to_all()
    begun, ended = threading.Event(), threading.Event()

    @server.tool(timeout=0.01)
    def tool(ctx: Context) -> str:
        begun.set()
        waiting = threading.Event()
        while not ctx.cancelled:
            waiting.wait(0.001)
        ended.set()
        return "dropped"

    opened = invocation(server)
    async with asyncio.timeout(PATIENCE):
        result = await invoke.run_from_event_loop(opened)
    assert result["isError"]
    assert "took longer than 0.01 seconds" in result["content"][0]["text"]
    assert bool(opened.cancellation)
    # On a busy machine the time limit is reached before a thread is free, and then nothing runs.
    assert not begun.is_set() or await asyncio.to_thread(ended.wait, PATIENCE)


@override_settings(MCP_DJANGO={"CALL_TIMEOUT": 0.01})
async def test_the_setting_limits_what_has_no_limit_of_its_own():
    server = open_to_all()

    @server.tool
    async def tool() -> str:
        await asyncio.Event().wait()
        return "never"

    @server.resource("x://slow")
    async def slow() -> str:
        return await tool()

    client = real_client(server=server)
    assert (await client.acall_tool("tool", check=False)).is_error
    with pytest.raises(ErrorResponse) as caught:
        await client.aread_resource("x://slow")
    assert caught.value.code == INTERNAL_ERROR
    assert "took longer than 0.01 seconds" in caught.value.message


async def test_a_timeout_of_the_tool_itself_is_its_own_bug(caplog):
    server = open_to_all()

    @server.tool
    async def tool() -> str:
        raise TimeoutError("upstream")

    result = await real_client(server=server).acall_tool("tool", check=False)
    assert result.is_error
    assert "took longer" not in result.text
    assert "upstream" not in result.text
    assert "upstream" in caplog.text


# What the context knows -----------------------------------------------------------------------


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@spec("MET-3", "MET-4")
def test_a_valid_trace_reaches_the_tool_and_not_the_answer():
    def trace(ctx: Context) -> dict[str, str]:
        return dict(ctx.trace)

    valid = {"traceparent": TRACE, "tracestate": "a=1", "baggage": "k=v"}
    result = talk(trace, **valid)
    assert result.structured == valid
    assert set(result.raw["_meta"]) == {envelope.SERVER_INFO}


@spec("MET-4")
@pytest.mark.parametrize("parent", ["", "x", TRACE.upper(), TRACE.replace("0af7", "zzzz"), 5, None])
def test_an_invalid_trace_is_ignored(parent):
    def trace(ctx: Context) -> dict[str, str]:
        return dict(ctx.trace)

    result = talk(trace, traceparent=parent, tracestate="a=1")
    assert not result.is_error
    assert result.structured == {}


def test_requests_are_what_the_core_decodes():
    server = open_to_all()
    server.tool("tool")(lambda: "x")
    assert isinstance(invocation(server).request, Request)
