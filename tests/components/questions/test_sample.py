"""Requests to the client's model: their parameters, the results, and tool loops."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_django import Audio, Context, Image, Message, Sample, SampledMessage, Text, ToolResultBlock
from mcp_django.components.questions import ToolUse
from mcp_django.protocol.content import EmbeddedResource, ResourceLink
from tests.components.questions.shapes import check_requests
from tests.components.questions.site import serving
from tests.spec import spec

USER_HELLO = {"role": "user", "content": {"type": "text", "text": "Hello"}}
WEATHER = {"name": "weather", "description": "The weather", "inputSchema": {"type": "object"}}
USE: dict[str, Any] = {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Paris"}}


def params_of(question: Sample) -> dict[str, Any]:
    """Return the parameters in the message, which a strict host must accept."""
    params = question.to_params()
    check_requests({"k": {"method": question.method, "params": params}})
    return params


def reply(*blocks: dict[str, Any], **members: Any) -> dict[str, Any]:
    """Return a client's answer."""
    return {"role": "assistant", "model": "m", "content": list(blocks), **members}


def using(*ids: str) -> SampledMessage:
    return Sample("x").read_answer(
        reply(*({**USE, "id": use_id} for use_id in ids), stopReason="toolUse")
    )


# What is sent ---------------------------------------------------------------------------------


@spec("ASK-7", "ASK-8")
def test_what_is_not_said_is_not_sent():
    assert params_of(Sample("Hello")) == {"messages": [USER_HELLO], "maxTokens": 1000}


@spec("ASK-7", "ASK-8", "ASK-9")
def test_every_option_has_its_member():
    question = Sample(
        [Message("Hello"), Message("Yes?", role="assistant"), "What now?"],
        max_tokens=7,
        system_prompt="Be brief.",
        temperature=0,
        stop_sequences=["stop"],
        model_preferences={"hints": [{"name": "small"}], "costPriority": 1, "speedPriority": 0.5},
        metadata={},
        tools=[WEATHER],
        tool_choice="required",
    )
    assert params_of(question) == {
        "messages": [
            USER_HELLO,
            {"role": "assistant", "content": {"type": "text", "text": "Yes?"}},
            {"role": "user", "content": {"type": "text", "text": "What now?"}},
        ],
        "maxTokens": 7,
        "systemPrompt": "Be brief.",
        "temperature": 0,
        "stopSequences": ["stop"],
        "modelPreferences": {
            "hints": [{"name": "small"}],
            "costPriority": 1,
            "speedPriority": 0.5,
        },
        "metadata": {},
        "tools": [WEATHER],
        "toolChoice": {"mode": "required"},
    }


@spec("ASK-7")
def test_a_model_is_shown_pictures_and_sounds():
    picture, sound = Image(b"x", mime_type="image/png"), Audio(b"x", mime_type="audio/wav")
    params = params_of(Sample([Message(picture), Message(sound), Message(Text("y"))]))
    assert [message["content"]["type"] for message in params["messages"]] == [
        "image",
        "audio",
        "text",
    ]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"messages": []}, "messages is empty"),
        ({"max_tokens": 0}, "max_tokens is 0; write at least 1"),
        ({"tool_choice": "any"}, "tool_choice is 'any'; use one of auto, required, none"),
        ({"model_preferences": {"costPriority": 1.1}}, "costPriority is 1.1; write a number"),
        ({"model_preferences": {"speedPriority": -1}}, "speedPriority is -1; write a number"),
        ({"model_preferences": {"cost": 1}}, "'cost' is not a model preference; use hints, cost"),
        ({"model_preferences": {"hints": ["small"]}}, "hints is invalid"),
        ({"tools": [{"name": "x"}]}, "A tool needs a name and an"),
        ({"tools": [{"inputSchema": {"type": "object"}}]}, "A tool needs a name and an"),
        ({"tools": [{**WEATHER, "inputSchema": {"type": "array"}}]}, "A tool needs a name and an"),
        (
            {"messages": Message(EmbeddedResource("x://x", text="x"))},
            "Sampling messages cannot contain a EmbeddedResource",
        ),
        (
            {"messages": Message(ResourceLink("x://x", name="x"))},
            "Sampling messages cannot contain a ResourceLink",
        ),
    ],
)
def test_what_hosts_would_refuse_is_refused_at_once(options, rule):
    with pytest.raises(ValueError, match=rule):
        Sample(**{"messages": "Hello", **options})


@spec("ASK-1")
def test_tools_need_a_client_that_has_them():
    assert Sample("x").needs == "sampling"
    assert Sample("x", tools=[WEATHER]).needs == "sampling.tools"
    assert Sample("x", tool_choice="none").needs == "sampling.tools"


# What comes back ------------------------------------------------------------------------------


