"""Questions as bytes on a socket: what comes before them, and what comes instead of answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.wire import Wire, retry
from tests.spec import spec

pytestmark = pytest.mark.outside

INVALID_PARAMS = -32602
EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
LARGE = {"action": "accept", "content": {"value": "large"}}
ADA = {"action": "accept", "content": {"value": "Ada"}}


@pytest.fixture
def wire(asking_url):
    with Wire(asking_url, capabilities=EVERYTHING) as client:
        yield client


def streamed(wire: Wire, params: dict[str, Any], token: str) -> list[dict[str, Any]]:
    with wire.stream("tools/call", params | {"_meta": {"progressToken": token}}) as messages:
        return [*messages]


@spec("MRT-11", "PRG-1", "PRG-2", "PRG-3")
@pytest.mark.parametrize("name", ["pack", "pack_later"])
def test_question_is_the_last_message_of_its_stream(wire, name):
    *before, question = streamed(wire, {"name": name}, "first")
    questions = question["result"]
    *after, answer = streamed(wire, retry(questions, LARGE, name), "second")
    progress = [
        (message["params"]["progressToken"], message["params"]["progress"]) for message in before
    ]
    assert progress == [("first", 1), ("first", 2)]
    assert questions["resultType"] == "input_required"
    # Progress of the first stream is not repeated under the token of the second.
    progress = [
        (message["params"]["progressToken"], message["params"]["progress"]) for message in after
    ]
    assert progress == [("second", 3), ("second", 4)]
    assert answer["result"]["resultType"] == "complete"
    assert answer["id"] != question["id"]


@pytest.mark.parametrize("name", ["pack", "pack_later"])
def test_client_that_listens_from_the_second_round_on_hears_everything(wire, name):
    questions = wire.call(name)
    *heard, _ = streamed(wire, retry(questions, LARGE, name), "late")
    assert [message["params"]["progress"] for message in heard] == [1, 2, 3, 4]


@spec("MRT-8")
def test_missing_answers_are_asked_for_again_and_unknown_ones_ignored(wire):
    questions = wire.call("survey")
    params = retry(questions, ADA, "survey") | {"inputResponses": {"who": ADA, "stranger": LARGE}}
    again = wire.result("tools/call", params)
    assert set(again["inputRequests"]) == set(questions["inputRequests"]) - {"who"}
    reply = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "small"}
    answers = {
        "elicitation/create": {"action": "accept", "content": {"value": "imperial"}},
        "sampling/createMessage": reply,
        "roots/list": {"roots": [{"uri": "file:///home/ada"}]},
    }
    rest = {key: answers[question["method"]] for key, question in again["inputRequests"].items()}
    params = retry(again, ADA, "survey") | {"inputResponses": rest}
    (block,) = wire.result("tools/call", params)["content"]
    assert block["text"] == "Ada hears hello in ada, imperial"


@spec("ASK-5", "MRT-8")
@pytest.mark.parametrize(
    "answer",
    [
        "yes",
        {},
        {"action": "shrug"},
        {"action": "accept", "content": "large"},
        {"method": "elicitation/create", "result": LARGE},
    ],
)
def test_answer_that_is_none_is_an_error_of_the_client(wire, answer):
    questions = wire.call("pack")
    response = wire.post("tools/call", retry(questions, answer, "pack"))
    assert response.json()["error"]["code"] == INVALID_PARAMS
    # The state is still valid.
    (block,) = wire.call_again(questions, LARGE, "pack")["content"]
    assert block["text"] == "packed the large box"


@spec("MRT-4")
@pytest.mark.parametrize("state", ["", "forged", 7])
def test_state_that_is_not_ours_is_refused(wire, state):
    params = retry(wire.call("pack"), LARGE, "pack") | {"requestState": state}
    answer = wire.post("tools/call", params).json()
    assert answer["error"]["code"] == INVALID_PARAMS


@spec("MRT-5")
def test_state_belongs_to_its_tool_and_its_arguments(wire):
    confirmed = {"action": "accept", "content": {"confirmed": True}}
    questions = wire.call("refund", order=7)
    for name, arguments in [("refund", {"order": 8}), ("pack", {}), ("agree", {})]:
        params = retry(questions, confirmed, name, **arguments)
        assert wire.post("tools/call", params).json()["error"]["code"] == INVALID_PARAMS
    (block,) = wire.call_again(questions, confirmed, "refund", order=7)["content"]
    assert block["text"] == "7: refunded, unwanted"


def test_parallel_interactions_do_not_mix(wire):
    seven, eight = (wire.call("refund", order=order) for order in (7, 8))
    answers = {
        order: {"action": "accept", "content": {"confirmed": order == 7}} for order in (7, 8)
    }
    results = [
        wire.call_again(questions, answers[order], "refund", order=order)["content"][0]["text"]
        for questions, order in [(eight, 8), (seven, 7)]
    ]
    assert results == ["8: kept, unwanted", "7: refunded, unwanted"]
