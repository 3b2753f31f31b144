"""``Step``: one request on its way, and the states that its next page needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_django.admin.trying.raw import shown_exchanges
from mcp_django.admin.trying.requests import Request
from mcp_django.admin.trying.running import Round
from mcp_django.admin.trying.state import ASK, State, owner_of
from mcp_django.admin.trying.trials import PREVIEW, Trial

# Rounds whose messages are still shown.
MAX_HISTORY = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A request, with what was answered so far and the messages of earlier rounds."""

    request: Request
    answers: Sequence[Mapping[str, Any]] = ()
    request_state: str = ""
    history: Sequence[Any] = ()
    is_first: bool = True
    has_preview: bool = False
    """Whether an argument of that name is the one of the write tools of models."""

    @property
    def is_dry(self) -> bool:
        """Whether it takes back what it does."""
        return self.has_preview and self._arguments.get(PREVIEW) is True

    @property
    def for_real(self) -> Request:
        """The same request, not dry."""
        method, params = self.request
        if not self.is_dry:
            return method, params
        arguments = {key: value for key, value in self._arguments.items() if key != PREVIEW}
        return method, {**params, "arguments": arguments}

    @property
    def _arguments(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.request[1].get("arguments", {})
        return found


def dry_run(request: Request) -> Request:
    """The same request, taking back what it does."""
    method, params = request
    return method, {**params, "arguments": {**params["arguments"], PREVIEW: True}}


def waits(trial: Trial, request: Request, step: str, **details: Any) -> State:
    """The state of a request that waits for a yes, or for answers."""
    method, params = request
    return State(
        owner=owner_of(trial.visit.request),
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


def asks(trial: Trial, step: Step, came: Round) -> State:
    """The state of a request that was asked something."""
    history = [*step.history, *shown_exchanges(trial, came.exchanges)]
    return waits(
        trial,
        step.request,
        ASK,
        questions=came.questions,
        request_state=str(came.result.get("requestState", "")),
        answers=list(step.answers),
        history=history[-MAX_HISTORY:],
    )