@spec("ASK-7", "ASK-10")
def test_one_block_and_a_list_of_one_are_the_same():
    block = {"type": "text", "text": "a", "_meta": {"x": 1}}
    message = Sample("x").read_answer({**reply(), "content": block})
    assert (
        message
        == Sample("x").read_answer(reply(block))
        == SampledMessage(role="assistant", content=[block], model="m")
    )
    assert (message.text, message.tool_uses, message.stop_reason) == ("a", [], "")


@spec("ASK-10")
def test_several_blocks_keep_their_order():
    picture = {"type": "image", "data": "eA==", "mimeType": "image/png"}
    sound = {"type": "audio", "data": "eA==", "mimeType": "audio/wav"}
    message = Sample("x").read_answer(
        reply({"type": "text", "text": "a"}, picture, sound, USE, {"type": "text", "text": "b"})
    )
    assert [block["type"] for block in message.content] == [
        "text",
        "image",
        "audio",
        "tool_use",
        "text",
    ]
    assert message.text == "a\nb"
    assert message.tool_uses == [ToolUse("1", "weather", {"city": "Paris"})]


@pytest.mark.parametrize("stop_reason", ["endTurn", "stopSequence", "whatever"])
def test_why_it_stopped_is_in_the_clients_words(stop_reason):
    assert Sample("x").read_answer(reply(stopReason=stop_reason)).stop_reason == stop_reason
    assert Sample("x").read_answer(reply(stopReason=5)).stop_reason == ""


# Loops of tools -------------------------------------------------------------------------------


def result(tool_use_id: str, **options: Any) -> ToolResultBlock:
    return ToolResultBlock(tool_use_id, "18 °C", **options)


@spec("ASK-9")
def test_each_use_is_followed_by_its_result_and_nothing_else():
    conversation = ["Weather?", using("1", "2"), [result("2"), result("1", is_error=True)]]
    messages = params_of(Sample(conversation, tools=[WEATHER]))["messages"]
    assert messages[1] == {
        "role": "assistant",
        "content": [{**USE, "id": "1"}, {**USE, "id": "2"}],
    }
    text = [{"type": "text", "text": "18 °C"}]
    assert messages[2] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "toolUseId": "2", "content": text},
            {"type": "tool_result", "toolUseId": "1", "content": text, "isError": True},
        ],
    }
    assert params_of(Sample([*conversation, Sample("x").read_answer(reply()), "And now?"]))


@spec("ASK-9")
@pytest.mark.parametrize(
    ("conversation", "uses", "results"),
    [
        (["x", using("1")], "1", ""),
        (["x", using("1"), "y"], "1", ""),
        (["x", using("1", "2"), [result("1")]], "1, 2", "1"),
        (["x", using("1"), [result("1"), result("1")]], "1", "1, 1"),
        (["x", using("1"), [result("2")]], "1", "2"),
        (["x", using("1"), [result("1")], [result("1")]], "no tool", "1"),
        (["x", [result("1")]], "no tool", "1"),
        ([[result("1")]], "no tool", "1"),
        (["x", using("1"), using("2"), [result("1"), result("2")]], "1", ""),
    ],
)
def test_a_use_without_its_result_is_refused(conversation, uses, results):
    with pytest.raises(ValueError, match="The results of") as caught:
        Sample(conversation)
    assert str(caught.value).startswith(
        f"The results of {uses} are required, but the message contains those of [{results}]."
    )


@spec("ASK-9", "ASK-10", "MRT-7", "MRT-13")
def test_a_tool_lends_the_model_its_tools_until_it_is_content():
    async def forecast(ctx: Context) -> str:
        conversation: list[Any] = ["Weather in Paris?"]
        for left in (1, 0):
            answer = await ctx.asample(
                conversation, tools=[WEATHER], tool_choice="auto" if left else "none"
            )
            if not answer.tool_uses:
                break
            done = [ToolResultBlock(use.id, use.input["city"]) for use in answer.tool_uses]
            conversation += [answer, done]
        return f"{answer.text} ({answer.model})"

    client = serving(forecast)
    uses = reply({**USE, "id": "1"}, {**USE, "id": "2"}, stopReason="toolUse")
    second = client.call_tool("tool", answers=[uses])
    assert second.questions[0]["params"]["toolChoice"] == {"mode": "none"}
    assert len(second.questions[0]["params"]["messages"]) == 3
    check_requests(second.raw["inputRequests"])
    assert client.call_tool("tool", answers=[uses, "Mild."]).text == "Mild. (test)"
    assert client.call_tool("tool", answers=["Mild."]).text == "Mild. (test)"


def test_a_sampled_message_goes_on_as_it_came():
    def tool(ctx: Context) -> str:
        first = ctx.sample("A?")
        return ctx.sample(["A?", first, "B?"]).text

    block = {"type": "text", "text": "a", "annotations": {"priority": 1}}
    client = serving(tool)
    second = client.call_tool("tool", answers=[reply(block)])
    assert second.questions[0]["params"]["messages"][1] == {
        "role": "assistant",
        "content": [block],
    }
