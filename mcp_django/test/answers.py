"""What a server answered, in the form that assertions want."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_django.exceptions import MCPError


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
