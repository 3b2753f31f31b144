"""Messages have closed shapes on every mount, for every form that a developer declares."""

from __future__ import annotations

import dataclasses
import keyword
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from django import forms
from hypothesis import given, strategies as st
from pydantic import Field

from mcp_django import Context, Elicit, ElicitURL, ListRoots, MCPServer, Sample
from mcp_django.protocol import envelope
from mcp_django.schema.secrets import asks_for_secret
from tests.components.questions.shapes import check_requests
from tests.components.questions.site import EVERYTHING, accept, asking, call, post
from tests.kit.drivers import message
from tests.kit.servers import open_to_all
from tests.spec import spec


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class NoteForm(forms.Form):
    text = forms.CharField()
    color = forms.ChoiceField(choices=[("r", "Red"), ("b", "Blue")])


FORMS: list[Any] = [
    *(None, str, int, float, bool, date, datetime, Decimal, Color, list[Color], NoteForm),
    *(str | None, Literal["a"], Annotated[str, "words", Field(max_length=5)]),
    {"type": "object", "properties": {"x": {"type": "integer", "minimum": 1}}, "required": ["x"]},
]


def asks_everything() -> MCPServer:
    """Return a server with a tool that asks every kind of question."""
    server = open_to_all()

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.areport_progress(1)
        await ctx.aask(
            *(Elicit(f"Form {n}", form) for n, form in enumerate(FORMS)),
            ElicitURL("Go.", "https://example.com/"),
            Sample("Hello", tools=[{"name": "x", "inputSchema": {"type": "object"}}]),
            ListRoots(),
        )
        return "never"

    return server


# Results --------------------------------------------------------------------------------------


@spec("MRT-2", "MRT-11", "CCH-2", "ASK-7", "ASK-8", "ASK-11", "ASK-13")
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_question_is_a_result_and_the_last_message(ask, streamed):
    wanted = {envelope.PROGRESS_TOKEN: "t"} if streamed else {}
    body = message("tools/call", {"name": "ask"}, id="7", **_client(**wanted))
    answer = await ask(asks_everything(), body)
    assert answer.status == 200
    *before, response = answer.messages()
    assert [event["method"] for event in before] == ["notifications/progress"] * len(before)
    assert len(before) == answer.is_stream
    assert response.keys() == {"jsonrpc", "id", "result"}
    result = response["result"]
    assert response["id"] == "7"
    assert result.keys() == {"resultType", "inputRequests", "requestState", "_meta"}
    assert result["resultType"] == "input_required"
    assert result["_meta"].keys() == {envelope.SERVER_INFO}
    assert isinstance(result["requestState"], str)
    assert len(result["inputRequests"]) == len(FORMS) + 3
    check_requests(result["inputRequests"])


def _client(**extra: Any) -> dict[str, Any]:
    return {envelope.CLIENT_CAPABILITIES: EVERYTHING, **extra}


@spec("MRT-1", "MRT-11", "RSC-10", "PRM-6")
@pytest.mark.parametrize(
    ("method", "params", "answers", "member"),
    [
        ("tools/call", {"name": "pay"}, {"sure": True, "why": "x"}, "content"),
        ("resources/read", {"uri": "x://a"}, {"part": "b"}, "contents"),
        ("prompts/get", {"name": "pay"}, {"tone": "warm"}, "messages"),
    ],
)
async def test_the_three_methods_ask_and_are_answered_on_every_mount(
    ask, method, params, answers, member
):
    server, retry = asking(), {}
    for key, value in answers.items():
        interim_result = (await ask(server, call(method, **params, **retry))).json()["result"]
        assert interim_result.keys() == {"resultType", "inputRequests", "requestState", "_meta"}
        check_requests(interim_result["inputRequests"])
        retry = {
            "inputResponses": {key: accept(value)},
            "requestState": interim_result["requestState"],
        }
    result = (await ask(server, call(method, **params, **retry))).json()["result"]
    assert (result["resultType"], member in result) == ("complete", True)


@spec("MRT-7")
async def test_each_round_may_come_over_another_mount(ask):
    server = asking()
    state = post(server, call(name="pay")).json()["result"]["requestState"]
    body = call(name="pay", inputResponses={"sure": accept(True)}, requestState=state)
    second = (await ask(server, body)).json()["result"]
    last = call(
        name="pay", inputResponses={"why": accept("b")}, requestState=second["requestState"]
    )
    assert post(server, last).json()["result"]["content"][0]["text"] == "1 True b"


# Forms ----------------------------------------------------------------------------------------

NAMES = st.from_regex(r"\A[a-z][a-z_]{0,8}\Z").filter(lambda name: not keyword.iskeyword(name))
WORDS = st.text(min_size=1, max_size=20)
BOUND = st.integers(-1000, 1000)


@st.composite
def types(draw: st.DrawFn) -> Any:
    """Draw a type that may be a field of a form, with constraints and texts of all kinds."""
    choices = draw(st.lists(WORDS, min_size=1, max_size=3, unique=True))
    literal: Any = Literal[tuple(choices)]
    kind, rules = draw(
        st.sampled_from(
            [
                (str, ["min_length", "max_length"]),
                (int, ["ge", "le", "gt", "lt", "multiple_of"]),
                (float, ["ge", "le", "gt", "lt"]),
                (Decimal, ["ge", "le"]),
                *[(scalar, []) for scalar in (bool, date, datetime, Color, literal)],
                *[(list[choice], ["min_length", "max_length"]) for choice in (Color, literal)],
            ]
        )
    )
    limits = {rule: draw(st.integers(1, 1000)) for rule in rules if draw(st.booleans())}
    limits |= {word: draw(WORDS) for word in ("title", "description") if draw(st.booleans())}
    hint: Any = Annotated[kind, Field(**limits)] if limits else kind
    return hint | None if draw(st.booleans()) else hint


@spec("ASK-11")
@given(st.dictionaries(NAMES, types(), max_size=5), st.text())
def test_whatever_a_dataclass_declares_a_host_gets_a_flat_form(fields, text):
    kept = {k: v for k, v in fields.items() if not asks_for_secret(k, {"type": "string"})}
    form = dataclasses.make_dataclass("Asked", kept.items())
    question = Elicit(text, form)
    check_requests({"k": {"method": question.method, "params": question.to_params()}})


@spec("ASK-11")
@given(types())
def test_so_he_does_for_a_single_type(hint):
    question = Elicit("Which?", hint)
    params = question.to_params()
    check_requests({"k": {"method": question.method, "params": params}})
    assert list(params["requestedSchema"]["properties"]) == ["value"]
