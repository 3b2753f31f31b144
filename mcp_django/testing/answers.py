"""Results of the test client for use in assertions, and the answers of the test's user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from mcp_django.exceptions import MCPError
from mcp_django.schema.elicitation import FIELD
from mcp_django.schema.values import jsonable


class ErrorResponse(MCPError):
    """The JSON-RPC error that the server returned, with its ``code``, ``message`` and ``data``."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"], data=error.get("data"))
        self.code = error["code"]  # type: ignore[misc]  # the server's, not the class's


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """The result of a tool call."""

    raw: Mapping[str, Any]
    progress: Sequence[Mapping[str, Any]] = ()
    logs: Sequence[Mapping[str, Any]] = ()

    @property
    def content(self) -> list[dict[str, Any]]:
        """The content blocks; empty while the tool waits for answers."""
        return list(self.raw.get("content", ()))

    @property
    def text(self) -> str:
        """The text of all text blocks, joined with newlines."""
        return "\n".join(block["text"] for block in self.content if block["type"] == "text")

    @property
    def structured(self) -> Any:
        """The structured content, or ``None``."""
        return self.raw.get("structuredContent")

    @property
    def questions(self) -> list[dict[str, Any]]:
        """The unanswered client requests of the tool, each with ``method`` and ``params``."""
        return list(self.raw.get("inputRequests", {}).values())

    @property
    def task_id(self) -> str:
        """The id of the task that runs the call; empty for an ordinary result."""
        return str(self.raw.get("taskId") or self.raw.get("task", {}).get("taskId", ""))

    @property
    def is_error(self) -> bool:
        """Whether the result has ``isError`` set."""
        return bool(self.raw.get("isError", False))


class ToolFailed(AssertionError):
    """A tool returned an error ``result``; the message has the tool's name and the result's text.

    A tool error is not a protocol error: the model reads it. A test that expects it calls the tool
    with ``check=False``, as with ``subprocess.run``, or catches this exception.
    """

    def __init__(self, what: str, result: CallResult) -> None:
        self.result = result
        super().__init__(f"{what} failed: {result.text or 'it gives no reason.'}")


def raise_for_error(what: str, result: CallResult) -> CallResult:
    """Return the result if it is not an error; ``what`` names the tool in the exception.

    Raises:
        ToolFailed: the result is an error.
    """
    if result.is_error:
        raise ToolFailed(what, result)
    return result


@dataclass(slots=True)
class NotificationRecorder:
    """Records the notifications of a running call, instead of sending them."""

    messages: list[dict[str, Any]] = field(default_factory=list)

    def add(self, message: dict[str, Any]) -> None:
        """Record a notification."""
        self.messages.append(message)

    def params(self, method: str, *members: str) -> list[dict[str, Any]]:
        """Return the named params of each notification of a method, ``None`` for absent ones."""
        all_params = [message["params"] for message in self.messages if message["method"] == method]
        return [{member: params.get(member) for member in members} for params in all_params]


ALL_CAPABILITIES: Final[Mapping[str, Any]] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}
"""The capabilities of a client that supports all client requests."""


class Reaction(Enum):
    """An answer without content."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


ACCEPT: Final = Reaction.ACCEPT
DECLINE: Final = Reaction.DECLINE
CANCEL: Final = Reaction.CANCEL


def _to_answer(request: Mapping[str, Any], answer: Any) -> dict[str, Any]:
    """Convert an answer given by the test to the result of a client request."""
    method = request["method"]
    if method == "elicitation/create":
        params = request["params"]
        if isinstance(answer, Reaction):
            return {"action": answer.value}
        content = jsonable(answer)
        fields = params.get("requestedSchema", {}).get("properties", {})
        if not isinstance(content, dict) and list(fields) == [FIELD]:
            content = {FIELD: content}
        return {"action": "accept", "content": content}
    if isinstance(answer, Reaction):
        raise AssertionError(
            f"{answer} answers only elicitation/create, but the server sent {method}."
        )
    if isinstance(answer, Mapping):
        return dict(answer)
    if method == "sampling/createMessage":
        content = {"type": "text", "text": str(answer)}
        return {"role": "assistant", "content": content, "model": "test", "stopReason": "endTurn"}
    return {"roots": [{"uri": root} if isinstance(root, str) else root for root in answer]}


def build_answers(
    requests: Mapping[str, Mapping[str, Any]], answers: Sequence[Any]
) -> dict[str, Any]:
    """Return the answers to client requests by key; ``answers`` are in the order of the requests.

    Raises:
        AssertionError: there are fewer answers than requests.
    """
    if len(answers) < len(requests):
        pairs = [(request["params"], request["method"]) for request in requests.values()]
        questions = "; ".join(str(params.get("message", method)) for params, method in pairs)
        raise AssertionError(
            f"Questions in one round: {len(requests)} ({questions}), but {len(answers)} answers "
            "are left; give one for each in answers=[…]."
        )
    return {
        key: _to_answer(request, answer)
        for (key, request), answer in zip(requests.items(), answers, strict=False)
    }
