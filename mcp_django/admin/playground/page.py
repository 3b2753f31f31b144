"""The playground's page *Try it*: choose, enter, confirm, run, and the next page of each step.

A GET request only chooses a component; running it takes a POST. Each step checks permissions
again, whatever the previous page showed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from django.contrib.admin.utils import quote
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy

from mcp_django.admin.base import Visit, page
from mcp_django.admin.playground import answers, screens
from mcp_django.admin.playground.answers import shown_exchanges, without_secrets
from mcp_django.admin.playground.forms import SchemaForm
from mcp_django.admin.playground.playground import (
    PREVIEW,
    Caller,
    NoSuchUser,
    Request,
    Round,
    Runner,
    Trial,
    caller_for,
    completion_request,
    entered,
    find,
    record,
    request_for,
    revision_named,
)
from mcp_django.admin.playground.questions import (
    CONFIRM,
    FOLLOW,
    BadState,
    State,
    questions_of,
    read_state,
)
from mcp_django.admin.playground.screens import MAX_HISTORY, Step, asks, dry_run, waits
from mcp_django.conf import get_settings
from mcp_django.exceptions import AccessRefused, MCPError
from mcp_django.execution.policy import admit_connection, visible
from mcp_django.storage import databases

WHOLE = "json"


@page("try", title=gettext_lazy("Try it"), permission="try_components")
def try_it(visit: Visit) -> HttpResponseBase:
    """Serve the playground of a server, and the attachments of its answers.

    Raises:
        Http404: the path does not exist.
        PermissionDenied: another user was named without the permission ``try_as_another``.
    """
    if visit.rest.startswith(answers.PREFIX):
        return answers.serve(visit, visit.rest.removeprefix(answers.PREFIX))
    if visit.rest:
        raise Http404
    if visit.request.method == "POST":
        return _post(visit)
    return _get(visit)


def _get(visit: Visit) -> HttpResponseBase:
    chosen = entered(visit.request)
    try:
        caller = caller_for(visit.request, chosen["user"])
    except NoSuchUser as exc:
        return screens.choosing(visit, caller_for(visit.request, ""), chosen, problem=str(exc))
    if problem := _door(visit, caller):
        return screens.choosing(visit, caller, chosen, problem=problem)
    if not chosen["kind"]:
        return screens.choosing(visit, caller, chosen)
    trial = _trial(visit, caller, chosen)
    if trial is None:
        return screens.choosing(visit, caller, chosen, problem=_gone(), status=404)
    return screens.form(trial, _form(trial, given=trial.values or None))


def _post(visit: Visit) -> HttpResponseBase:
    step = DEEDS.get(visit.request.POST.get("do", ""))
    if step is not None:
        return _from_form(visit, step)
    if visit.request.POST.get("suggest"):
        return _from_form(visit, _suggest)
    return _from_state(visit)


# Submissions of the form of a component -----------------------------------------------------------


def _from_form(visit: Visit, deed: Callable[[Trial], HttpResponseBase]) -> HttpResponseBase:
    chosen = entered(visit.request)
    try:
        caller = caller_for(visit.request, chosen["user"])
    except NoSuchUser as exc:
        return screens.choosing(visit, caller_for(visit.request, ""), chosen, problem=str(exc))
    trial = None if (problem := _door(visit, caller)) else _trial(visit, caller, chosen)
    if trial is None:
        problem = problem or _gone()
        return screens.choosing(visit, caller, chosen, problem=problem, status=404)
    return deed(trial)


def _run(trial: Trial) -> HttpResponseBase:
    """Run a component that only reads; show the confirmation page for any other."""
    form = _form(trial, is_sent=True)
    request = _request(trial, form)
    if request is None:
        return screens.form(trial, form)
    if trial.may_write:
        state = waits(trial, request, CONFIRM)
        return screens.confirming(trial, state)
    return _go(trial, _first(trial, request), form=_form(trial, given=form.values))


def _preview(trial: Trial) -> HttpResponseBase:
    """Run the component as a dry run, if it supports that."""
    form = _form(trial, is_sent=True)
    request = _request(trial, form)
    if request is None or not trial.has_preview:
        return screens.form(trial, form)
    step = _first(trial, dry_run(request))
    return _go(trial, step, form=_form(trial, given=form.values))


def _suggest(trial: Trial) -> HttpResponseBase:
    """Show the same form with suggestions for one argument."""
    post = trial.visit.request.POST
    name = post.get("suggest", "")
    if name not in trial.completed:
        form = _form(trial, is_sent=True, is_unfinished=True)
        return screens.form(trial, form, suggested=name)
    typed = _form(trial, is_sent=True, is_unfinished=True)
    others = {
        one.name: text
        for one in typed.controls
        if one.name != name and (text := typed.typed_text(one.name))
    }
    request = completion_request(trial, name, typed.typed_text(name), others)
    came = Runner(trial).run(request)
    values = came.result.get("completion", {}).get("values", [])
    form = _form(
        trial, is_sent=True, is_unfinished=True, suggestions={name: [str(v) for v in values]}
    )
    return screens.form(trial, form, came=came, suggested=name)


DEEDS: Mapping[str, Callable[[Trial], HttpResponseBase]] = {"run": _run, "preview": _preview}


# Submissions with a signed state ------------------------------------------------------------------


def _from_state(visit: Visit) -> HttpResponseBase:
    try:
        state = read_state(visit.request, visit.server.name)
        caller = caller_for(visit.request, state.user)
    except (BadState, NoSuchUser) as exc:
        me = caller_for(visit.request, "")
        return screens.choosing(visit, me, {}, problem=str(exc), status=400)
    chosen = {"kind": state.kind, "key": state.key, "revision": state.revision}
    trial = None if (problem := _door(visit, caller)) else _trial(visit, caller, chosen)
    if trial is None:
        problem = problem or _gone()
        return screens.choosing(visit, caller, chosen, problem=problem, status=404)
    return _with_state(trial, state)


def _with_state(trial: Trial, state: State) -> HttpResponseBase:
    request = (state.method, dict(state.params))
    if trial.visit.request.POST.get("do") == "edit":
        return screens.form(trial, _form(trial, given=state.params.get("arguments", {})))
    if state.step == CONFIRM:
        if not _is_first_time(state):
            return _was_run(trial)
        return _go(trial, _first(trial, request))
    if state.step == FOLLOW:
        return _follow(trial, state)
    asked = questions_of(state.questions, trial.visit.request.POST)
    # All of them are validated, so that each shows its errors.
    unanswered = [one for one in asked if not one.is_answered()]
    if unanswered:
        return screens.asking(trial, state, asked)
    # After the last answer the call continues to its writes, so it is accepted only once.
    if trial.may_write and not _is_first_time(state):
        return _was_run(trial)
    given = [*state.answers, {one.key: one.answer() for one in asked}]
    return _go(
        trial,
        Step(
            request=request,
            answers=given,
            request_state=state.request_state,
            history=state.history,
            is_first=False,
            has_preview=trial.has_preview,
        ),
    )


def _first(trial: Trial, request: Request) -> Step:
    return Step(request=request, has_preview=trial.has_preview)


def _was_run(trial: Trial) -> HttpResponseBase:
    problem = _("This call was already run; start again.")
    return screens.choosing(trial.visit, trial.caller, {}, problem=problem, status=400)


def _is_first_time(state: State) -> bool:
    """Use up the confirmation; return whether no process has used it before."""
    return databases.take(f"try:{state.nonce}", seconds=get_settings().question_timeout)


def _go(trial: Trial, step: Step, form: SchemaForm | None = None) -> HttpResponseBase:
    """Send the request, and show its result or its client requests."""
    if step.is_first and (trial.caller.acting or (trial.may_write and not step.is_dry)):
        record(trial)
    came: Round = Runner(trial, answers=step.answers, state=step.request_state).run(step.request)
    if came.questions:
        asked = questions_of(came.questions)
        return screens.asking(trial, asks(trial, step, came), asked, came=came)
    if _task_of(came):
        return _begun(trial, step, came)
    state = waits(trial, step.for_real, CONFIRM) if step.is_dry else None
    return screens.answered(trial, step, came, form=form or _refilled(trial, step), state=state)


def _refilled(trial: Trial, step: Step) -> SchemaForm:
    return _form(trial, given=step.for_real[1].get("arguments", trial.values))


# Helpers of all submissions -----------------------------------------------------------------------


def _door(visit: Visit, caller: Caller) -> str:
    """Return why the server rejects the caller, or an empty string."""
    try:
        visit.server.refresh(is_list=True)
        admit_connection(visit.server, caller.principal)
    except (AccessRefused, MCPError) as exc:
        return exc.message
    return ""


def _gone() -> str:
    return _("No component with this name exists that this user may use.")


def _trial(visit: Visit, caller: Caller, chosen: Mapping[str, str]) -> Trial | None:
    """Return the chosen trial, or ``None`` if the component is missing or not visible."""
    found = find(visit.server.offered, chosen.get("kind", ""), chosen.get("key", ""))
    if found is None or not visible(caller.principal, found[1]):
        return None
    kind, component, values = found
    revision = revision_named(visit.server.protocol_versions, chosen.get("revision", ""))
    return Trial(
        visit=visit,
        caller=caller,
        revision=revision,
        kind=kind,
        component=component,
        values=values,
    )


def _form(
    trial: Trial,
    *,
    given: Mapping[str, Any] | None = None,
    is_sent: bool = False,
    is_unfinished: bool = False,
    suggestions: Mapping[str, list[str]] | None = None,
) -> SchemaForm:
    request = trial.visit.request
    return SchemaForm(
        trial.form_schema,
        request.POST if is_sent else None,
        request.FILES if is_sent else None,
        given=None if given is None else without_secrets(trial, given),
        leave=(PREVIEW,) if trial.has_preview else (),
        is_whole=request.GET.get("as") == WHOLE,
        is_unfinished=is_unfinished,
        completed=trial.completed,
        suggestions=suggestions,
    )


def _request(trial: Trial, form: SchemaForm) -> Request | None:
    """Return the request that was entered, or ``None`` with errors in the form."""
    if not form.is_valid():
        return None
    try:
        return request_for(trial, form.values)
    except ValidationError as exc:
        form.add_error(None, exc)
        return None


# A call that became a task ------------------------------------------------------------------------

Wire = Mapping[str, Any]
OVER = ("completed", "failed", "cancelled")


def _task_of(came: Round) -> Wire:
    """Return the task that a call became, empty if the call returned a result."""
    if came.result.get("resultType") == "task":
        return came.result
    found = came.result.get("task")
    return found if isinstance(found, dict) and "taskId" in found else {}


def _begun(trial: Trial, step: Step, came: Round) -> HttpResponseBase:
    """Show the task of a call that was just sent."""
    history = [*step.history, *shown_exchanges(trial, came.exchanges)]
    return _shown(trial, _task_of(came), history)


def _follow(trial: Trial, state: State) -> HttpResponseBase:
    """Send the entered answers, if any, and poll the task."""
    params, history = dict(state.params), list(state.history)
    if state.questions and trial.visit.request.POST.get("do") == "answer":
        asked = questions_of(state.questions, trial.visit.request.POST)
        # All of them are validated, so that each shows its errors.
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
        # In the handshake revision, a separate method returns the result.
        came = Runner(trial).run(("tasks/result", params))
        history += shown_exchanges(trial, came.exchanges)
        return screens.task(trial, task, came, history=history, url=_url_of(trial, task))
    return _shown(trial, task, history, came)


def _shown(
    trial: Trial, task: Wire, history: list[Any], came: Round | None = None
) -> HttpResponseBase:
    history = history[-MAX_HISTORY:]
    request = ("tasks/get", {"taskId": task["taskId"]})
    asked = task.get("inputRequests") or {}
    state = waits(trial, request, FOLLOW, questions=asked, history=history)
    if asked:
        return screens.asking(trial, state, questions_of(asked), url=_url_of(trial, task))
    if came is not None and task["status"] in OVER:
        return screens.task(
            trial, task, _outcome(task, came), history=history, url=_url_of(trial, task)
        )
    return screens.task(trial, task, None, history=history, state=state, url=_url_of(trial, task))


def _outcome(task: Wire, came: Round) -> Round:
    """Return the round with the response that the call would have had without a task."""
    response = {name: task[name] for name in ("result", "error") if name in task}
    refusal = "" if response else str(task.get("statusMessage") or "")
    request, _ = came.exchanges[-1]
    return replace(came, exchanges=[(request, response)], refusal=refusal)


def _url_of(trial: Trial, task: Wire) -> str:
    """Return the URL of the task's page, empty if the user may not view it."""
    user: Any = trial.visit.request.user
    if not user.has_perm("mcp_django.view_task"):
        return ""
    site = getattr(trial.visit.request, "current_app", None)
    return reverse("admin:mcp_django_task_change", args=[quote(task["taskId"])], current_app=site)
