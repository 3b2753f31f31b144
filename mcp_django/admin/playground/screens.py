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
    visit: ServerPageRequest,
    caller: PlaygroundCaller,
    chosen: Mapping[str, str],
    *,
    problem: str = "",
    status: int = 200,
) -> HttpResponseBase:
    """Show the components that the caller can use, or none and the problem."""
    revision = find_revision(visit.server.protocol_versions, chosen.get("revision", ""))
    found = {} if problem else visible_components(visit.server.catalog, caller, chosen.get("q", ""))
    groups = [
        {
            "kind": kind,
            "title": KIND_TITLES[KINDS[kind]],
            "more": max(0, len(components) - MAX_LISTED),
            "components": [
                (one, url_for(visit, caller, revision, kind=kind, key=one.key))
                for one in components[:MAX_LISTED]
            ],
        }
        for kind, components in found.items()
        if components
    ]
    context = _caller_context(visit, caller, revision)
    return visit.render(
        "try", status=status, groups=groups, problem=problem, chosen=chosen, **context
    )


def show_form(
    trial: PlaygroundTarget,
    entered: SchemaForm,
    *,
    outcome: RequestOutcome | None = None,
    suggested: str = "",
) -> HttpResponseBase:
    """Show the form of a component; ``outcome`` is the round that requested suggestions, if any."""
    context = {**_component_context(trial), "form": entered, "suggested": suggested}
    if outcome is not None:
        context["raw"] = format_exchanges(trial, outcome.exchanges)
        context["has_suggestions"] = bool(outcome.result.get("completion", {}).get("values"))
    return trial.visit.render("try_form", **context)


def show_confirmation(trial: PlaygroundTarget, state: PlaygroundState) -> HttpResponseBase:
    """Show the request that is about to run, for confirmation."""
    return trial.visit.render(
        "try_confirm",
        **_component_context(trial, state),
        arguments=format_arguments(trial, state.params),
        is_destructive=getattr(trial.component, "destructive", None) is not False,
    )


def show_client_requests(
    trial: PlaygroundTarget,
    state: PlaygroundState,
    asked: Sequence[ClientRequestForm],
    came: RequestOutcome | None = None,
    *,
    url: str = "",
) -> HttpResponseBase:
    """Show client requests as a second form; ``url`` is the page of their task, if any."""
    notes = came.notes.kept if came is not None else ()
    return trial.visit.render(
        "try_question",
        **_component_context(trial, state),
        is_of_task=state.step == FOLLOW,
        task_url=url,
        questions=asked,
        raw=state.history,
        notes=list(map(format_notification, notes)),
        is_multipart=any(one.form is not None and one.form.is_multipart() for one in asked),
    )


def show_answer(
    trial: PlaygroundTarget,
    outcome: RequestOutcome,
    *,
    history: Sequence[Any],
    form: SchemaForm,
    state: PlaygroundState | None,
) -> HttpResponseBase:
    """Show the answer above the form; ``state`` is that of the run after a dry run."""
    return trial.visit.render(
        "try_form",
        **_component_context(trial, state),
        answer=build_answer(trial, outcome),
        is_dry=state is not None,
        arguments=format_arguments(trial, state.params) if state is not None else "",
        form=form,
        raw=history,
    )


def show_task(
    trial: PlaygroundTarget,
    found: Mapping[str, Any],
    outcome: RequestOutcome | None,
    *,
    history: Sequence[Any],
    state: PlaygroundState | None = None,
    url: str = "",
) -> HttpResponseBase:
    """Show the status of a task; ``outcome`` is its final outcome, or that of a failed poll."""
    return trial.visit.render(
        "try_task",
        **_component_context(trial, state),
        task=found,
        task_status=dict(Task.Status.choices).get(found.get("status", "")),
        task_url=url,
        raw=history,
        answer=None if outcome is None else build_answer(trial, outcome),
    )


def _state_context(state: PlaygroundState) -> dict[str, Any]:
    try:
        return {"state": state.sign()}
    except StateTooLarge:
        text = _(
            "This request is too large to be kept in the page until you answer. Use a client or "
            "“manage.py mcp call”."
        )
        return {"too_large": text}


def _component_context(
    trial: PlaygroundTarget, state: PlaygroundState | None = None
) -> dict[str, Any]:
    """Return the context that every page of a component has, with the signed state if any."""
    visit = trial.visit
    is_json = visit.request.GET.get("as") == "json"
    return {
        **_caller_context(visit, trial.caller, trial.revision),
        **(_state_context(state) if state is not None else {}),
        "trial": trial,
        "component": trial.component,
        "kind_title": KIND_TITLES[KINDS[trial.kind]],
        "choose_url": url_for(visit, trial.caller, trial.revision),
        "form_url": f"{trial.url}&as=json" if is_json else trial.url,
        "other_url": trial.url if is_json else f"{trial.url}&as=json",
        "is_json": is_json,
        "title": _("Try it: %(name)s") % {"name": trial.component.title or trial.component.name},
    }


def _caller_context(
    visit: ServerPageRequest, caller: PlaygroundCaller, revision: Revision
) -> dict[str, Any]:
    """Return the context that every page of the playground has."""
    return {
        "caller": caller,
        "revision": revision,
        "revisions": visit.server.protocol_versions,
        "may_act_as_others": may_act_as_others(visit.request),
        "base_url": base_url(visit),
    }


# The signed state of the next page ---------------------------------------------------------------


def build_state(
    trial: PlaygroundTarget, request: MethodCall, step: str, **details: Any
) -> PlaygroundState:
    """Return the state of a request that waits for confirmation or answers."""
    method, params = request
    return PlaygroundState(
        owner=session_digest(trial.visit.request),
        server=trial.visit.server.name,
        kind=trial.kind,
        key=trial.key,
        user=trial.caller.name if trial.caller.acting else "",
        revision=trial.revision.version,
        step=step,
        method=method,
        params=params,
        **details,
    )
