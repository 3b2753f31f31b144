"""Which questions a request's capabilities permit, and the error for others (ASK-1, MRT-3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_django import Context, Elicit, ElicitURL, ListRoots, MCPServer, Sample
from mcp_django.exceptions import ElicitationUnavailable, MissingCapability
from mcp_django.protocol import envelope
from mcp_django.test import MCPClient
from tests.components.questions.site import accept, asking
from tests.kit.drivers import Answer, message
from tests.kit.servers import open_to_all
from tests.spec import spec

FORM, URL = Elicit("Form?", str, key="form"), ElicitURL("Go.", "https://example.com/", key="url")
MODEL, TOOLS = Sample("Hello", key="model"), Sample("Hello", tool_choice="none", key="tools")
ROOTS = ListRoots(key="roots")
NAMES = ["elicitation", "elicitation.url", "roots", "sampling", "sampling.tools"]
QUESTIONS = dict(zip(NAMES, [FORM, URL, ROOTS, MODEL, TOOLS], strict=True))

REQUIRED: dict[str, dict[str, Any]] = {
    "elicitation": {"elicitation": {}},
    "elicitation.url": {"elicitation": {"url": {}}},
    "roots": {"roots": {}},
    "sampling": {"sampling": {}},
    "sampling.tools": {"sampling": {"tools": {}}},
}
DECLARED: list[tuple[dict[str, Any], set[str]]] = [
    ({}, set()),
    ({"elicitation": {}}, {"elicitation"}),
    ({"elicitation": {"form": {}}}, {"elicitation"}),
    ({"elicitation": {"url": {}}}, {"elicitation.url"}),
    ({"elicitation": {"form": {}, "url": {}}}, {"elicitation", "elicitation.url"}),
    ({"elicitation": {"form": {"more": 1}, "more": 1}}, {"elicitation"}),
    ({"elicitation": {"voice": {}}}, set()),
    ({"sampling": {}}, {"sampling"}),
    ({"sampling": {"tools": {}}}, {"sampling", "sampling.tools"}),
    ({"sampling": {"context": {}}}, {"sampling"}),
    ({"roots": {}}, {"roots"}),
    ({"roots": {"listChanged": True}}, {"roots"}),
    ({"tools": {}, "extensions": {}, "experimental": {"elicitation": {}}}, set()),
    *[({name: odd}, set()) for name in REQUIRED for odd in (None, True, 1, "x", [], [{}])],
    ({"elicitation": {"form": True, "url": True}}, set()),
    ({"elicitation": {"url": None}}, set()),
    ({"sampling": {"tools": True}}, {"sampling"}),
]


def asks(runs: list[str]) -> MCPServer:
    """Return a server with a tool for each kind of question, and one that lists those supported."""
    server = open_to_all()
    for name, question in QUESTIONS.items():
        function = _asking(question, runs)
        server.tool(name)(function)
        server.tool(f"{name}-first", needs=[name])(function)

    @server.tool
    async def whatever(ctx: Context) -> list[str]:
        """Say what can be asked."""
        return [name for name in NAMES if ctx.supports(name)]

    return server


@pytest.fixture(scope="module")
def asking_all():
    """The same server for all cases, none of which changes it."""
    return asks([])


def _asking(question: Any, runs: list[str]) -> Any:
    async def tool(ctx: Context) -> str:
        runs.append("begun")
        await ctx.areport_progress(1)
        return str(await ctx.aask(question))

    return tool


def request(name: str, capabilities: Any, **extra: Any) -> dict[str, Any]:
    return message(
        "tools/call", {"name": name}, **{envelope.CLIENT_CAPABILITIES: capabilities, **extra}
    )


def lacking(answer: Answer) -> dict[str, Any]:
    """Return the error object of a rejection, which must be a JSON response with HTTP 400."""
    assert (answer.status, answer.is_stream) == (400, False)
    response: dict[str, Any] = answer.json()
    assert response["id"] == 1
    error: dict[str, Any] = response["error"]
    return error


@spec("ASK-1", "MRT-3")
@pytest.mark.parametrize(
    ("declared", "askable"), DECLARED, ids=[json.dumps(d) for d, _ in DECLARED]
)
def test_only_what_is_declared_is_asked_for(declared, askable, asking_all):
    client = MCPClient(server=asking_all, capabilities=declared)
    assert set(client.call_tool("whatever").structured) == askable
    for name in NAMES:
        for tool in (name, f"{name}-first"):
            if name in askable:
                assert len(client.call_tool(tool).questions) == 1
                continue
            with pytest.raises(Exception, match="needs a client that declares") as caught:
                client.call_tool(tool)
            assert vars(caught.value)["code"] == -32021


@spec("MRT-3", "ERR-1", "ERR-3")
@pytest.mark.parametrize("name", NAMES)
async def test_the_error_says_what_to_declare(ask, name):
    runs: list[str] = []
    server = asks(runs)
    assert lacking(await ask(server, request(name, {}))) == {
        "code": -32021,
        "message": f"tool {name!r} needs a client that declares {name}.",
        "data": {"requiredCapabilities": REQUIRED[name]},
    }
    assert runs == ["begun"]
    declared = await ask(server, request(name, REQUIRED[name]))
    assert declared.json()["result"]["resultType"] == "input_required"


@spec("MRT-3", "HTTP-9")
@pytest.mark.parametrize("name", NAMES)
async def test_what_is_needed_is_looked_at_before_anything_runs_or_is_sent(ask, name):
    runs: list[str] = []
    server = asks(runs)
    wanted = {envelope.PROGRESS_TOKEN: "t"}
    error = lacking(await ask(server, request(f"{name}-first", {}, **wanted)))
    assert (error["code"], error["data"]["requiredCapabilities"]) == (-32021, REQUIRED[name])
    assert runs == []
    answer = await ask(server, request(f"{name}-first", REQUIRED[name], **wanted))
    assert answer.response()["result"]["resultType"] == "input_required"


@spec("MRT-3", "ERR-4")
async def test_once_the_answer_streams_the_lack_is_an_event(ask):
    answer = await ask(asks([]), request("roots", {}, **{envelope.PROGRESS_TOKEN: "t"}))
    assert answer.status == (200 if answer.is_stream else 400)
    assert answer.response()["error"]["code"] == -32021


@spec("MRT-3", "ALS-2")
@pytest.mark.parametrize("name", ["sampling", "sampling-first"])
async def test_a_client_of_the_draft_gets_the_code_of_the_draft(ask, name):
    draft = {envelope.PROTOCOL_VERSION: "DRAFT-2026-v1"}
    assert lacking(await ask(asks([]), request(name, {}, **draft)))["code"] == -32003


@spec("ALS-2", "MRT-7")
def test_a_client_of_the_draft_is_asked_and_answers():
    client = MCPClient(server=asking(), protocol_version="DRAFT-2026-v1")
    assert client.call_tool("pay", answers=[True, "because"]).text == "1 True because"


@spec("MRT-3")
def test_several_that_are_missing_are_named_together():
    server = open_to_all()

    @server.tool(needs=["elicitation.url", "elicitation", "sampling", "sampling.tools", "roots"])
    async def tool(ctx: Context) -> str:
        return "never"

    for declared, required in [
        (
            {},
            {
                "elicitation": {"form": {}, "url": {}},
                "sampling": {"tools": {}},
                "roots": {},
            },
        ),
        (
            {"elicitation": {}, "sampling": {}},
            {"elicitation": {"url": {}}, "sampling": {"tools": {}}, "roots": {}},
        ),
    ]:
        client = MCPClient(server=server, capabilities=declared)
        with pytest.raises(Exception, match="declares elicitation") as caught:
            client.call_tool("tool")
        assert vars(caught.value)["data"] == {"requiredCapabilities": required}


@spec("MRT-3", "ASK-1")
def test_what_is_missing_of_a_round_keeps_the_round_from_being_asked():
    server = open_to_all()

    @server.tool
    async def tool(ctx: Context) -> str:
        return str(await ctx.aask(FORM, MODEL))

    with pytest.raises(Exception, match="declares sampling") as caught:
        MCPClient(server=server, capabilities={"elicitation": {}}).call_tool("tool")
    assert vars(caught.value)["data"] == {"requiredCapabilities": {"sampling": {}}}


@spec("MRT-3", "ASK-1")
def test_a_component_asks_for_what_there_is_instead():
    server = open_to_all()

    @server.tool
    async def tool(ctx: Context) -> str:
        if ctx.supports("elicitation"):
            return str(await ctx.aelicit("Name?", str))
        if ctx.supports("sampling"):
            return (await ctx.asample("Make up a name.")).text
        return "nameless"

    for declared, answers, text in [
        ({"elicitation": {}, "sampling": {}}, ["Ada"], "Ada"),
        ({"elicitation": {"url": {}}, "sampling": {}}, ["Bob"], "Bob"),
        ({}, [], "nameless"),
    ]:
        client = MCPClient(server=server, capabilities=declared)
        assert client.call_tool("tool", answers=answers).text == text


def test_a_component_may_catch_the_lack():
    server = open_to_all()

    @server.tool
    async def tool(ctx: Context) -> str:
        outcomes = []
        for question in QUESTIONS.values():
            try:
                await ctx.aask(question)
            except ElicitationUnavailable:
                outcomes.append("unavailable")
            except MissingCapability:
                outcomes.append("missing")
        return " ".join(outcomes)

    text = MCPClient(server=server, capabilities={}).call_tool("tool").text
    assert text == "unavailable unavailable missing missing missing"


@spec("MRT-3")
def test_the_retry_has_to_declare_it_too():
    server = open_to_all()

    @server.tool
    async def tool(ctx: Context) -> str:
        return str(await ctx.aask(FORM))

    result = MCPClient(server=server).call_tool("tool").raw
    params = {
        "name": "tool",
        "inputResponses": {"form": accept("a")},
        "requestState": result["requestState"],
    }
    with pytest.raises(Exception, match="declares elicitation") as caught:
        MCPClient(server=server, capabilities={}).request("tools/call", params)
    assert vars(caught.value)["code"] == -32021


def test_a_name_that_no_client_declares_is_a_mistake():
    server = open_to_all()

    @server.tool
    async def tool(ctx: Context, name: str) -> bool:
        return ctx.supports(name)

    for name in ("", "elicitation.form", "tools", "sampling.context"):
        with pytest.raises(ValueError, match="is not a client capability; use one of 'elicit"):
            MCPClient(server=server).call_tool("tool", {"name": name})
