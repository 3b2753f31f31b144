"""Rounds of questions that the official Python client answers: its model, its folders, its user."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import MCPError
from mcp_types import (
    CreateMessageResultWithTools,
    ErrorData,
    SamplingCapability,
    SamplingToolsCapability,
    ToolUseContent,
)

from tests.interop.sdk import DECLINE, REVISION, Host, Statuses, accept, call, connected, says, text
from tests.spec import spec

pytestmark = pytest.mark.outside

INVALID_PARAMS = -32602
MISSING_CAPABILITY = -32021
WITH_TOOLS = SamplingCapability(tools=SamplingToolsCapability())


@spec("ASK-7", "ASK-8", "ASK-10")
async def test_model_answers(asking_url):
    host = Host(samples=[says("Short.")])
    result = await call(asking_url, host, "summarize", {"text": "Long."})
    assert result.structured_content == {"text": "Short.", "model": "small", "stop": "endTurn"}
    (question,) = host.questions
    params = question.model_dump(by_alias=True, exclude_none=True)
    assert params == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Summarize: Long."}}],
        "maxTokens": 50,
        "systemPrompt": "Be brief.",
        "temperature": 0.5,
        "stopSequences": ["END"],
        "modelPreferences": {"hints": [{"name": "small"}], "speedPriority": 0.9},
    }


@spec("ASK-9", "ASK-10")
async def test_model_uses_tools_and_gets_their_results(asking_url):
    uses = [
        ToolUseContent(type="tool_use", id=f"call-{code}", name="altitude", input={"code": code})
        for code in ("ZRH", "AMS")
    ]
    wanted = CreateMessageResultWithTools(
        role="assistant", content=uses, model="small", stop_reason="toolUse"
    )
    host = Host(samples=[wanted, says("Zurich.")])
    result = await call(asking_url, host, "compare_altitudes", sampling_capabilities=WITH_TOOLS)
    assert text(result) == "2 looked up: Zurich."
    first, second = host.questions
    assert (first.tool_choice.mode, second.tool_choice.mode) == ("required", "none")
    question, reply, results = second.messages
    assert [question] == first.messages
    assert reply.content == uses
    assert [(block.tool_use_id, block.content[0].text) for block in results.content] == [
        ("call-ZRH", "432"),
        ("call-AMS", "-3"),
    ]


async def test_client_names_its_folders(asking_url):
    result = await call(asking_url, Host(), "folders")
    assert result.structured_content == [{"name": "Papers", "folder": "/home/ada/my papers"}]


@spec("MRT-2")
async def test_several_questions_are_asked_in_one_round(asking_url):
    host = Host([accept(value="Ada"), accept(value="metric")], samples=[says("hello")])
    statuses: Statuses = []
    result = await call(asking_url, host, "survey", statuses=statuses)
    assert text(result) == "Ada hears hello in my papers, metric"
    assert len(set(host.keys)) == 4
    assert {"who", "units"} < set(host.keys)
    assert host.messages == ["Who are you?", "Which units?"]
    assert len(host.questions) == 4
    # The call, the call that has all answers, and the list whose schema the client checks with.
    assert statuses == [(200, None)] * 3


@spec("MRT-7", "MRT-13")
async def test_several_rounds_build_on_one_another(asking_url):
    host = Host([accept(value="Ada"), accept(value="metric")], samples=[says("Welcome")])
    result = await call(asking_url, host, "onboard")
    assert text(result) == "Welcome Ada, metric, Papers"
    assert host.messages == ["Who are you?", "Ada, which units?"]
    (message,) = host.questions[2].messages
    assert message.content.text == "Greet Ada in metric units"
    assert len(set(host.keys)) == 4


@spec("HDR-12", "HDR-15")
async def test_every_round_mirrors_arguments_into_headers(asking_url):
    statuses: Statuses = []
    host = Host([accept()])
    async with connected(asking_url, mode=REVISION, statuses=statuses, **host.callbacks) as client:
        await client.list_tools()
        result = await client.call_tool("ship", {"region": "north"})
    assert text(result) == "shipped to the north"
    assert statuses == [(200, None)] * 3


@spec("MRT-1")
async def test_prompt_asks(asking_url):
    host = Host([accept(value="warm"), DECLINE])
    async with connected(asking_url, **host.callbacks) as client:
        result = await client.get_prompt("letter", {"topic": "fog"})
        with pytest.raises(MCPError) as caught:
            await client.get_prompt("letter", {"topic": "fog"})
    (message,) = result.messages
    assert message.content.text == "Write a warm letter about fog."
    assert caught.value.error.code == INVALID_PARAMS


@spec("MRT-1", "CCH-1")
async def test_resources_ask_each_reader(asking_url):
    host = Host([accept(value="Oslo"), accept(value="Rome"), accept(value="imperial")])
    uris = ["asking://weather", "asking://weather", "asking://rooms/7"]
    async with connected(asking_url, **host.callbacks) as client:
        read = [(await client.read_resource(uri)).contents[0].text for uri in uris]
    assert read == ["Fog in Oslo", "Fog in Rome", "Room 7, imperial"]


@spec("PRG-2", "LOG-4", "MRT-11", "MRT-13")
@pytest.mark.parametrize("tool", ["pack", "pack_later"])
async def test_streamed_call_asks_in_the_middle_and_says_everything_once(asking_url, tool):
    reported: list[Any] = []
    logged: list[Any] = []

    async def note(*progress: Any) -> None:
        reported.append(progress)

    async def keep(params: Any) -> None:
        logged.append(params.data)

    async def answer(_: Any) -> Any:
        reported.append("asked")
        return accept(value="large")

    options = {"logging_callback": keep, "log_level": "info"}
    async with connected(asking_url, **Host([answer]).callbacks, **options) as client:
        result = await client.call_tool(tool, progress_callback=note)
        # When another call is answered, all earlier messages have been handed on.
        await client.call_tool("offers")
    assert text(result) == "packed the large box"
    steps = [(n, 4, f"step {n}") for n in range(1, 5)]
    assert reported == [*steps[:2], "asked", *steps[2:]]
    assert logged == [message for _, _, message in steps]


@spec("ASK-1", "MRT-3")
@pytest.mark.parametrize(
    ("name", "options", "missing"),
    [
        ("refund", {}, {"elicitation": {}}),
        ("greet", {}, {"elicitation": {}}),
        ("connect_account", {}, {"elicitation": {"url": {}}}),
        ("compare_altitudes", {"sampling_callback": Host().sample}, {"sampling": {"tools": {}}}),
        (
            "survey",
            {"elicitation_callback": Host().elicit},
            {"sampling": {}, "roots": {}},
        ),
    ],
)
async def test_client_is_not_asked_what_it_did_not_declare(asking_url, name, options, missing):
    statuses: Statuses = []
    arguments = {"order": 7} if name == "refund" else {}
    async with connected(asking_url, mode=REVISION, statuses=statuses, **options) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool(name, arguments)
        offers = await client.call_tool("offers")
    error = caught.value.error
    assert (error.code, error.data) == (MISSING_CAPABILITY, {"requiredCapabilities": missing})
    assert statuses[0] == (400, None)
    assert offers.structured_content["elicitation"] is ("elicitation_callback" in options)


@spec("ASK-5", "MRT-9")
async def test_host_that_refuses_to_answer_at_all_can_call_again(asking_url):
    host = Host(samples=[ErrorData(code=-1, message="Not now."), says("Short.")])
    async with connected(asking_url, **host.callbacks) as client:
        with pytest.raises(MCPError, match="Not now"):
            await client.call_tool("summarize", {"text": "Long."})
        result = await client.call_tool("summarize", {"text": "Long."})
    assert result.structured_content["text"] == "Short."


@spec("MRT-4", "MRT-7")
async def test_another_client_goes_on_at_the_other_mount(asking_urls):
    host = Host()
    async with connected(asking_urls["lane"], **host.callbacks) as client:
        questions = await client.session.call_tool("greet", allow_input_required=True)
    responses = dict.fromkeys(questions.input_requests, accept(value="Ada"))
    params = {"input_responses": responses, "request_state": questions.request_state}
    async with connected(asking_urls["raw"], **host.callbacks) as client:
        assert text(await client.call_tool("greet", **params)) == "Hello, Ada."
        with pytest.raises(MCPError) as caught:
            await client.call_tool("agree", **params)
        with pytest.raises(MCPError) as forged:
            await client.call_tool("greet", **params | {"request_state": "forged"})
    assert caught.value.error.code == forged.value.error.code == INVALID_PARAMS
    assert host.questions == []
