"""Progress and log messages of a component that runs again reach the client only once."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django import Context, MCPServer
from mcp_django.protocol import envelope
from mcp_django.test import MCPClient
from mcp_django.testing.answers import build_answers
from tests.kit.servers import open_to_all
from tests.spec import spec

TOKEN, LEVEL = {envelope.PROGRESS_TOKEN: "t"}, {envelope.LOG_LEVEL: "info"}
NOTHING = {envelope.PROGRESS_TOKEN: None, envelope.LOG_LEVEL: None}


def talking() -> MCPServer:
    """Return a server with sync and async tools that report and log around two questions."""
    server = open_to_all()

    def step(ctx: Context, n: int) -> None:
        ctx.report_progress(n, 3)
        ctx.log("warning", f"step {n}")
        ctx.log("debug", f"detail {n}")

    @server.tool(atomic=False)
    def talk(ctx: Context) -> str:
        step(ctx, 1)
        first = ctx.elicit("A?", str)
        step(ctx, 2)
        second = ctx.elicit("B?", str)
        step(ctx, 3)
        return first + second

    @server.tool
    async def talk_later(ctx: Context) -> str:
        step(ctx, 1)
        first = await ctx.aelicit("A?", str)
        step(ctx, 2)
        second = await ctx.aelicit("B?", str)
        step(ctx, 3)
        return f"{first}{second}"

    return server


def answered(raw: dict[str, Any]) -> dict[str, Any]:
    given = build_answers(raw["inputRequests"], ["x"])
    return {"inputResponses": given, "requestState": raw["requestState"]}


def rounds(*envelopes: dict[str, Any], name: str = "talk") -> list[tuple[list[Any], list[Any]]]:
    """Return the messages of each round of a call, each of which has an envelope of its own."""
    client = MCPClient(server=talking())
    deliveries, retry = [], {}
    for sent in envelopes:
        params = {"name": name, **retry, "_meta": {**NOTHING, **sent}}
        raw = client.request("tools/call", params)
        result = client._call_result(raw)
        deliveries.append(
            (
                [notification["progress"] for notification in result.progress],
                [notification["data"] for notification in result.logs],
            )
        )
        if raw["resultType"] == "input_required":
            retry = answered(raw)
    return deliveries


@spec("PRG-2", "MRT-13")
@pytest.mark.parametrize("name", ["talk", "talk_later"])
def test_each_message_is_delivered_in_the_round_that_says_it_first(name):
    both = {**TOKEN, **LEVEL}
    assert rounds(both, both, both, name=name) == [
        ([1], ["step 1"]),
        ([2], ["step 2"]),
        ([3], ["step 3"]),
    ]
    result = MCPClient(server=talking()).call_tool(name, answers=["a", "b"])
    assert [notification["progress"] for notification in result.progress] == [1, 2, 3]
    assert [
        notification["data"] for notification in result.logs if notification["level"] == "warning"
    ] == [*("step 1", "step 2", "step 3")]


@spec("PRG-1", "LOG-4")
@pytest.mark.parametrize(
    ("listening", "progress"),
    [
        ([True, True, False], [[1], [2], []]),
        ([True, False, True], [[1], [], [2, 3]]),
        ([False, True, True], [[], [1, 2], [3]]),
        ([False, False, True], [[], [], [1, 2, 3]]),
        ([False, False, False], [[], [], []]),
    ],
)
def test_a_round_that_does_not_listen_leaves_its_messages_to_the_next(listening, progress):
    deliveries = rounds(*(TOKEN if listens else {} for listens in listening))
    assert deliveries == [(steps, []) for steps in progress]
    deliveries = rounds(*(LEVEL if listens else {} for listens in listening))
    assert deliveries == [([], [f"step {n}" for n in steps]) for steps in progress]


def test_a_round_that_is_sent_twice_says_the_same_twice():
    client = MCPClient(server=talking())
    first = client.request("tools/call", {"name": "talk"})
    params = {"name": "talk", **answered(first)}
    results = [client._call_result(client.request("tools/call", params)) for _ in range(2)]
    assert [
        [notification["progress"] for notification in result.progress] for result in results
    ] == [[2], [2]]
