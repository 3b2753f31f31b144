"""`inputResponses` is any JSON of a client: read if valid, else asked for again or rejected."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given, strategies as st

from mcp_django import Context
from mcp_django.execution.interaction import MAX_CORRECTIONS
from tests.components.questions.everything import ALL, ANSWERS, ROOTS, SAMPLED, retry, text_of
from tests.components.questions.site import accept, asking, call, error_of, post, result_of
from tests.kit.servers import open_to_all, real_client
from tests.spec import spec

SERVER = asking()
BAD = -32602


@spec("MRT-7", "MRT-8")
def test_answers_of_every_kind_are_read_at_once():
    assert text_of(result_of(ALL, retry(ANSWERS))) == "a hello 1"


@spec("MRT-8")
@pytest.mark.parametrize("responses", [0, 1.5, True, "x", [], [ANSWERS]])
def test_responses_are_an_object(responses):
    assert error_of(ALL, retry(responses))["code"] == BAD
    assert error_of(ALL, call(name="ask", inputResponses=responses))["code"] == BAD


@spec("MRT-8")
@pytest.mark.parametrize("responses", [None, {}, {"other": accept("a")}, {"": 1, "Form": None}])
def test_what_is_missing_is_asked_again_and_what_is_unknown_is_ignored(responses):
    again = result_of(ALL, retry(responses))
    assert again["resultType"] == "input_required"
    assert list(again["inputRequests"]) == ["form", "model", "roots"]


@spec("MRT-8")
@pytest.mark.parametrize("missing", list(ANSWERS))
def test_only_the_missing_one_is_asked_again(missing):
    given_ones = {key: answer for key, answer in ANSWERS.items() if key != missing}
    again = result_of(ALL, retry(given_ones))
    assert list(again["inputRequests"]) == [missing]
    last = {"inputResponses": {missing: ANSWERS[missing]}, "requestState": again["requestState"]}
    assert text_of(result_of(ALL, call(name="ask", **last))) == "a hello 1"


MALFORMED: dict[str, list[Any]] = {
    "form": [
        {},
        {"action": None},
        {"action": "yes"},
        {"action": ["accept"]},
        {"action": {"accept": True}},
        {"action": "ACCEPT", "content": {"value": "a"}},
        {"action": "accept", "content": []},
        {"action": "accept", "content": "a"},
        {"action": "accept", "content": 1},
        SAMPLED,
        ROOTS,
    ],
    "model": [
        {},
        accept("a"),
        {**SAMPLED, "role": "system"},
        {**SAMPLED, "role": ["assistant"]},
        {**SAMPLED, "role": {}},
        {**SAMPLED, "model": None},
        {**SAMPLED, "model": 1},
        {**SAMPLED, "content": None},
        {**SAMPLED, "content": "hello"},
        {**SAMPLED, "content": {}},
        {**SAMPLED, "content": {"type": None}},
        {**SAMPLED, "content": {"type": "text"}},
        {**SAMPLED, "content": {"type": "text", "text": 1}},
        {**SAMPLED, "content": [SAMPLED["content"], "x"]},
        {**SAMPLED, "content": [[SAMPLED["content"]]]},
        {**SAMPLED, "content": {"type": "image", "mimeType": "image/png"}},
        {**SAMPLED, "content": {"type": "image", "data": ""}},
        {**SAMPLED, "content": {"type": "audio", "data": ""}},
        {**SAMPLED, "content": {"type": "audio", "mimeType": "audio/wav"}},
        {**SAMPLED, "content": {"type": "tool_use", "id": "1", "input": {}}},
        {**SAMPLED, "content": {"type": "tool_use", "id": 1, "name": "n", "input": {}}},
        {**SAMPLED, "content": {"type": "tool_use", "id": "1", "name": "n", "input": "x"}},
        {**SAMPLED, "content": {"type": "tool_use", "id": "1", "name": "n", "input": [1]}},
        {**SAMPLED, "content": {"type": "tool_result"}},
        {**SAMPLED, "content": {"type": "tool_result", "toolUseId": 1, "content": []}},
    ],
    "roots": [
        {},
        {"roots": None},
        {"roots": {}},
        {"roots": ["file:///srv"]},
        {"roots": [{}]},
        {"roots": [{"uri": None}]},
        {"roots": [{"uri": "/srv"}]},
        {"roots": [{"uri": "https://example.com"}]},
        {"roots": [{"uri": "javascript:file:///srv"}]},
        {"roots": [{"uri": "file://[srv"}]},
        {"roots": [{"uri": "file:///srv"}, {"uri": "ftp://srv"}]},
    ],
}


@spec("MRT-8", "ASK-5", "ASK-14")
@pytest.mark.parametrize(
    ("key", "answer"),
    [(key, answer) for key, answers in MALFORMED.items() for answer in [None, 1, "x", [], *answers]]
    + [(key, other) for key in ("form", "model", "roots") for other in [True, [ANSWERS[key]]]],
)
def test_what_is_no_answer_is_refused(key, answer, caplog):
    error = error_of(ALL, retry({**ANSWERS, key: answer}))
    assert error["code"] == BAD
    assert error["message"].startswith("params.inputResponses")
    assert len(error["message"]) < 200
    assert not [record for record in caplog.records if record.name == "mcp_django"]


NAMES = (
    *("action", "content", "value", "role", "model", "type", "text", "id", "name", "input"),
    *("roots", "uri", "data", "mimeType", "toolUseId"),
)


@spec("ASK-5")
@given(
    st.dictionaries(
        st.sampled_from(["form", "model", "roots", "other"]),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.sampled_from(["accept", "decline", "assistant", "text", "tool_use", "file:///x"])
            | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner)
            ),
            max_leaves=12,
        ),
    )
)
def test_any_json_is_survived(responses):
    answer = post(ALL, retry(responses))
    assert answer.status == 200
    response = answer.json()
    assert "result" in response or response["error"]["code"] == BAD
    assert "logged" not in json.dumps(response)


@spec("MRT-8", "ASK-14")
@pytest.mark.parametrize(
    "answer",
    [
        {"action": "accept"},
        {"action": "accept", "content": None},
        {"action": "accept", "content": {}},
        {"action": "accept", "content": {"Value": "a"}},
        {"action": "accept", "content": {"value": None}},
        {"action": "accept", "content": {"value": 5}},
        {"action": "accept", "content": {"value": ["a"]}},
        {"action": "accept", "content": {"value": {"value": "a"}}},
    ],
)
def test_what_the_user_has_to_correct_is_asked_again(answer):
    again = result_of(ALL, retry({**ANSWERS, "form": answer}))
    assert list(again["inputRequests"]) == ["form"]
    message = again["inputRequests"]["form"]["params"]["message"]
    assert message.startswith("Please correct this:\nvalue: ")
    assert message.endswith("\n\nText?")


@spec("ASK-14")
def test_members_that_were_not_asked_for_are_left_out():
    answer = {"action": "accept", "content": {"value": "a", "is_admin": True}, "more": 1}
    assert text_of(result_of(ALL, retry({**ANSWERS, "form": answer}))) == "a hello 1"


@spec("ASK-14")
def test_a_choice_outside_of_the_form_is_asked_again():
    server = open_to_all()

    @server.tool(atomic=False)
    def choose(ctx: Context) -> str:
        return str(ctx.elicit("Which?", Literal["red", "blue"]))

    result = real_client(server=server).call_tool("choose", answers=["green"])
    (question,) = result.questions
    assert 'must be one of "red", "blue" (got "green")' in question["params"]["message"]
    assert real_client(server=server).call_tool("choose", answers=["green", "red"]).text == "red"


@spec("ASK-5")
def test_a_form_is_not_asked_again_for_ever():
    client = real_client(server=SERVER)
    wrong = [{"value": "perhaps"}] * MAX_CORRECTIONS
    assert client.call_tool("pay", answers=wrong).questions
    result = client.call_tool("pay", answers=[*wrong, {"value": "perhaps"}], check=False)
    assert result.is_error
    assert result.text.startswith("The answers did not fit, 5 times: value: must be true or false")
    assert client.call_tool("pay", answers=[*wrong, True, "because"]).text == "1 True because"
