"""The page: what is chosen, entered, confirmed and answered, and what each step shows next.

A GET chooses; whatever runs is a POST. Each step looks again at who may what, whatever the page
before it showed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponseBase
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mcp_django.admin.pages import Visit, page
from mcp_django.admin.trying import attachments, following, screens
from mcp_django.admin.trying.callers import Caller, NoSuchUser, caller_for
from mcp_django.admin.trying.forms import SchemaForm
from mcp_django.admin.trying.history import record
from mcp_django.admin.trying.questions import questions_of
from mcp_django.admin.trying.raw import without_secrets
from mcp_django.admin.trying.requests import (
    Request,
    completion_request,
    request_for,
)
from mcp_django.admin.trying.running import Round, Runner
from mcp_django.admin.trying.state import CONFIRM, FOLLOW, BadState, State, read_state
from mcp_django.admin.trying.steps import Step, asks, dry_run, waits
from mcp_django.admin.trying.trials import PREVIEW, Trial, entered, find, revision_named
from mcp_django.conf import get_settings
from mcp_django.exceptions import AccessRefused, MCPError
from mcp_django.execution.policy import admit_connection, visible
from mcp_django.storage import databases

WHOLE = "json"


@page("try", title=gettext_lazy("Try it"), permission="try_components")
def try_it(visit: Visit) -> HttpResponseBase:
    """The page of a server, and the attachments of its answers.

    Raises:
        Http404: there is nothing at that address.
        PermissionDenied: another user was named, and that takes a permission of its own.
    """
    if visit.rest.startswith(attachments.PREFIX):
        return attachments.serve(visit, visit.rest.removeprefix(attachments.PREFIX))
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


# What comes from the form of a component ------------------------------------------------------


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
    """Run what only reads; ask once more about the rest."""
    form = _form(trial, is_sent=True)
    request = _request(trial, form)
    if request is None:
        return screens.form(trial, form)
    if trial.may_write:
        state = waits(trial, request, CONFIRM)
        return screens.confirming(trial, state)
    return _go(trial, _first(trial, request), form=_form(trial, given=form.values))


def _preview(trial: Trial) -> HttpResponseBase:
    """Run dry what can be run dry."""
    form = _form(trial, is_sent=True)
    request = _request(trial, form)
    if request is None or not trial.has_preview:
        return screens.form(trial, form)
    step = _first(trial, dry_run(request))
    return _go(trial, step, form=_form(trial, given=form.values))


def _suggest(trial: Trial) -> HttpResponseBase:
    """The same form with suggestions for one argument."""
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


# What comes with a state ----------------------------------------------------------------------


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
        return following.follow(trial, state)
    asked = questions_of(state.questions, trial.visit.request.POST)
    # All of them are looked at, so that each says what is wrong with it.
    unanswered = [one for one in asked if not one.is_answered()]
    if unanswered:
        return screens.asking(trial, state, asked)
    # The last answer makes the call go on to what it writes, so it is given once as well.
    if trial.may_write and not _is_first_time(state):
        return _was_run(trial)
    answers = [*state.answers, {one.key: one.answer() for one in asked}]
    return _go(
        trial,
        Step(
            request=request,
            answers=answers,
            request_state=state.request_state,
            history=state.history,
            is_first=False,
            has_preview=trial.has_preview,
        ),
    )


def _first(trial: Trial, request: Request) -> Step:
    return Step(request=request, has_preview=trial.has_preview)


def _was_run(trial: Trial) -> HttpResponseBase:
    problem = _("This was run already; begin again.")
    return screens.choosing(trial.visit, trial.caller, {}, problem=problem, status=400)


def _is_first_time(state: State) -> bool:
    """Whether this confirmation was not used before, in any process; it is used now."""
    return databases.take(f"try:{state.nonce}", seconds=get_settings().question_timeout)


def _go(trial: Trial, step: Step, form: SchemaForm | None = None) -> HttpResponseBase:
    """Send the request, and show what came of it or what is asked."""
    if step.is_first and (trial.caller.acting or (trial.may_write and not step.is_dry)):
        record(trial)
    came: Round = Runner(trial, answers=step.answers, state=step.request_state).run(step.request)
    if came.questions:
        asked = questions_of(came.questions)
        return screens.asking(trial, asks(trial, step, came), asked, came=came)
    if following.task_of(came):
        return following.begun(trial, step, came)
    state = waits(trial, step.for_real, CONFIRM) if step.is_dry else None
    return screens.answered(trial, step, came, form=form or _refilled(trial, step), state=state)


def _refilled(trial: Trial, step: Step) -> SchemaForm:
    return _form(trial, given=step.for_real[1].get("arguments", trial.values))


# What is shared -------------------------------------------------------------------------------


def _door(visit: Visit, caller: Caller) -> str:
    """Why the caller does not get into the server, empty if he does."""
    try:
        visit.server.refresh(is_list=True)
        admit_connection(visit.server, caller.principal)
    except (AccessRefused, MCPError) as exc:
        return exc.message
    return ""


def _gone() -> str:
    return _("There is nothing of that name that this user may use.")


def _trial(visit: Visit, caller: Caller, chosen: Mapping[str, str]) -> Trial | None:
    """What is tried; what the caller may not see looks as if it were not there."""
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
    """The request that was entered; without one the form says why."""
    if not form.is_valid():
        return None
    try:
        return request_for(trial, form.values)
    except ValidationError as exc:
        form.add_error(None, exc)
        return None
