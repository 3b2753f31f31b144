"""A client that disconnects, never answers or answers twice uses no resources (MRT-9)."""

from __future__ import annotations

import asyncio
import logging
import threading
from types import ModuleType

import pytest
from django.urls import path

from mcp_django import Context, MCPServer
from mcp_django.execution.threads import get_pool
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES, PROGRESS_TOKEN
from tests.components.questions.site import EVERYTHING, accept, call
from tests.kit.drivers import connect, message, send
from tests.kit.servers import open_to_all
from tests.sites.example.asgi import application
from tests.spec import spec

PATIENCE = 5


@pytest.fixture
def serve(settings):
    """A function that serves a server with the fast ASGI handler."""

    def serve(server: MCPServer) -> None:
        urls = ModuleType("urls")
        urls.urlpatterns = [path("mcp", server.urls)]
        settings.ROOT_URLCONF = urls

    return serve


@spec("ASK-5", "MRT-9")
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_client_that_leaves_before_it_is_asked_is_not_missed(serve, is_async, caplog):
    server = open_to_all()
    gate, ended = threading.Event(), threading.Event()

    def tool(ctx: Context) -> str:
        ctx.report_progress(1)
        try:
            gate.wait(PATIENCE)
            return str(ctx.elicit("A?"))
        finally:
            ended.set()

    async def later(ctx: Context) -> str:
        return await asyncio.to_thread(tool, ctx)

    server.tool("tool", atomic=False)(later if is_async else tool)
    serve(server)
    envelope = {CLIENT_CAPABILITIES: EVERYTHING, PROGRESS_TOKEN: "t"}
    body = message("tools/call", {"name": "tool"}, **envelope)
    with caplog.at_level(logging.WARNING):
        async with connect(application, "/mcp", body) as connection:
            assert (await connection.event())["method"] == "notifications/progress"
        gate.set()
        assert await asyncio.to_thread(ended.wait, PATIENCE)
        # For the next caller the threads are free, and the server is unchanged.
        answer = await send(application, "/mcp", call(name="tool"))
    assert answer.response()["result"]["resultType"] == "input_required"
    assert not [record for record in caplog.records if record.name == "mcp_django"]


@spec("MRT-9")
async def test_a_question_without_an_answer_holds_no_thread(serve):
    server = open_to_all()
    server.tool("ask", atomic=False)(ask)
    serve(server)
    for _ in range(50):
        answer = await send(application, "/mcp", call(name="ask"))
        assert answer.json()["result"]["resultType"] == "input_required"
    async with asyncio.timeout(PATIENCE):
        assert await get_pool("tool").run(lambda: "free") == "free"


def ask(ctx: Context) -> str:
    return ctx.elicit("A?", str, key="a")


@spec("ASK-5", "MRT-7")
async def test_an_answer_that_is_posted_twice_is_answered_twice(serve):
    server = open_to_all()
    server.tool("ask", atomic=False)(ask)
    serve(server)
    result = (await send(application, "/mcp", call(name="ask"))).json()["result"]
    retry = {"inputResponses": {"a": accept("b")}, "requestState": result["requestState"]}
    bodies = [call(name="ask", **retry) for _ in range(2)]
    answers = await asyncio.gather(*(send(application, "/mcp", body) for body in bodies))
    assert [answer.json()["result"]["content"][0]["text"] for answer in answers] == ["b", "b"]
