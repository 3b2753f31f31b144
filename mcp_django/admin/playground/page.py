"""The playground's page *Try it*: choose, enter, confirm, run, and the next page of each step.

A GET request only chooses a component; running it takes a POST. Each step checks permissions
again, whatever the previous page showed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from django.contrib.admin.utils import quote
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy

from mcp_django.admin.base import ServerPageRequest, server_page
from mcp_django.admin.playground import answers, screens
from mcp_django.admin.playground.answers import format_exchanges, remove_secrets
from mcp_django.admin.playground.forms import SchemaForm
from mcp_django.admin.playground.playground import (
    PREVIEW,
    MethodCall,
    NoSuchUser,
    PlaygroundCaller,
    PlaygroundTarget,
    RequestOutcome,
    build_completion_request,
    build_request,
    caller_for,
    find_component,
    find_revision,
    log_run,
    read_query,
    send_request,
)
from mcp_django.admin.playground.questions import (
    ASK,
    CONFIRM,
    FOLLOW,
    InvalidState,
    PlaygroundState,
    build_client_requests,
    read_state,
)
from mcp_django.admin.playground.screens import build_state
from mcp_django.conf import get_settings
from mcp_django.exceptions import AccessRefused, MCPError
from mcp_django.execution.policy import admit_caller, is_visible
from mcp_django.models import Call
from mcp_django.models.calls import new_code
from mcp_django.schema.secrets import HIDDEN
from mcp_django.storage import databases
from mcp_django.tenants import of_tenant

WHOLE = "json"
# The number of rounds whose messages are shown.
MAX_HISTORY = 10
Step = Callable[[PlaygroundTarget], HttpResponseBase]


@server_page("try", title=gettext_lazy("Try it"), permission="try_components", has_subpages=True)
def playground_page(visit: ServerPageRequest) -> HttpResponseBase:
    """Serve the playground of a server, and the attachments of its answers.

    Raises:
        Http404: the path does not exist.
        PermissionDenied: another user was named without the permission ``try_as_another``.
    """
    if visit.rest.startswith(answers.PREFIX):
        return answers.serve_attachment(visit, visit.rest.removeprefix(answers.PREFIX))
    if visit.rest:
        raise Http404
    if visit.request.method != "POST":
        return _handle_query(visit, _show_empty_form)
    step = FORM_ACTIONS.get(visit.request.POST.get("do", ""))
    if step is None and visit.request.POST.get("suggest"):
        step = _show_suggestions
    return _handle_state(visit) if step is None else _handle_query(visit, step)


def _handle_query(visit: ServerPageRequest, step: Step) -> HttpResponseBase:
    """Run a step for the component that the URL names."""
    chosen = read_query(visit.request)
    try:
        caller = caller_for(visit.request, chosen["user"])
    except NoSuchUser as exc:
        me = caller_for(visit.request, "")
        return screens.show_components(visit, me, chosen, problem=str(exc))
    return _run_step(visit, caller, chosen, step)


def _run_step(
    visit: ServerPageRequest, caller: PlaygroundCaller, chosen: Mapping[str, str], step: Step
) -> HttpResponseBase:
    """Run a step for the chosen component, or show why that is not possible."""
    is_post = visit.request.method == "POST"
    if problem := _connection_problem(visit, caller):
        status = 404 if is_post else 200
        return screens.show_components(visit, caller, chosen, problem=problem, status=status)
    if not is_post and not chosen["kind"]:
        return screens.show_components(visit, caller, chosen)
    trial = _find_target(visit, caller, chosen)
    if trial is None:
        problem = _("No component with this name exists that this user may use.")
        return screens.show_components(visit, caller, chosen, problem=problem, status=404)
    return step(trial)


# Steps of the form of a component -----------------------------------------------------------------


def _show_empty_form(trial: PlaygroundTarget) -> HttpResponseBase:
    """Show the form, with the variables of a URI, or with the arguments of a call in the log."""
    given = trial.values or _logged_arguments(trial)
    return screens.show_form(trial, _form(trial, given=given))


def _logged_arguments(trial: PlaygroundTarget) -> Mapping[str, Any] | None:
    """Return the logged arguments of the call that the URL names, without hidden values."""
    request = trial.visit.request
    named = request.GET.get("call", "")
    if not (
        named.isdecimal() and len(named) < 19 and request.user.has_perm("mcp_django.view_call")
    ):
        return None
    calls = of_tenant(Call).filter(
        pk=named,
        server=trial.visit.server.name,
        kind=trial.component.kind,
        component=trial.component.key,
    )
    found = calls.values_list("arguments", flat=True).first()
    if not isinstance(found, dict):
        return None
    return {name: value for name, value in found.items() if HIDDEN not in json.dumps(value)}


def _run_component(trial: PlaygroundTarget) -> HttpResponseBase:
    """Run a component that only reads; show the confirmation page for any other."""
    form = _form(trial, is_sent=True)
    request = _request(trial, form)
    if request is None:
        return screens.show_form(trial, form)
    state = build_state(trial, request, CONFIRM)
    if trial.may_write:
        return screens.show_confirmation(trial, state)
    return _send(trial, state, form=_form(trial, given=form.values))


def _run_preview(trial: PlaygroundTarget) -> HttpResponseBase:
    """Run the component as a dry run, if it supports that."""
    form = _form(trial, is_sent=True)
    request = _request(trial, form)
    if request is None or not trial.has_preview:
        return screens.show_form(trial, form)
    method, params = request
    params = {**params, "arguments": {**params["arguments"], PREVIEW: True}}
    state = build_state(trial, (method, params), CONFIRM)
    return _send(trial, state, form=_form(trial, given=form.values))


def _show_suggestions(trial: PlaygroundTarget) -> HttpResponseBase:
    """Show the same form with suggestions for one argument."""
    post = trial.visit.request.POST
    name = post.get("suggest", "")
    typed = _form(trial, is_sent=True, is_unfinished=True)
    if name not in trial.completed_arguments:
        return screens.show_form(trial, typed, suggested=name)
    others = {
        one.name: text
        for one in typed.controls
        if one.name != name and (text := typed.typed_text(one.name))
    }
    request = build_completion_request(trial, name, typed.typed_text(name), others)
    came = send_request(trial, request)
    values = came.result.get("completion", {}).get("values", [])
    found = {name: [str(v) for v in values]}
    form = _form(trial, is_sent=True, is_unfinished=True, suggestions=found)
    return screens.show_form(trial, form, outcome=came, suggested=name)


FORM_ACTIONS: Mapping[str, Step] = {
    "run": _run_component,
    "preview": _run_preview,
}


# Submissions with a signed state ------------------------------------------------------------------


def _handle_state(visit: ServerPageRequest) -> HttpResponseBase:
    try:
        state = read_state(visit.request, visit.server.name)
        caller = caller_for(visit.request, state.user)
    except (InvalidState, NoSuchUser) as exc:
        me = caller_for(visit.request, "")
        return screens.show_components(visit, me, {}, problem=str(exc), status=400)
    chosen = {"kind": state.kind, "key": state.key, "revision": state.revision}
    return _run_step(visit, caller, chosen, partial(_continue_from_state, state=state))


def _continue_from_state(trial: PlaygroundTarget, state: PlaygroundState) -> HttpResponseBase:
    if trial.visit.request.POST.get("do") == "edit":
        return screens.show_form(trial, _form(trial, given=state.params.get("arguments", {})))
    if state.step == CONFIRM:
        if not _use_confirmation(state):
            return _show_already_run(trial)
        return _send(trial, state)
    if state.step == FOLLOW:
        return _poll_task(trial, state)
    asked = build_client_requests(state.questions, trial.visit.request.POST)
    # All of them are validated, so that each shows its errors.
    unanswered = [one for one in asked if not one.is_answered()]
    if unanswered:
        return screens.show_client_requests(trial, state, asked)
    # After the last answer the call continues to its writes, so it is accepted only once.
    if trial.may_write and not _use_confirmation(state):
        return _show_already_run(trial)
    given = [*state.answers, {one.key: one.answer() for one in asked}]
    return _send(trial, replace(state, answers=given))


def _show_already_run(trial: PlaygroundTarget) -> HttpResponseBase:
    problem = _("This call was already run; start again.")
    return screens.show_components(trial.visit, trial.caller, {}, problem=problem, status=400)


def _use_confirmation(state: PlaygroundState) -> bool:
    """Use up the confirmation; return whether no process has used it before."""
    return databases.take_lease(f"try:{state.nonce}", seconds=get_settings().client_request_timeout)


def _send(
    trial: PlaygroundTarget, state: PlaygroundState, form: SchemaForm | None = None
) -> HttpResponseBase:
    """Send the request with the answers so far; show its result or its client requests."""
    params = dict(state.params)
    arguments = params.get("arguments", trial.values)
    is_preview = trial.has_preview and arguments.get(PREVIEW) is True
    if not state.answers and (trial.caller.acting or (trial.may_write and not is_preview)):
        log_run(trial)
    request = (state.method, params)
    came = send_request(trial, request, answers=state.answers, state=state.request_state)
    history = [*state.history, *format_exchanges(trial, came.exchanges)]
    if came.client_requests:
        pending = replace(
            state,
            step=ASK,
            questions=came.client_requests,
            request_state=str(came.result.get("requestState", "")),
            history=history[-MAX_HISTORY:],
            nonce=new_code(),
        )
        asked = build_client_requests(came.client_requests)
        return screens.show_client_requests(trial, pending, asked, came=came)
    if _task_in(came):
        return _show_task(trial, _task_in(came), history)
    following = None
    if is_preview:
        arguments = {name: value for name, value in arguments.items() if name != PREVIEW}
        real = {**params, "arguments": arguments}
        following = build_state(trial, (state.method, real), CONFIRM)
    form = form or _form(trial, given=arguments)
    return screens.show_answer(trial, came, history=history, form=form, state=following)


# Helpers of all submissions -----------------------------------------------------------------------


def _connection_problem(visit: ServerPageRequest, caller: PlaygroundCaller) -> str:
    """Return why the server rejects the caller, or an empty string."""
    try:
        admit_caller(visit.server, lambda: caller.principal, is_list=True)
    except (AccessRefused, MCPError) as exc:
        return exc.message
    return ""


def _find_target(
    visit: ServerPageRequest, caller: PlaygroundCaller, chosen: Mapping[str, str]
) -> PlaygroundTarget | None:
    """Return the chosen trial, or ``None`` if the component is missing or not visible."""
    found = find_component(visit.server.catalog, chosen.get("kind", ""), chosen.get("key", ""))
    if found is None or not is_visible(caller.principal, found[1]):
        return None
    kind, component, values = found
    revision = find_revision(visit.server.protocol_versions, chosen.get("revision", ""))
    return PlaygroundTarget(
        visit=visit,
        caller=caller,
        revision=revision,
        kind=kind,
        component=component,
        values=values,
    )


def _form(
    trial: PlaygroundTarget,
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
        initial_values=None if given is None else remove_secrets(trial, given),
        exclude=(PREVIEW,) if trial.has_preview else (),
        is_whole=request.GET.get("as") == WHOLE,
        is_unfinished=is_unfinished,
        completed=trial.completed_arguments,
        suggestions=suggestions,
    )


def _request(trial: PlaygroundTarget, form: SchemaForm) -> MethodCall | None:
    """Return the request that was entered, or ``None`` with errors in the form."""
    if not form.is_valid():
        return None
    try:
        return build_request(trial, form.values)
    except ValidationError as exc:
        form.add_error(None, exc)
        return None


# A call that became a task ------------------------------------------------------------------------

Wire = Mapping[str, Any]
TERMINAL_STATUSES = ("completed", "failed", "cancelled")


def _task_in(came: RequestOutcome) -> Wire:
    """Return the task that a call became, empty if the call returned a result."""
    if came.result.get("resultType") == "task":
        return came.result
    found = came.result.get("task")
    return found if isinstance(found, dict) and "taskId" in found else {}


def _poll_task(trial: PlaygroundTarget, state: PlaygroundState) -> HttpResponseBase:
    """Send the entered answers, if any, and poll the task."""
    params, history = dict(state.params), list(state.history)
    if state.questions and trial.visit.request.POST.get("do") == "answer":
        asked = build_client_requests(state.questions, trial.visit.request.POST)
        # All of them are validated, so that each shows its errors.
        if [one for one in asked if not one.is_answered()]:
            return screens.show_client_requests(trial, state, asked)
        given = {**params, "inputResponses": {one.key: one.answer() for one in asked}}
        told = send_request(trial, ("tasks/update", given))
        history += format_exchanges(trial, told.exchanges)
    came = send_request(trial, (state.method, params))
    history += format_exchanges(trial, came.exchanges)
    if not came.result:
        return screens.show_task(trial, {}, came, history=history)
    task = came.result
    if task.get("status") in TERMINAL_STATUSES and trial.revision.tasks:
        # In the handshake revision, a separate method returns the result.
        came = send_request(trial, ("tasks/result", params))
        history += format_exchanges(trial, came.exchanges)
        return screens.show_task(trial, task, came, history=history, url=_task_url(trial, task))
    return _show_task(trial, task, history, came)


def _show_task(
    trial: PlaygroundTarget, task: Wire, history: list[Any], came: RequestOutcome | None = None
) -> HttpResponseBase:
    history = history[-MAX_HISTORY:]
    request = ("tasks/get", {"taskId": task["taskId"]})
    url = _task_url(trial, task)
    asked = task.get("inputRequests") or {}
    state = build_state(trial, request, FOLLOW, questions=asked, history=history)
    if asked:
        return screens.show_client_requests(trial, state, build_client_requests(asked), url=url)
    if came is not None and task["status"] in TERMINAL_STATUSES:
        outcome = _call_outcome(task, came)
        return screens.show_task(trial, task, outcome, history=history, url=url)
    return screens.show_task(trial, task, None, history=history, state=state, url=url)


def _call_outcome(task: Wire, came: RequestOutcome) -> RequestOutcome:
    """Return the round with the response that the call would have had without a task."""
    response = {name: task[name] for name in ("result", "error") if name in task}
    refusal = "" if response else str(task.get("statusMessage") or "")
    request, _ = came.exchanges[-1]
    return replace(came, exchanges=[(request, response)], refusal=refusal)


def _task_url(trial: PlaygroundTarget, task: Wire) -> str:
    """Return the URL of the task's page, empty if the user may not view it."""
    user: Any = trial.visit.request.user
    if not user.has_perm("mcp_django.view_task"):
        return ""
    site = getattr(trial.visit.request, "current_app", None)
    return reverse("admin:mcp_django_task_change", args=[quote(task["taskId"])], current_app=site)
