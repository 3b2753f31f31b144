"""What a channel of the test client carries, and what it can do."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol, TypeAlias

Message: TypeAlias = dict[str, Any]


class Channel(Protocol):
    """A way to the server, used on the serving loop."""

    def exchange(self, message: Message) -> AsyncGenerator[Message, None]:
        """Send a request; what belongs to it, its response last."""

    async def send(self, message: Message) -> None:
        """Send a notification, or the answer to a question."""

    async def cancel(self, message: Message) -> None:
        """Say that nobody waits for a request any more."""

    async def close(self) -> None:
        """Leave."""


def cancellation(message: Message) -> Message:
    """The notification that a request is not waited for."""
    params = {"requestId": message["id"]}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
