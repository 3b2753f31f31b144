"""The questions of a call to its client: each is a span, and carries the trace in ``_meta``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mcp_django.runtime.telemetry.attributes import OTHER

if TYPE_CHECKING:
    from mcp_django.runtime.telemetry.operation import Operation, Question

# JSON-RPC 2.0, section 5.1; and what clients answer whose user said no to sampling.
RESERVED = range(-32768, -31999)
REJECTED = -1
UNANSWERED = "timeout"
ABANDONED = "cancelled"


class Asking:
    """Questions that are under way, by the ids of their requests."""

    def __init__(self, operation: Operation | None) -> None:
        self._operation = operation
        self._open: dict[str, Question] = {}

    def sent(self, request_id: str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters as they are sent."""
        if self._operation is None:
            return dict(params)
        question = self._open[request_id] = self._operation.ask(method, request_id)
        carried = question.carried()
        if not carried:
            return dict(params)
        return {**params, "_meta": {**params.get("_meta", {}), **carried}}

    def answered(self, answers: Mapping[str, Mapping[str, Any]]) -> None:
        """All that can come has come."""
        for request_id in tuple(self._open):
            question = self._open.pop(request_id)
            answer = answers.get(request_id)
            question.end(UNANSWERED if answer is None else _error_of(answer))

    def end(self) -> None:
        """Nobody waits any more."""
        while self._open:
            self._open.popitem()[1].end(ABANDONED)


def _error_of(answer: Mapping[str, Any]) -> str:
    error = answer.get("error")
    if not isinstance(error, Mapping):
        return ""
    code = error.get("code")
    # A client may make up any number; those that somebody has defined are few.
    return str(code) if code == REJECTED or code in RESERVED else OTHER


@contextmanager
def asking(operation: Operation | None) -> Iterator[Asking]:
    """Around questions; without an operation they travel as they are."""
    found = Asking(operation)
    try:
        yield found
    finally:
        found.end()
