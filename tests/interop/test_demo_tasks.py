"""The demo's long tools, for clients with tasks and without."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.interop.wire import Wire

pytestmark = pytest.mark.outside

TASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}}
# A limit for an overloaded machine; questions and messages of a task arrive within seconds.
PATIENCE = 90


@pytest.fixture
def patient(demo_server):
    """Yield a guest's client with tasks."""
    with Wire(demo_server.url, token=demo_server.token, capabilities=TASKS) as wire:
        yield wire


@pytest.fixture
def reviewer(demo_server):
    """Yield a client of a member of staff, with tasks and elicitation."""
    with Wire(demo_server.staff_url, token=demo_server.staff_token, capabilities=TASKS) as wire:
        yield wire


def look(wire: Wire, task_id: str, *, until: Any) -> dict[str, Any]:
    """Poll a task as often as it says until the condition is true, and return it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        task = wire.result("tasks/get", {"taskId": task_id})
        if until(task):
            return task
        assert time.monotonic() < deadline, task
        time.sleep(min(0.2, task["pollIntervalMs"] / 1000))


def is_over(task: dict[str, Any]) -> bool:
    return task["status"] in ("completed", "failed", "cancelled")


def test_a_client_without_tasks_waits_for_the_tour(guest):
    tour = guest.call("grand_tour", start="LHR", countries=12, rounds=5)["structuredContent"]
    assert tour["stops"][0]["icao"] == "EGLL"
    assert len({stop["country"] for stop in tour["stops"]}) == 13
    assert tour["distance_km"] == pytest.approx(sum(stop["leg_km"] for stop in tour["stops"]))


def test_a_client_with_tasks_comes_back_for_it(patient, guest):
    arguments = {"start": "LHR", "countries": 12, "rounds": 5}
    begun = patient.call("grand_tour", **arguments)
    assert (begun["resultType"], begun["status"]) == ("task", "working")
    task = look(patient, begun["taskId"], until=is_over)
    assert task["status"] == "completed"
    at_once = guest.call("grand_tour", **arguments)
    assert task["result"]["structuredContent"] == at_once["structuredContent"]


def test_a_long_tour_says_how_far_it_is_and_is_cancelled(patient):
    begun = patient.call("grand_tour", start="AKL", rounds=5000)
    task = look(patient, begun["taskId"], until=lambda task: "statusMessage" in task)
    assert " of 5000 rounds" in task["statusMessage"]
    assert patient.result("tasks/cancel", {"taskId": begun["taskId"]}).keys() <= {
        "resultType",
        "_meta",
    }
    assert look(patient, begun["taskId"], until=is_over)["status"] == "cancelled"


def test_a_review_asks_while_it_is_a_task(desk, reviewer):
    for title in ("Volcanic ash", "Sheep on the runway"):
        desk.call("publish_notice", airport="BIIS", title=title, text="Until further notice.")
    begun = reviewer.call("review_notices", airport="BIIS")
    assert begun["resultType"] == "task"
    answers = {"Volcanic ash": True, "Sheep on the runway": False}
    keys: list[str] = []
    while True:
        task = look(
            reviewer, begun["taskId"], until=lambda task: is_over(task) or "inputRequests" in task
        )
        if is_over(task):
            break
        ((key, question),) = task["inputRequests"].items()
        assert key not in keys
        keys.append(key)
        message = question["params"]["message"]
        (holds,) = [holds for title, holds in answers.items() if title in message]
        answer = {"action": "accept", "content": {"holds": holds}}
        params = {"taskId": begun["taskId"], "inputResponses": {key: answer}}
        reviewer.result("tasks/update", params)
    assert len(keys) == 2
    review = task["result"]["structuredContent"]
    assert [notice["title"] for notice in review["closed"]] == ["Sheep on the runway"]
    assert len(review["kept"]) == 1
