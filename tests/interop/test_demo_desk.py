"""Notices, briefings and subscriptions of the demo, by a guest and by a member of staff."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.interop.wire import Wire, retry
from tests.spec import spec

pytestmark = pytest.mark.outside

CONFIRM = {"action": "accept", "content": {"confirmed": True}}


@pytest.mark.parametrize(
    ("ref", "argument", "typed", "first"),
    [
        ({"type": "ref/resource", "uri": "airports://{code}"}, "code", "lh", "LHA"),
        ({"type": "ref/resource", "uri": "airports://countries/{country}"}, "country", "nep", "NP"),
        ({"type": "ref/resource", "uri": "notices://{code}"}, "code", "EGL", "EGLA"),
        ({"type": "ref/prompt", "name": "shift_briefing"}, "airport", "lh", "LHA"),
        ({"type": "ref/prompt", "name": "diversion_plan"}, "airport", "lh", "LHA"),
    ],
)
def test_codes_are_completed_from_the_database(guest, ref, argument, typed, first):
    params = {"ref": ref, "argument": {"name": argument, "value": typed}}
    assert guest.result("completion/complete", params)["completion"]["values"][0] == first


def test_shift_briefing_carries_the_notices(guest, desk):
    notice = _publish(desk, airport="EDDF", title="Taxiway N closed")
    arguments = {"airport": "fra", "shift": "night"}
    result = guest.result("prompts/get", {"name": "shift_briefing", "arguments": arguments})
    ask, attached = (message["content"] for message in result["messages"])
    assert "night shift at Frankfurt am Main International Airport" in ask["text"]
    assert attached["resource"]["uri"] == "notices://EDDF"
    assert notice["number"] in _numbers(json.loads(attached["resource"]["text"]))


def test_shift_briefing_knows_three_shifts(guest):
    arguments = {"airport": "FRA", "shift": "lunch"}
    response = guest.post("prompts/get", {"name": "shift_briefing", "arguments": arguments})
    assert response.json()["error"]["code"] == -32602


def test_diversion_plan_is_rendered_from_its_template(guest):
    arguments = {"airport": "LHR", "reason": "fog & ice"}
    result = guest.result("prompts/get", {"name": "diversion_plan", "arguments": arguments})
    (message,) = result["messages"]
    lines = message["content"]["text"].splitlines()
    assert lines[0] == "London Heathrow Airport (EGLL/LHR) cannot take traffic: fog & ice."
    assert len([line for line in lines if line.startswith("- ") and " km, " in line]) == 5


def test_notice_is_published_read_and_closed_once(guest, desk):
    notice = _publish(desk, airport="NZAA", title="Runway inspection")
    assert notice["number"] in _numbers(guest.read_json("notices://AKL"))
    assert notice in guest.call("current_notices", airport="AKL")["structuredContent"]["notices"]

    number = notice["number"]
    questions = desk.call("close_notice", number=number)
    closed = desk.call_again(questions, CONFIRM, "close_notice", number=number)["structuredContent"]
    assert closed == notice | {"closed_at": closed["closed_at"]}
    assert number not in _numbers(guest.read_json("notices://AKL"))

    anew = desk.call("close_notice", number=number)
    replayed = desk.call_again(questions, CONFIRM, "close_notice", number=number)
    for again in (anew, replayed):
        assert again["isError"] is True
        assert again["content"][0]["text"].startswith(f"Notice {number} was closed on ")


@spec("MRT-1", "MRT-2", "ASK-11", "MRT-9")
def test_user_is_asked_before_a_notice_is_closed(guest, desk):
    number = _publish(desk, airport="NZCH", title="Wind shear")["number"]
    questions = desk.call("close_notice", number=number)
    assert questions["resultType"] == "input_required"
    (question,) = questions["inputRequests"].values()
    assert question["method"] == "elicitation/create"
    message = question["params"]["message"]
    assert message.startswith(f"Close notice {number}, ")
    assert "Wind shear" in message
    form = question["params"]["requestedSchema"]
    assert form["properties"]["confirmed"]["type"] == "boolean"
    assert form["required"] == ["confirmed"]
    assert number in _numbers(guest.read_json("notices://CHC"))


@spec("ASK-14", "MRT-14")
@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"action": "decline"}, "The user declined to answer."),
        ({"action": "cancel"}, "The user dismissed the question."),
        (
            {"action": "accept", "content": {"confirmed": False}},
            "The user did not confirm, so notice {number} stays open.",
        ),
    ],
    ids=["decline", "cancel", "no"],
)
def test_notice_stays_when_the_user_does_not_want_to_close_it(guest, desk, answer, complaint):
    number = _publish(desk, airport="NZWN", title="Birds")["number"]
    questions = desk.call("close_notice", number=number)
    refused = desk.call_again(questions, answer, "close_notice", number=number)
    assert refused["isError"] is True
    assert refused["content"][0]["text"] == complaint.format(number=number)
    assert number in _numbers(guest.read_json("notices://WLG"))


@spec("MRT-4", "MRT-5")
def test_confirmation_closes_no_other_notice(guest, desk):
    snow, ice = (_publish(desk, airport="NZQN", title=title) for title in ("Snow", "Ice"))
    questions = desk.call("close_notice", number=snow["number"])
    params = retry(questions, CONFIRM, "close_notice", number=ice["number"])
    error = desk.post("tools/call", params).json()["error"]
    assert error["code"] == -32602
    assert {snow["number"], ice["number"]} <= {*_numbers(guest.read_json("notices://ZQN"))}


@spec("ASK-1", "MRT-3")
def test_client_that_cannot_be_asked_closes_nothing(guest, desk, demo_server):
    number = _publish(desk, airport="NZDN", title="Fog")["number"]
    with Wire(demo_server.staff_url, token=demo_server.staff_token) as mute:
        response = mute.post(
            "tools/call", {"name": "close_notice", "arguments": {"number": number}}
        )
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["data"]) == (
        -32021,
        {"requiredCapabilities": {"elicitation": {}}},
    )
    assert number in _numbers(guest.read_json("notices://DUD"))


def test_staff_tools_say_what_they_do_to_data(desk):
    tools = {tool["name"]: tool["annotations"] for tool in desk.result("tools/list")["tools"]}
    assert set(tools) == {
        "close_notice",
        "close_notices",
        "close_on_board",
        "create_notice",
        "current_notices",
        "get_notice",
        "list_notices",
        "publish_notice",
        "replace_notice",
        "report_problem",
        "review_notices",
        "update_notice",
        "withdraw_notices",
    }
    assert tools["publish_notice"]["destructiveHint"] is False
    assert tools["close_notice"]["destructiveHint"] is True


def test_subscribers_hear_of_a_notice_under_the_code_that_they_named(guest, desk):
    wanted = {"resourceSubscriptions": ["notices://SIN", "notices://OSL"]}
    with guest.stream("subscriptions/listen", {"notifications": wanted}) as messages:
        assert next(messages)["method"] == "notifications/subscriptions/acknowledged"
        _publish(desk, airport="WSSS", title="Haze")
        heard = next(messages)
    assert heard["method"] == "notifications/resources/updated"
    assert heard["params"]["uri"] == "notices://SIN"


def _publish(desk: Wire, *, airport: str, title: str) -> dict[str, Any]:
    result = desk.call("publish_notice", airport=airport, title=title, text="Until further notice.")
    assert "isError" not in result, result
    return dict(result["structuredContent"])


def _numbers(notices: dict[str, Any]) -> list[int]:
    return [notice["number"] for notice in notices["notices"]]
