"""A call that became a task: how far it is, what it asks, and in the end what it answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.contrib.admin.utils import quote
from django.http import HttpResponseBase
from django.urls import reverse

from mcp_django.admin.trying import screens
from mcp_django.admin.trying.questions import questions_of
from mcp_django.admin.trying.raw import shown_exchanges
from mcp_django.admin.trying.running import Round, Runner
from mcp_django.admin.trying.state import FOLLOW, State
from mcp_django.admin.trying.steps import MAX_HISTORY, Step, waits
from mcp_django.admin.trying.trials import Trial

Wire = Mapping[str, Any]
OVER = ("completed", "failed", "cancelled")


def task_of(came: Round) -> Wire:
    """The task that a call became, empty if it was answered as calls are."""
    if came.result.get("resultType") == "task":
        return came.result
    found = came.result.get("task")
    return found if isinstance(found, dict) and "taskId" in found else {}


def begun(trial: Trial, step: Step, came: Round) -> HttpResponseBase:
    """The task of a call that was sent just now."""
    history = [*step.history, *shown_exchanges(trial, came.exchanges)]
    return _shown(trial, task_of(came), history)


def follow(trial: Trial, state: State) -> HttpResponseBase:
    """Give the answers that were entered, if any, and look at the task again."""
    params, history = dict(state.params), list(state.history)
    if state.questions and trial.visit.request.POST.get("do") == "answer":
        asked = questions_of(state.questions, trial.visit.request.POST)
        # All of them are looked at, so that each says what is wrong with it.
        if [one for one in asked if not one.is_answered()]:
            return screens.asking(trial, state, asked)
        given = {**params, "inputResponses": {one.key: one.answer() for one in asked}}
        told = Runner(trial).run(("tasks/update", given))
        history += shown_exchanges(trial, told.exchanges)
    came = Runner(trial).run((state.method, params))
    history += shown_exchanges(trial, came.exchanges)
    if not came.result:
        return screens.task(trial, {}, came, history=history)
    task = came.result
    if task.get("status") in OVER and trial.revision.tasks:
        # The handshake revision tells the outcome by a method of its own.
        came = Runner(trial).run(("tasks/result", params))
        history += shown_exchanges(trial, came.exchanges)
        return screens.task(trial, task, came, history=history, url=url_of(trial, task))
    return _shown(trial, task, history, came)


def _shown(
    trial: Trial, task: Wire, history: list[Any], came: Round | None = None
) -> HttpResponseBase:
    history = history[-MAX_HISTORY:]
    request = ("tasks/get", {"taskId": task["taskId"]})
    asked = task.get("inputRequests") or {}
    state = waits(trial, request, FOLLOW, questions=asked, history=history)
    if asked:
        return screens.asking(trial, state, questions_of(asked), url=url_of(trial, task))
    if came is not None and task["status"] in OVER:
        return screens.task(
            trial, task, _outcome(task, came), history=history, url=url_of(trial, task)
        )
    return screens.task(trial, task, None, history=history, state=state, url=url_of(trial, task))


def _outcome(task: Wire, came: Round) -> Round:
    """What the call would have been answered with."""
    response = {name: task[name] for name in ("result", "error") if name in task}
    refusal = "" if response else str(task.get("statusMessage") or "")
    request, _ = came.exchanges[-1]
    return replace(came, exchanges=[(request, response)], refusal=refusal)


def url_of(trial: Trial, task: Wire) -> str:
    """The page of the task, for who may see it."""
    user: Any = trial.visit.request.user
    if not user.has_perm("mcp_django.view_task"):
        return ""
    site = getattr(trial.visit.request, "current_app", None)
    return reverse("admin:mcp_django_task_change", args=[quote(task["taskId"])], current_app=site)
