"""`prompts/list` and `prompts/get`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from django.core.exceptions import ObjectDoesNotExist
from django.utils.safestring import mark_safe

from mcp_django import Context, EmbeddedResource, Image, MCPServer, Message, Text, ToolError, mcp
from mcp_django.auth.permissions import IsStaff
from mcp_django.protocol.errors import INTERNAL_ERROR, INVALID_PARAMS
from mcp_django.test import ErrorResponse
from tests.kit.servers import open_to_all, person, real_client
from tests.spec import spec


@pytest.fixture
def server():
    server = open_to_all()

    @server.prompt(title="Apology", meta={"com.example/a": 1})
    def apologize(
        number: Annotated[str, "The order"],
        tone: Annotated[Literal["formal", "warm"], "How it sounds."] = "warm",
        times: int = 1,
    ) -> str:
        """Write to a customer."""
        return f"{number} {tone} {times}"

    return server


def messages(value: Any) -> list[dict[str, Any]]:
    server = open_to_all()
    server.prompt("it")(lambda: value)
    return real_client(server=server).get_prompt("it")


def refusal(server: MCPServer, params: dict[str, Any], **client: Any) -> ErrorResponse:
    with pytest.raises(ErrorResponse) as caught:
        real_client(server=server, **client).request("prompts/get", params)
    return caught.value


@spec("PRM-1", "UIX-3", "MET-6")
def test_a_listed_prompt_names_its_arguments(server):
    server.prompt("bare")(lambda: "x")
    assert real_client(server=server).list_prompts() == [
        {
            "name": "apologize",
            "title": "Apology",
            "description": "Write to a customer.",
            "_meta": {"com.example/a": 1},
            "arguments": [
                {"name": "number", "required": True, "description": "The order"},
                {
                    "name": "tone",
                    "required": False,
                    "description": "How it sounds. One of: formal, warm.",
                },
                {"name": "times", "required": False},
            ],
        },
        {"name": "bare"},
    ]


@spec("PRM-2", "PRM-6", "PRM-7")
def test_arguments_are_read_by_their_types_and_unknown_ones_ignored(server):
    arguments = {"number": "", "times": "3", "unknown": "x"}
    result = real_client(server=server).request(
        "prompts/get", {"name": "apologize", "arguments": arguments}
    )
    assert result["messages"] == [{"role": "user", "content": {"type": "text", "text": " warm 3"}}]
    assert result["description"] == "Write to a customer."
    assert "ttlMs" not in result
    assert "cacheScope" not in result


@spec("PRM-3", "PRM-4", "PRM-7")
@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"name": "apologize"}, ["number"]),
        ({"name": "apologize", "arguments": None}, ["number"]),
        ({"name": "apologize", "arguments": {}}, ["number"]),
        ({"name": "apologize", "arguments": {"number": 5}}, ["arguments"]),
        ({"name": "apologize", "arguments": {"number": None}}, ["arguments"]),
        ({"name": "apologize", "arguments": {"number": "1", "x": ["y"]}}, ["arguments"]),
        ({"name": "apologize", "arguments": ["1"]}, ["arguments"]),
        ({"name": "apologize", "arguments": {"number": "1", "tone": "rude"}}, ["tone", "warm"]),
        ({"name": "apologize", "arguments": {"number": "1", "times": "x"}}, ["times", '"x"']),
        ({"name": "missing"}, ["No prompt named 'missing' on server 'inline'; see prompts/list."]),
        ({"name": "Apologize"}, ["'Apologize'"]),
        ({"name": 5}, ["name"]),
        ({}, ["name"]),
    ],
)
def test_what_does_not_fit_is_an_error(server, params, words):
    error = refusal(server, params)
    assert error.code == INVALID_PARAMS
    for word in words:
        assert word in error.message


@spec("PRM-2", "PRM-4")
def test_text_blocks_and_messages_become_messages():
    assert messages("a") == [{"role": "user", "content": {"type": "text", "text": "a"}}]
    assert messages(mark_safe("<b>")) == [
        {"role": "user", "content": {"type": "text", "text": "<b>"}}
    ]
    assert messages([]) == []
    assert messages(
        [
            "a",
            Text("b"),
            Message("c", role="assistant"),
            Message(Image(b"x")),
            Message(EmbeddedResource("shop://d", text="d")),
        ]
    ) == [
        {"role": "user", "content": {"type": "text", "text": "a"}},
        {"role": "user", "content": {"type": "text", "text": "b"}},
        {"role": "assistant", "content": {"type": "text", "text": "c"}},
        {
            "role": "user",
            "content": {"type": "image", "data": "eA==", "mimeType": "image/png"},
        },
        {
            "role": "user",
            "content": {"type": "resource", "resource": {"uri": "shop://d", "text": "d"}},
        },
    ]


@pytest.mark.parametrize("value", [None, 5, {"role": "user"}, [None], b"x"])
def test_what_is_no_message_is_a_bug(value, caplog):
    with pytest.raises(ErrorResponse) as caught:
        messages(value)
    assert caught.value.code == INTERNAL_ERROR
    assert "Message" in caplog.text


def test_a_message_has_one_of_two_roles():
    odd: Any = "system"
    with pytest.raises(ValueError, match="'system'"):
        Message("x", role=odd)


@spec("PRM-3", "ERR-5")
def test_failures_are_errors(caplog):
    server = open_to_all()
    failures: dict[str, Exception] = {
        "tool": ToolError("Name a year."),
        "missing": ObjectDoesNotExist("No such order."),
        "bug": RuntimeError("secret"),
    }

    @server.prompt
    def fail(kind: str) -> str:
        raise failures[kind]

    tool, missing, bug = (
        refusal(server, {"name": "fail", "arguments": {"kind": kind}}) for kind in failures
    )
    assert (tool.code, tool.message) == (INVALID_PARAMS, "Name a year.")
    assert (missing.code, missing.message) == (INVALID_PARAMS, "No such order.")
    assert bug.code == INTERNAL_ERROR
    assert "secret" not in bug.message
    assert "secret" in caplog.text


@pytest.mark.django_db
@spec("PRM-4")
@pytest.mark.parametrize(
    "topic", ["{{ settings.SECRET_KEY }}", "{% now 'Y' %}", "Tom & Jerry's <b>"]
)
def test_a_template_says_its_arguments_as_they_are(topic):
    client = real_client(server=mcp, user=person())
    assert client.get_prompt("briefing", {"topic": topic}) == [
        {"role": "user", "content": {"type": "text", "text": f"Brief the shift on {topic}."}}
    ]


@pytest.mark.django_db
@spec("PRM-4")
def test_a_hidden_prompt_is_an_unknown_one():
    server = open_to_all()
    server.prompt("hidden", permission=IsStaff)(lambda: "x")
    user = person()
    hidden = refusal(server, {"name": "hidden"}, user=user)
    unknown = refusal(server, {"name": "hiddem"}, user=user)
    assert (hidden.code, hidden.data) == (unknown.code, unknown.data)
    assert hidden.message == unknown.message.replace("hiddem", "hidden")
    assert real_client(server=server, user=user).list_prompts() == []
    user.is_staff = True
    assert real_client(server=server, user=user).get_prompt("hidden")


async def test_an_async_prompt_sees_the_context():
    server = open_to_all()

    @server.prompt
    async def greet(ctx: Context, name: str) -> str:
        return f"{name} on {ctx.server.name}"

    (message,) = await real_client(server=server).aget_prompt("greet", {"name": "Ada"})
    assert message["content"]["text"] == "Ada on inline"
