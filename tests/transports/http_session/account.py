"""The messages that one client got for one call, and whether they are allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class End(StrEnum):
    """How a call ended for its client."""

    COMPLETE = "complete"
    """Every number and the result."""
    LOST = "lost"
    """A prefix of the numbers and one error that says that no more will come."""
    UNSENT = "unsent"
    """The connection broke before the first event, so there is no id to resume with."""
    UNKNOWN = "unknown"
    """An id that a worker had sent was unknown to another worker."""
    STUCK = "stuck"
    """No end came in time."""
    BAD = "bad"
    """Numbers are missing, repeated or out of order; a foreign message; or a second end."""


@dataclass(kw_only=True)
class Account:
    """The messages of one call as they came, over all of its connections."""

    request_id: int
    numbers: int
    """How many numbers the tool was told to report."""
    ids: list[str] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    connections: list[str] = field(default_factory=list)
    """How each connection ended, for the text of a failure."""
    is_refused: bool = False
    """Whether the last connection was refused."""
    is_unknown: bool = False
    is_stuck: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the response has come."""
        return any(is_response(message) for message in self.messages)

    @property
    def end(self) -> End:
        """How the call ended, judged by its messages."""
        if self.is_unknown:
            return End.UNKNOWN
        if not self._is_orderly:
            return End.BAD
        if self.is_stuck:
            return End.STUCK
        if not self.messages:
            return End.UNSENT
        return End.LOST if "error" in self.messages[-1] else End.COMPLETE

    @property
    def _is_orderly(self) -> bool:
        *before, last = self.messages or [{}]
        if not is_response(last):
            before = self.messages
        progress = [message.get("params", {}).get("progress") for message in before]
        if progress != list(range(1, len(progress) + 1)) or len(set(self.ids)) < len(self.ids):
            return False
        if not is_response(last):
            return self.is_stuck or not self.messages
        if last.get("id") != self.request_id:
            return False
        return "error" in last or (
            len(progress) == self.numbers and text_of(last) == f"counted to {self.numbers}"
        )

    def __str__(self) -> str:
        progress = [message.get("params", {}).get("progress", message) for message in self.messages]
        return (
            f"{self.end}: call {self.request_id} of {self.numbers} numbers, {progress},"
            f" ids {self.ids}, {len(self.connections)} connections,"
            f" the last of them {self.connections[-12:]}"
        )


def is_response(message: dict[str, Any]) -> bool:
    """Return whether a message ends its call."""
    return "id" in message and "method" not in message


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a tool's result."""
    text: str = message["result"]["content"][0]["text"]
    return text


def tally(accounts: Iterable[Account]) -> dict[str, int]:
    """Return how many calls ended in each way, including the ways with none."""
    counted = Counter(account.end for account in accounts)
    return {end.value: counted[end] for end in End}
