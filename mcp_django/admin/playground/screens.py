"""The responses of the playground's steps: their templates and contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import HttpResponseBase
from django.utils.translation import gettext as _

from mcp_django.admin.base import KIND_TITLES, ServerPageRequest
from mcp_django.admin.playground.answers import (
    build_answer,
    format_arguments,
    format_exchanges,
    format_notification,
)
from mcp_django.admin.playground.forms import SchemaForm
from mcp_django.admin.playground.playground import (
    KINDS,
    MethodCall,
    PlaygroundCaller,
    PlaygroundTarget,
    RequestOutcome,
    base_url,
    find_revision,
    may_act_as_others,
    url_for,
    visible_components,
)
from mcp_django.admin.playground.questions import (
    FOLLOW,
    ClientRequestForm,
    PlaygroundState,
    StateTooLarge,
    session_digest,
)
from mcp_django.models import Task
from mcp_django.protocol.revisions import Revision

# The number of components listed per kind; others can be found by search.
MAX_LISTED = 100


def show_components(
    page_request: ServerPageRequest,
    caller: PlaygroundCaller,
    query: Mapping[str, str],
    *,
    problem: str = "",
    status: int = 200,
) -> HttpResponseBase:
    """Show the components that the caller can use, or none and the problem."""
    revision = find_revision(page_request.server.protocol_versions, query.get("revision", ""))
    components_by_kind = (
        {}
        if problem
        else visible_components(page_request.server.catalog, caller, query.get("q", ""))
    )
    groups = [
        {
            "kind": kind,
            "title": KIND_TITLES[KINDS[kind]],
            "more": max(0, len(components) - MAX_LISTED),
            "components": [
                (component, url_for(page_request, caller, revision, kind=kind, key=component.key))
                for component in components[:MAX_LISTED]
            ],
        }
        for kind, components in components_by_kind.items()
        if components
    ]
    context = _caller_context(page_request, caller, revision)
    return page_request.render(
        "playground", status=status, groups=groups, problem=problem, chosen=query, **context
    )


def show_form(
    target: PlaygroundTarget,
    form: SchemaForm,
    *,
    outcome: RequestOutcome | None = None,
    suggested: str = "",
) -> HttpResponseBase:
    """Show the form of a component; ``outcome`` is the round that requested suggestions, if any."""
    context = {**_component_context(target), "form": form, "suggested": suggested}
    if outcome is not None:
        context["raw"] = format_exchanges(target, outcome.exchanges)
        context["has_suggestions"] = bool(outcome.result.get("completion", {}).get("values"))
    return target.page_request.render("playground_form", **context)


def show_confirmation(target: PlaygroundTarget, state: PlaygroundState) -> HttpResponseBase:
    """Show the request that is about to run, for confirmation."""
    return target.page_request.render(
        "playground_confirm",
        **_component_context(target, state),
        arguments=format_arguments(target, state.params),
        is_destructive=getattr(target.component, "destructive", None) is not False,
    )


def show_client_requests(
    target: PlaygroundTarget,
    state: PlaygroundState,
    forms: Sequence[ClientRequestForm],
    outcome: RequestOutcome | None = None,
    *,
    url: str = "",
) -> HttpResponseBase:
    """Show client requests as a second form; ``url`` is the page of their task, if any."""
    notes = outcome.notes.kept if outcome is not None else ()
    return target.page_request.render(
        "playground_question",
        **_component_context(target, state),
        is_of_task=state.step == FOLLOW,
        task_url=url,
        questions=forms,
        raw=state.history,
        notes=list(map(format_notification, notes)),
        is_multipart=any(form.form is not None and form.form.is_multipart() for form in forms),
    )


def show_answer(
    target: PlaygroundTarget,
    outcome: RequestOutcome,
    *,
    history: Sequence[Any],
    form: SchemaForm,
    state: PlaygroundState | None,
) -> HttpResponseBase:
    """Show the answer above the form; ``state`` is that of the run after a dry run."""
    return target.page_request.render(
        "playground_form",
        **_component_context(target, state),
        answer=build_answer(target, outcome),
        is_dry=state is not None,
        arguments=format_arguments(target, state.params) if state is not None else "",
        form=form,
        raw=history,
    )


def show_task(
    target: PlaygroundTarget,
    task: Mapping[str, Any],
    outcome: RequestOutcome | None,
    *,
    history: Sequence[Any],
    state: PlaygroundState | None = None,
    url: str = "",
) -> HttpResponseBase:
    """Show the status of a task; ``outcome`` is its final outcome, or that of a failed poll."""
    return target.page_request.render(
        "playground_task",
        **_component_context(target, state),
        task=task,
        task_status=dict(Task.Status.choices).get(task.get("status", "")),
        task_url=url,
        raw=history,
        answer=None if outcome is None else build_answer(target, outcome),
    )


def _component_context(
    target: PlaygroundTarget, state: PlaygroundState | None = None
) -> dict[str, Any]:
    """Return the context that every page of a component has, with the signed state if any."""
    page_request = target.page_request
    is_json = page_request.request.GET.get("as") == "json"
    state_context = {}
    if state is not None:
        try:
            state_context["state"] = state.sign()
        except StateTooLarge:
            state_context["too_large"] = _(
                "This request is too large to be kept in the page until you answer. Use a client "
                "or “manage.py mcp call”."
            )
    return {
        **_caller_context(page_request, target.caller, target.revision),
        **state_context,
        "target": target,
        "component": target.component,
        "kind_title": KIND_TITLES[KINDS[target.kind]],
        "choose_url": url_for(page_request, target.caller, target.revision),
        "form_url": f"{target.url}&as=json" if is_json else target.url,
        "other_url": target.url if is_json else f"{target.url}&as=json",
        "is_json": is_json,
        "title": _("Try it: %(name)s") % {"name": target.component.title or target.component.name},
    }


def _caller_context(
    page_request: ServerPageRequest, caller: PlaygroundCaller, revision: Revision
) -> dict[str, Any]:
    """Return the context that every page of the playground has."""
    return {
        "caller": caller,
        "revision": revision,
        "revisions": page_request.server.protocol_versions,
        "may_act_as_others": may_act_as_others(page_request.request),
        "base_url": base_url(page_request),
    }


def build_state(
    target: PlaygroundTarget, request: MethodCall, step: str, **details: Any
) -> PlaygroundState:
    """Return the state of a request that waits for confirmation or answers."""
    method, params = request
    return PlaygroundState(
        owner=session_digest(target.page_request.request),
        server=target.page_request.server.name,
        kind=target.kind,
        key=target.key,
        user=target.caller.name if target.caller.acting else "",
        revision=target.revision.version,
        step=step,
        method=method,
        params=params,
        **details,
    )
