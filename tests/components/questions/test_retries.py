"""Retries that differ from what is expected, and answers that are meant to be expensive."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from mcp_django import Context
from mcp_django.test import ACCEPT, CANCEL, DECLINE
from tests.components.questions.everything import ALL, ANSWERS, retry, text_of
from tests.components.questions.site import accept, asking, call, error_of, post, result_of
from tests.kit.servers import open_to_all, real_client
from tests.spec import spec

SERVER = asking()
BAD = -32602


@spec("MRT-7")
def test_the_id_of_the_first_request_may_come_again():
    body = retry(ANSWERS)
    assert post(ALL, {**body, "id": 1}).json()["id"] == 1
    assert post(ALL, {**body, "id": "1"}).json()["id"] == "1"


@spec("MRT-8")
def test_without_a_state_a_retry_is_a_first_call_whose_answers_count():
    assert text_of(result_of(ALL, call(name="ask", inputResponses=ANSWERS))) == "a hello 1"
    second = result_of(SERVER, call(name="pay", inputResponses={"sure": accept(value=True)}))
    assert list(second["inputRequests"]) == ["why"]
    body = call(name="pay", inputResponses={"why": accept("b")})
    assert list(result_of(SERVER, body)["inputRequests"]) == ["sure"]
    both = {"sure": accept(value=True), "why": accept("b")}
    assert text_of(result_of(SERVER, call(name="pay", inputResponses=both))) == "1 True b"


@spec("MRT-8", "MRT-14")
@pytest.mark.parametrize(
    ("answer", "text"),
    [(DECLINE, "The user declined to answer."), (CANCEL, "The user dismissed the question.")],
)
def test_a_refusal_ends_the_call_in_band(answer, text):
    result = real_client(server=SERVER).call_tool("pay", answers=[answer], check=False)
    assert (result.is_error, result.text) == (True, text)


@spec("ASK-14")
def test_a_refusal_that_has_content_is_a_refusal():
    refused = {"action": "decline", "content": {"value": True}}
    body = call(name="pay", inputResponses={"sure": refused})
    assert text_of(result_of(SERVER, body)) == "The user declined to answer."


@spec("ASK-14")
def test_a_question_without_fields_is_answered_by_accepting_it():
    server = open_to_all()

    @server.tool(atomic=False)
    def go(ctx: Context) -> str:
        return repr(ctx.elicit("Go on?"))

    assert real_client(server=server).call_tool("go", answers=[ACCEPT]).text == "None"
    (key,) = real_client(server=server).call_tool("go").raw["inputRequests"]
    for content in ({"x": 1}, None):
        answer = {"action": "accept", "content": content}
        body = call(name="go", inputResponses={key: answer})
        assert text_of(result_of(server, body)) == "None"


# What costs -----------------------------------------------------------------------------------


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@spec("ASK-5")
@pytest.mark.parametrize("depth", [65, 300, 500, 900])
@pytest.mark.parametrize("key", ["form", "model", "roots"])
def test_an_answer_that_is_nested_too_deep_is_refused(key, depth, caplog):
    error = error_of(ALL, retry({key: {**ANSWERS[key], "more": nested(depth)}}))
    assert (error["code"], "nested" in error["message"]) == (BAD, True)
    assert not [record for record in caplog.records if record.name == "mcp_django"]


@spec("ASK-5")
def test_no_depth_of_nesting_breaks_anything():
    # The limit of the interpreter depends on its current stack, so the test varies the depth.
    body = retry({"form": "HERE"})
    for depth in (*range(950, 1000, 2), 5000, 100_000):
        answer = json.dumps({"action": "accept", "x": "DEEP"})
        deep = answer.replace('"DEEP"', "[" * depth + "]" * depth)
        response = post(ALL, body, text=json.dumps(body).replace('"HERE"', deep)).json()
        assert response["error"]["code"] in {BAD, -32700}, depth
        assert "nested" in response["error"]["message"]


def test_what_nobody_needs_is_not_even_read():
    responses = {**ANSWERS, "other": nested(900)}
    assert text_of(result_of(ALL, retry(responses))) == "a hello 1"
    body = retry({**ANSWERS, "other": "HERE"})
    answer = post(ALL, body, text=json.dumps(body).replace('"HERE"', "1e999"))
    assert text_of(answer.json()["result"]) == "a hello 1"


@spec("MRT-8")
@pytest.mark.parametrize("number", ["1" * 5000, "1e999", "-1e400"])
def test_a_number_that_is_too_large_is_refused(number):
    body = retry({**ANSWERS, "form": accept("HERE")})
    answer = post(ALL, body, text=json.dumps(body).replace('"HERE"', number))
    error = answer.json()["error"]
    assert error["code"] == BAD
    assert "params.inputResponses['form'] cannot be read" in error["message"]


@spec("ASK-5")
@pytest.mark.parametrize("schema", [list[Literal["a"]], str])
def test_a_list_that_nobody_can_have_ticked_is_refused_unread(schema):
    server = open_to_all()

    @server.tool(atomic=False)
    def choose(ctx: Context) -> str:
        return str(ctx.elicit("Which?", schema, key="form"))

    error = error_of(server, retry({"form": accept(["x"] * 500_000)}, server, "choose"))
    assert error["code"] == BAD
    assert "a list of more than 1000 choices" in error["message"]


def test_fifty_thousand_responses_that_nobody_asked_for_are_ignored():
    responses = {f"k{n}": accept("a") for n in range(50_000)}
    assert text_of(result_of(ALL, retry({**ANSWERS, **responses}))) == "a hello 1"
