"""Reads the events of a stream one by one, with their ids."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from mcp_django.protocol import sse
from tests.kit.drivers import Connection


class Ended(Exception):
    """The stream has no further event."""


class Reader:
    """The events of one connection; comments are skipped."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.raw = b""
        self.ids: list[str] = []
        self.is_over = False
        self._decoder = sse.EventDecoder()
        self._events: deque[sse.ServerSentEvent] = deque()

    async def event(self) -> sse.ServerSentEvent:
        """Return the next event, even if it has no data.

        Raises:
            Ended: the stream has no further event.
        """
        while not self._events:
            if self.is_over:
                raise Ended
            await self._part()
        event = self._events.popleft()
        if event.id is not None:
            self.ids.append(event.id)
        return event

    async def _part(self) -> None:
        part = await self.connection.part()
        if part["type"] == "http.response.start":
            return
        self.raw += part.get("body", b"")
        self._events.extend(self._decoder.feed(part.get("body", b"")))
        self.is_over = not part.get("more_body")

    async def message(self) -> dict[str, Any]:
        """Return the next message."""
        while not (event := await self.event()).data:
            pass
        message: dict[str, Any] = json.loads(event.data)
        return message

    async def comment(self) -> None:
        """Wait until the stream has begun, or sent a keepalive."""
        seen = len(self.raw)
        while len(self.raw) == seen:
            await self._part()

    async def rest(self) -> list[dict[str, Any]]:
        """Return every message up to the end of the stream."""
        messages = []
        try:
            while True:
                messages.append(await self.message())
        except Ended:
            return messages
