"""Notices, briefings and subscriptions of the demo, by a guest and by a member of staff."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.interop.wire import Wire


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
def test_codes_are_completed_from_the_database(
    guest: Wire, ref: dict[str, str], argument: str, typed: str, first: str
) -> None:
    params = {"ref": ref, "argument": {"name": argument, "value": typed}}
    assert guest.result("completion/complete", params)["completion"]["values"][0] == first


def test_shift_briefing_carries_the_notices(guest: Wire, desk: Wire) -> None:
    notice = _publish(desk, airport="EDDF", title="Taxiway N closed")
    arguments = {"airport": "fra", "shift": "night"}
    result = guest.result("prompts/get", {"name": "shift_briefing", "arguments": arguments})
    ask, attached = (message["content"] for message in result["messages"])
    assert "night shift at Frankfurt am Main International Airport" in ask["text"]
    assert attached["resource"]["uri"] == "notices://EDDF"
    assert notice["number"] in _numbers(json.loads(attached["resource"]["text"]))


def test_shift_briefing_knows_three_shifts(guest: Wire) -> None:
    arguments = {"airport": "FRA", "shift": "lunch"}
    response = guest.post("prompts/get", {"name": "shift_briefing", "arguments": arguments})
    assert response.json()["error"]["code"] == -32602


def test_diversion_plan_is_rendered_from_its_template(guest: Wire) -> None:
    arguments = {"airport": "LHR", "reason": "fog & ice"}
    result = guest.result("prompts/get", {"name": "diversion_plan", "arguments": arguments})
    (message,) = result["messages"]
    lines = message["content"]["text"].splitlines()
    assert lines[0] == "London Heathrow Airport (EGLL/LHR) cannot take traffic: fog & ice."
    assert len([line for line in lines if line.startswith("- ") and " km, " in line]) == 5


def test_notice_is_published_read_and_closed_once(guest: Wire, desk: Wire) -> None:
    notice = _publish(desk, airport="NZAA", title="Runway inspection")
    assert notice["number"] in _numbers(guest.read_json("notices://AKL"))
    assert notice in guest.call("current_notices", airport="AKL")["structuredContent"]["notices"]

    closed = desk.call("close_notice", number=notice["number"])["structuredContent"]
    assert closed == notice | {"closed_at": closed["closed_at"]}
    assert notice["number"] not in _numbers(guest.read_json("notices://AKL"))

    again = desk.call("close_notice", number=notice["number"])
    assert again["isError"] is True
    assert again["content"][0]["text"].startswith(f"Notice {notice['number']} was closed on ")


def test_staff_tools_say_what_they_do_to_data(desk: Wire) -> None:
    tools = {tool["name"]: tool["annotations"] for tool in desk.result("tools/list")["tools"]}
    assert set(tools) == {"current_notices", "publish_notice", "close_notice"}
    assert tools["publish_notice"]["destructiveHint"] is False
    assert tools["close_notice"]["destructiveHint"] is True


def test_subscribers_hear_of_a_notice_under_the_code_that_they_named(
    guest: Wire, desk: Wire
) -> None:
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
