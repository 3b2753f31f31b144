"""Results of the test client in the form that assertions want, and the answers of its user."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from mcp_django.exceptions import MCPError
from mcp_django.schema.elicitation import FIELD
from mcp_django.schema.values import jsonable


class ErrorResponse(MCPError):
    """The JSON-RPC error that a server answered with; ``code`` and ``data`` are its own."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"], data=error.get("data"))
        self.code = error["code"]  # type: ignore[misc]  # the server's, not the class's


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """What a tool answered."""

    raw: Mapping[str, Any]
    progress: Sequence[Mapping[str, Any]] = ()
    logs: Sequence[Mapping[str, Any]] = ()

    @property
    def content(self) -> list[dict[str, Any]]:
        """The content blocks; none while the tool still asks."""
        return list(self.raw.get("content", ()))

    @property
    def text(self) -> str:
        """All text blocks, one under the other."""
        return "\n".join(block["text"] for block in self.content if block["type"] == "text")

    @property
    def structured(self) -> Any:
        """The structured content, ``None`` when there is none."""
        return self.raw.get("structuredContent")

    @property
    def questions(self) -> list[dict[str, Any]]:
        """What the tool still asks, each with ``method`` and ``params``."""
        return list(self.raw.get("inputRequests", {}).values())

    @property
    def task_id(self) -> str:
        """The id of the task that the call has become, empty for an ordinary result."""
        return str(self.raw.get("taskId") or self.raw.get("task", {}).get("taskId", ""))

    @property
    def is_error(self) -> bool:
        """Whether the tool said that it failed."""
        return bool(self.raw.get("isError", False))


class ToolFailed(AssertionError):
    """A tool answered that it failed; says the tool and its text, ``result`` is the answer.

    What a tool cannot do is no error of the protocol: a model reads it. A test which expects it
    calls with ``check=False``, as with ``subprocess.run``, or catches this.
    """

    def __init__(self, what: str, result: CallResult) -> None:
        self.result = result
        super().__init__(f"{what} failed: {result.text or 'it does not say why.'}")


def checked(what: str, result: CallResult) -> CallResult:
    """The result, unless ``what`` has failed.

    Raises:
        ToolFailed: it has.
    """
    if result.is_error:
        raise ToolFailed(what, result)
    return result


@dataclass(slots=True)
class Recorder:
    """Keeps the notifications of a running call, in place of a stream."""

    messages: list[dict[str, Any]] = field(default_factory=list)

    def post(self, message: Any, *, key: Hashable = None) -> None:
        """Keep a notification."""
        self.messages.append(message)

    def params(self, method: str, *members: str) -> list[dict[str, Any]]:
        """The named members of every notification of this method, ``None`` for absent ones."""
        found = [one["params"] for one in self.messages if one["method"] == method]
        return [{member: params.get(member) for member in members} for params in found]


# What the user of a test answers ------------------------------------------------------------------
EVERYTHING: Final[Mapping[str, Any]] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}
"""The capabilities of a client that can be asked for anything."""


class Reaction(Enum):
    """An answer without content."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


ACCEPT: Final = Reaction.ACCEPT
DECLINE: Final = Reaction.DECLINE
CANCEL: Final = Reaction.CANCEL


def _to_answer(request: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """What a client sends for one question, given what the test says about it."""
    method = request["method"]
    if method == "elicitation/create":
        return _elicited(request["params"], given)
    if isinstance(given, Reaction):
        raise AssertionError(f"{given} answers a question to the user, and this is {method}.")
    if isinstance(given, Mapping):
        return dict(given)
    if method == "sampling/createMessage":
        content = {"type": "text", "text": str(given)}
        return {"role": "assistant", "content": content, "model": "test", "stopReason": "endTurn"}
    return {"roots": [{"uri": one} if isinstance(one, str) else one for one in given]}


def _elicited(params: Mapping[str, Any], given: Any) -> dict[str, Any]:
    if isinstance(given, Reaction):
        return {"action": given.value}
    content = jsonable(given)
    fields = params.get("requestedSchema", {}).get("properties", {})
    if not isinstance(content, dict) and list(fields) == [FIELD]:
        content = {FIELD: content}
    return {"action": "accept", "content": content}


def next_round(result: Mapping[str, Any], answers: Sequence[Any]) -> dict[str, Any]:
    """The parameters that the retry has in addition; one answer for each question, in order."""
    requests = result.get("inputRequests", {})
    if len(answers) < len(requests):
        asked = "; ".join(map(_shown, requests.values()))
        raise AssertionError(
            f"It asks {len(requests)} in one round ({asked}) and {len(answers)} answers are left; "
            "give one for each in answers=[…]."
        )
    given = {
        key: _to_answer(request, answer)
        for (key, request), answer in zip(requests.items(), answers, strict=False)
    }
    return {"inputResponses": given, "requestState": result.get("requestState")}


def _shown(request: Mapping[str, Any]) -> str:
    return str(request["params"].get("message", request["method"]))
