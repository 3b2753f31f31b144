"""The playground's page *Try it*: choose a component, enter arguments, confirm and run.

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


@server_page(
    "playground",
    slug="try",
    title=gettext_lazy("Try it"),
    permission="try_components",
    has_subpages=True,
)
def playground_page(page_request: ServerPageRequest) -> HttpResponseBase:
    """Serve the playground of a server, and the attachments of its answers.

    Raises:
        Http404: the path does not exist.
        PermissionDenied: another user was named without the permission ``try_as_another``.
    """
    if page_request.rest.startswith(answers.PREFIX):
        return answers.serve_attachment(
            page_request, page_request.rest.removeprefix(answers.PREFIX)
        )
    if page_request.rest:
        raise Http404
    if page_request.request.method != "POST":
        return _handle_query(page_request, _show_empty_form)
    step = FORM_ACTIONS.get(page_request.request.POST.get("do", ""))
    if step is None and page_request.request.POST.get("suggest"):
        step = _show_suggestions
    if step is not None:
        return _handle_query(page_request, step)
    try:
        state = read_state(page_request.request, page_request.server.name)
        caller = caller_for(page_request.request, state.user)
    except (InvalidState, NoSuchUser) as exc:
        me = caller_for(page_request.request, "")
        return screens.show_components(page_request, me, {}, problem=str(exc), status=400)
    query = {"kind": state.kind, "key": state.key, "revision": state.revision}
    return _run_step(page_request, caller, query, partial(_continue_from_state, state=state))


def _handle_query(page_request: ServerPageRequest, step: Step) -> HttpResponseBase:
    """Run a step for the component that the URL names."""
    query = read_query(page_request.request)
    try:
        caller = caller_for(page_request.request, query["user"])
    except NoSuchUser as exc:
        me = caller_for(page_request.request, "")
        return screens.show_components(page_request, me, query, problem=str(exc))
    return _run_step(page_request, caller, query, step)


def _run_step(
    page_request: ServerPageRequest, caller: PlaygroundCaller, query: Mapping[str, str], step: Step
) -> HttpResponseBase:
    """Run a step for the chosen component, or show why that is not possible."""
    is_post = page_request.request.method == "POST"
    problem = ""
    try:
        admit_caller(page_request.server, lambda: caller.principal, is_list=True)
    except (AccessRefused, MCPError) as exc:
        problem = exc.message
    if problem:
        status = 404 if is_post else 200
        return screens.show_components(page_request, caller, query, problem=problem, status=status)
    if not is_post and not query["kind"]:
        return screens.show_components(page_request, caller, query)
    match = find_component(page_request.server.catalog, query.get("kind", ""), query.get("key", ""))
    if match is None or not is_visible(caller.principal, match[1]):
        problem = _("No component with this name exists that this user may use.")
        return screens.show_components(page_request, caller, query, problem=problem, status=404)
    kind, component, values = match
    revision = find_revision(page_request.server.protocol_versions, query.get("revision", ""))
    return step(
        PlaygroundTarget(
            page_request=page_request,
            caller=caller,
            revision=revision,
            kind=kind,
            component=component,
            values=values,
        )
    )


def _show_empty_form(target: PlaygroundTarget) -> HttpResponseBase:
    """Show the form, with the variables of a URI, or with the arguments of a call in the log.

    Values that the log hides are left out.
    """
    arguments: Mapping[str, Any] | None = target.values or None
    request = target.page_request.request
    pk = "" if arguments else request.GET.get("call", "")
    if pk.isdecimal() and len(pk) < 19 and request.user.has_perm("mcp_django.view_call"):
        calls = of_tenant(Call).filter(
            pk=pk,
            server=target.page_request.server.name,
            kind=target.component.kind,
            component=target.component.key,
        )
        logged = calls.values_list("arguments", flat=True).first()
        if isinstance(logged, dict):
            arguments = {
                name: value for name, value in logged.items() if HIDDEN not in json.dumps(value)
            }
    return screens.show_form(target, _form(target, arguments=arguments))


def _run_component(target: PlaygroundTarget, *, is_preview: bool = False) -> HttpResponseBase:
    """Run a component that only reads; show the confirmation page for any other.

    A preview is a dry run, so it needs no confirmation.
    """
    form = _form(target, is_sent=True)
    request = _request(target, form)
    if request is None or (is_preview and not target.has_preview):
        return screens.show_form(target, form)
    if is_preview:
        method, params = request
        request = method, {**params, "arguments": {**params["arguments"], PREVIEW: True}}
    state = build_state(target, request, CONFIRM)
    if target.may_write and not is_preview:
        return screens.show_confirmation(target, state)
    return _send(target, state, form=_form(target, arguments=form.values))


def _show_suggestions(target: PlaygroundTarget) -> HttpResponseBase:
    """Show the same form with suggestions for one argument."""
    post = target.page_request.request.POST
    name = post.get("suggest", "")
    form = _form(target, is_sent=True, is_unfinished=True)
    if name not in target.completed_arguments:
        return screens.show_form(target, form, suggested=name)
    other_values = {
        control.name: text
        for control in form.controls
        if control.name != name and (text := form.typed_text(control.name))
    }
    request = build_completion_request(target, name, form.typed_text(name), other_values)
    outcome = send_request(target, request)
    values = outcome.result.get("completion", {}).get("values", [])
    suggestions = {name: [str(value) for value in values]}
    form = _form(target, is_sent=True, is_unfinished=True, suggestions=suggestions)
    return screens.show_form(target, form, outcome=outcome, suggested=name)


FORM_ACTIONS: Mapping[str, Step] = {
    "run": _run_component,
    "preview": partial(_run_component, is_preview=True),
}


def _continue_from_state(target: PlaygroundTarget, state: PlaygroundState) -> HttpResponseBase:
    if target.page_request.request.POST.get("do") == "edit":
        return screens.show_form(target, _form(target, arguments=state.params.get("arguments", {})))
    if state.step == CONFIRM:
        if not _use_confirmation(state):
            return _show_already_run(target)
        return _send(target, state)
    if state.step == FOLLOW:
        return _poll_task(target, state)
    forms = build_client_requests(state.questions, target.page_request.request.POST)
    # All forms are validated, so that each shows its errors.
    unanswered = [form for form in forms if not form.is_answered()]
    if unanswered:
        return screens.show_client_requests(target, state, forms)
    # After the last answer the call continues to its writes, so it is accepted only once.
    if target.may_write and not _use_confirmation(state):
        return _show_already_run(target)
    all_answers = [*state.answers, {form.key: form.answer() for form in forms}]
    return _send(target, replace(state, answers=all_answers))


def _show_already_run(target: PlaygroundTarget) -> HttpResponseBase:
    problem = _("This call was already run; start again.")
    return screens.show_components(
        target.page_request, target.caller, {}, problem=problem, status=400
    )


def _use_confirmation(state: PlaygroundState) -> bool:
    """Use up the confirmation; return whether no process has used it before."""
    return databases.take_lease(f"try:{state.nonce}", seconds=get_settings().client_request_timeout)


def _send(
    target: PlaygroundTarget, state: PlaygroundState, form: SchemaForm | None = None
) -> HttpResponseBase:
    """Send the request with the answers so far; show its result or its client requests."""
    params = dict(state.params)
    arguments = params.get("arguments", target.values)
    is_preview = target.has_preview and arguments.get(PREVIEW) is True
    if not state.answers and (target.caller.acting or (target.may_write and not is_preview)):
        log_run(target)
    request = (state.method, params)
    outcome = send_request(target, request, answers=state.answers, state=state.request_state)
    history = [*state.history, *format_exchanges(target, outcome.exchanges)]
    if outcome.client_requests:
        pending = replace(
            state,
            step=ASK,
            questions=outcome.client_requests,
            request_state=str(outcome.result.get("requestState", "")),
            history=history[-MAX_HISTORY:],
            nonce=new_code(),
        )
        forms = build_client_requests(outcome.client_requests)
        return screens.show_client_requests(target, pending, forms, outcome=outcome)
    if _task_in(outcome):
        return _show_task(target, _task_in(outcome), history)
    next_state = None
    if is_preview:
        arguments = {name: value for name, value in arguments.items() if name != PREVIEW}
        run_params = {**params, "arguments": arguments}
        next_state = build_state(target, (state.method, run_params), CONFIRM)
    form = form or _form(target, arguments=arguments)
    return screens.show_answer(target, outcome, history=history, form=form, state=next_state)


def _form(
    target: PlaygroundTarget,
    *,
    arguments: Mapping[str, Any] | None = None,
    is_sent: bool = False,
    is_unfinished: bool = False,
    suggestions: Mapping[str, list[str]] | None = None,
) -> SchemaForm:
    request = target.page_request.request
    return SchemaForm(
        target.form_schema,
        request.POST if is_sent else None,
        request.FILES if is_sent else None,
        initial_values=None if arguments is None else remove_secrets(target, arguments),
        exclude=(PREVIEW,) if target.has_preview else (),
        is_whole=request.GET.get("as") == WHOLE,
        is_unfinished=is_unfinished,
        completed=target.completed_arguments,
        suggestions=suggestions,
    )


def _request(target: PlaygroundTarget, form: SchemaForm) -> MethodCall | None:
    """Return the request for the entered values, or ``None`` and add the errors to the form."""
    if not form.is_valid():
        return None
    try:
        return build_request(target, form.values)
    except ValidationError as exc:
        form.add_error(None, exc)
        return None


# A call that became a task ------------------------------------------------------------------------

Wire = Mapping[str, Any]
TERMINAL_STATUSES = ("completed", "failed", "cancelled")


def _task_in(outcome: RequestOutcome) -> Wire:
    """Return the task that a call became, empty if the call returned a result."""
    if outcome.result.get("resultType") == "task":
        return outcome.result
    task = outcome.result.get("task")
    return task if isinstance(task, dict) and "taskId" in task else {}


def _poll_task(target: PlaygroundTarget, state: PlaygroundState) -> HttpResponseBase:
    """Send the entered answers, if any, and poll the task."""
    params, history = dict(state.params), list(state.history)
    if state.questions and target.page_request.request.POST.get("do") == "answer":
        forms = build_client_requests(state.questions, target.page_request.request.POST)
        # All forms are validated, so that each shows its errors.
        if [form for form in forms if not form.is_answered()]:
            return screens.show_client_requests(target, state, forms)
        update_params = {**params, "inputResponses": {form.key: form.answer() for form in forms}}
        outcome = send_request(target, ("tasks/update", update_params))
        history += format_exchanges(target, outcome.exchanges)
    outcome = send_request(target, (state.method, params))
    history += format_exchanges(target, outcome.exchanges)
    if not outcome.result:
        return screens.show_task(target, {}, outcome, history=history)
    task = outcome.result
    if task.get("status") in TERMINAL_STATUSES and target.revision.tasks:
        # In the handshake revision, a separate method returns the result.
        outcome = send_request(target, ("tasks/result", params))
        history += format_exchanges(target, outcome.exchanges)
        return screens.show_task(
            target, task, outcome, history=history, url=_task_url(target, task)
        )
    return _show_task(target, task, history, outcome)


def _show_task(
    target: PlaygroundTarget, task: Wire, history: list[Any], outcome: RequestOutcome | None = None
) -> HttpResponseBase:
    history = history[-MAX_HISTORY:]
    request = ("tasks/get", {"taskId": task["taskId"]})
    url = _task_url(target, task)
    client_requests = task.get("inputRequests") or {}
    state = build_state(target, request, FOLLOW, questions=client_requests, history=history)
    if client_requests:
        return screens.show_client_requests(
            target, state, build_client_requests(client_requests), url=url
        )
    if outcome is not None and task["status"] in TERMINAL_STATUSES:
        # With the response that the call would have had without a task.
        response = {name: task[name] for name in ("result", "error") if name in task}
        refusal = "" if response else str(task.get("statusMessage") or "")
        poll, _response = outcome.exchanges[-1]
        final_outcome = replace(outcome, exchanges=[(poll, response)], refusal=refusal)
        return screens.show_task(target, task, final_outcome, history=history, url=url)
    return screens.show_task(target, task, None, history=history, state=state, url=url)


def _task_url(target: PlaygroundTarget, task: Wire) -> str:
    """Return the URL of the task's page, empty if the user may not view it."""
    user: Any = target.page_request.request.user
    if not user.has_perm("mcp_django.view_task"):
        return ""
    site = getattr(target.page_request.request, "current_app", None)
    return reverse("admin:mcp_django_task_change", args=[quote(task["taskId"])], current_app=site)
