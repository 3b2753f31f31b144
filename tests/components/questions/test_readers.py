"""Resources and prompts can ask, also when a tool reads them; other functions cannot."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django import Context, ElicitationDeclined, MCPServer
from mcp_django.exceptions import ElicitationUnavailable
from mcp_django.test import CANCEL, DECLINE, ErrorResponse, MCPClient
from tests.components.questions.site import accept, call, messages, post, result_of
from tests.kit.drivers import message
from tests.kit.servers import open_to_all, real_client
from tests.spec import spec

ASKED = "Which part of {}?"


def reading() -> MCPServer:
    """Return a server with resources that ask, and tools that read them, both sync and async."""
    server = open_to_all()

    @server.resource("sync://{name}", atomic=False)
    def part(ctx: Context, name: str) -> str:
        return name + ctx.elicit(ASKED.format(name), str)

    @server.resource("async://{name}")
    async def part_later(ctx: Context, name: str) -> str:
        return name + await ctx.aelicit(ASKED.format(name), str)

    @server.tool
    def read(ctx: Context, uris: list[str]) -> str:
        return " ".join(str(part.content) for uri in uris for part in ctx.read_resource(uri))

    @server.tool
    async def read_later(ctx: Context, uris: list[str]) -> str:
        parts = [part for uri in uris for part in await ctx.aread_resource(uri)]
        return " ".join(str(part.content) for part in parts)

    @server.prompt(atomic=False)
    def brief(ctx: Context, topic: str) -> str:
        return topic + ctx.elicit("Which tone?", str)

    return server


@spec("RSC-10", "MRT-1", "MRT-14")
@pytest.mark.parametrize("uri", ["sync://a", "async://a"])
def test_a_resource_asks_and_a_refusal_is_an_error(uri):
    client = MCPClient(server=reading())
    assert client.read_resource(uri, answers=["b"])[0]["text"] == "ab"
    with pytest.raises(ErrorResponse, match="The user declined to answer") as caught:
        client.read_resource(uri, answers=[DECLINE])
    assert caught.value.code == -32602


@spec("PRM-6", "MRT-1", "MRT-14")
async def test_a_prompt_asks_and_a_refusal_is_an_error():
    client = MCPClient(server=reading())
    (prompt_message,) = await client.aget_prompt("brief", {"topic": "x"}, answers=["y"])
    assert prompt_message["content"]["text"] == "xy"
    with pytest.raises(ErrorResponse, match="The user dismissed the question"):
        await client.aget_prompt("brief", {"topic": "x"}, answers=[CANCEL])


@spec("CCH-2", "MRT-11", "PRM-6", "RSC-10")
def test_neither_a_question_nor_what_it_led_to_may_be_cached():
    server = open_to_all()

    @server.resource("x://x", atomic=False, cache_ttl=timedelta(minutes=1), cache_public=True)
    def part(ctx: Context) -> str:
        return ctx.elicit("Which part?", str, key="part") if ctx.supports("elicitation") else "all"

    whole = result_of(server, message("resources/read", {"uri": "x://x"}))
    assert (whole["ttlMs"], whole["cacheScope"]) == (60_000, "public")
    result = result_of(server, call("resources/read", uri="x://x"))
    assert {"ttlMs", "cacheScope"}.isdisjoint(result)
    assert result["_meta"] == whole["_meta"]
    given = {"inputResponses": {"part": accept("b")}}
    for more in (given, {**given, "requestState": result["requestState"]}):
        answered = result_of(server, call("resources/read", uri="x://x", **more))
        assert answered["contents"][0]["text"] == "b"
        assert (answered["ttlMs"], answered["cacheScope"]) == (0, "private")
    prompt = result_of(reading(), call("prompts/get", name="brief", arguments={"topic": "x"}))
    assert {"ttlMs", "cacheScope"}.isdisjoint(prompt)


# A resource that is read by another component --------------------------------------------------


@spec("RSC-10", "MRT-13")
@pytest.mark.parametrize("tool", ["read", "read_later"])
def test_a_tool_asks_what_the_resources_ask_that_it_reads(tool):
    client = MCPClient(server=reading())
    arguments = {"uris": ["sync://a", "async://b", "sync://c"]}
    assert messages(client.call_tool(tool, arguments)) == ["Which part of a?"]
    result = client.call_tool(tool, arguments, answers=["1", "2", "3"])
    assert result.text == "a1 b2 c3"


@spec("RSC-10", "MRT-13")
@pytest.mark.parametrize("tool", ["read", "read_later"])
async def test_so_it_does_on_an_event_loop(tool):
    client = MCPClient(server=reading())
    arguments = {"uris": ["async://a", "sync://b"]}
    result = await client.acall_tool(tool, arguments, answers=["1", "2"])
    assert result.text == "a1 b2"


def test_questions_of_tool_and_resource_are_numbered_together():
    server = reading()

    @server.tool(atomic=False)
    def both(ctx: Context) -> str:
        before = ctx.elicit("Before?", str)
        (inside,) = ctx.read_resource("sync://a")
        return f"{before} {inside.content} {ctx.elicit('After?', str)}"

    assert MCPClient(server=server).call_tool("both", answers=["1", "2", "3"]).text == "1 a2 3"


@spec("MRT-14")
@pytest.mark.parametrize("uri", ["sync://a", "async://a"])
def test_a_refusal_within_a_resource_reaches_the_tool_as_such(uri):
    server = reading()

    @server.tool
    def careful(ctx: Context) -> str:
        try:
            return str(ctx.read_resource(uri))
        except ElicitationDeclined as exc:
            return f"action={exc.action}"

    client = real_client(server=server)
    assert client.call_tool("careful", answers=[CANCEL]).text == "action=cancel"
    result = client.call_tool("read", {"uris": [uri]}, answers=[DECLINE], check=False)
    assert (result.is_error, result.text) == (True, "The user declined to answer.")


@pytest.mark.parametrize("uri", ["sync://a", "async://a"])
def test_a_resource_that_swallows_its_question_is_asked_for_it_all_the_same(uri):
    server = open_to_all()

    def swallow(ctx: Context, name: str) -> str:
        try:
            return name + ctx.elicit("Which part?", str)
        except BaseException:  # noqa: BLE001 - what a careless function does
            return "whole"

    async def swallow_later(ctx: Context, name: str) -> str:
        return swallow(ctx, name)

    server.resource("sync://{name}", atomic=False)(swallow)
    server.resource("async://{name}")(swallow_later)

    @server.tool
    def read(ctx: Context) -> str:
        return str(ctx.read_resource(uri)[0].content)

    client = MCPClient(server=server)
    assert messages(client.call_tool("read")) == ["Which part?"]
    assert client.call_tool("read", answers=["b"]).text == "ab"


# What cannot ask ------------------------------------------------------------------------------


@pytest.mark.django_db
@spec("MRT-1", "ASK-2", "ERR-1")
def test_a_completion_that_asks_has_no_suggestions(caplog):
    server = reading()
    seen: list[Any] = []

    @server.completion("brief", "topic")
    def topics(ctx: Context, value: str) -> list[str]:
        seen.append((ctx.supports("elicitation"), ctx.interaction_id))
        return [ctx.elicit("Which?", str)]

    body = call(
        "completion/complete",
        ref={"type": "ref/prompt", "name": "brief"},
        argument={"name": "topic", "value": "a"},
        inputResponses={"x": accept("b")},
        requestState="x",
    )
    answer = post(server, body)
    assert (answer.status, answer.json()["result"]["completion"]["values"]) == (200, [])
    assert seen == [(False, "")]
    assert "only tools, resources and prompts can send them" in caplog.text


@spec("MRT-3")
def test_a_completion_needs_nothing_of_what_its_prompt_needs():
    server = open_to_all()

    @server.prompt(needs=["elicitation"], atomic=False)
    def brief(ctx: Context, topic: str) -> str:
        return topic + ctx.elicit("Which tone?", str)

    server.completion("brief", "topic")(lambda value: [value + "!"])
    assert MCPClient(server=server, capabilities={}).complete("brief", "topic", "a") == ["a!"]


@spec("MRT-1")
@pytest.mark.parametrize(
    "method",
    [
        *("server/discover", "tools/list", "prompts/list"),
        *("resources/list", "resources/templates/list"),
    ],
)
def test_a_list_takes_no_notice_of_answers(method):
    plain = result_of(reading(), call(method))
    retried = call(method, inputResponses={"x": accept("b")}, requestState="nonsense")
    assert result_of(reading(), retried) == plain
    assert plain["resultType"] == "complete"


@spec("MRT-1", "ASK-2")
async def test_to_listen_asks_nobody():
    client = MCPClient(server=reading())
    async with client.listen(uris=["sync://a", "async://a"]) as events:
        acknowledged = await anext(events)
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"


@spec("ASK-2")
async def test_outside_of_a_call_nobody_can_be_asked():
    context = Context(server=open_to_all(), principal=None, protocol_version="2026-07-28")
    assert not context.supports("elicitation")
    with pytest.raises(ElicitationUnavailable, match="Client requests are not available here"):
        context.elicit("A?")
    with pytest.raises(ElicitationUnavailable, match="Client requests are not available here"):
        await sync_to_async(context.list_roots)()
