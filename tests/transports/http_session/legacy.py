"""A client of HTTP+SSE: one open stream, and posts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urljoin

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from mcp_django.models import AccessToken
from mcp_django.protocol import sse
from tests.kit.drivers import Answer, Connection, headers_for, send
from tests.transports.http_session.handshakes import encoded

PLAIN: dict[str, str | None] = {"mcp_protocol_version": None, "mcp_method": None}


class Stream:
    """An open stream and the address to post to."""

    def __init__(self, app: Any, connection: Connection, headers: dict[str, str | None]) -> None:
        self._app = app
        self._headers = headers
        self._decoder = sse.EventDecoder()
        self._events: list[Any] = []
        self.connection = connection
        self.path = ""

    async def event(self) -> Any:
        """Return the next event."""
        while not self._events:
            part = await self.connection.part()
            self._events.extend(self._decoder.feed(part.get("body", b"")))
            if not part.get("more_body") and not self._events:
                raise EOFError("the stream ended")
        return self._events.pop(0)

    async def said(self) -> Any:
        """Return the next message, or the answer to a batch."""
        event = await self.event()
        assert event.event == "message"
        return json.loads(event.data)

    async def post(self, body: Any, **changes: str | None) -> Answer:
        """Post a message, and return the answer to the POST."""
        headers = {**self._headers, **changes}
        return await send(self._app, self.path, encoded(body), **headers)

    def expect(self, body: Any) -> str:
        """Return a request for another process to hand over, whose answer comes on this stream."""
        raw = encoded(body)
        self.connection.exchange.ask_elsewhere(raw)
        return raw.decode()

    async def ask(self, body: Any) -> Any:
        """Post a message, which has to be accepted, and return the next message of the stream."""
        answer = await self.post(body)
        assert (answer.status, answer.body) == (202, b"")
        return await self.said()


@asynccontextmanager
async def opened(
    app: Any, path: str = "/open/mcp/sse", *, root_path: str = "", **changes: str | None
) -> AsyncIterator[Stream]:
    """Open a stream, and read the address to post to."""
    given = {**PLAIN, "accept": "text/event-stream", **changes}
    headers = headers_for({}, **given)
    connection = Connection(app, path, b"", headers, "GET", root_path=root_path)
    stream = Stream(app, connection, {**PLAIN, **changes})
    try:
        answer = await connection.start()
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
        event = await stream.event()
        assert event.event == "endpoint"
        stream.path = urljoin(path, event.data)
        yield stream
    finally:
        await connection.close()


async def issue(username: str) -> tuple[AccessToken, str]:
    user = await User.objects.acreate(username=username)
    token, plaintext = await sync_to_async(AccessToken.objects.issue)(user, name="test")
    return token, f"Bearer {plaintext}"
