"""Drive an ASGI application in this process, one HTTP request at a time, streams included."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp_django.protocol import sse
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from tests.published.listening import Exchange

PATIENCE = 15
VERSION = "2026-07-28"


def message(
    method: str, params: Mapping[str, Any] | None = None, *, id: Any = 1, **extra: Any
) -> dict[str, Any]:
    """Return a request of 2026-07-28; `extra` goes into its `_meta` under the full keys."""
    envelope = {PROTOCOL_VERSION: VERSION, CLIENT_CAPABILITIES: {}, **extra}
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": method,
        "params": {**(params or {}), "_meta": envelope},
    }


def headers_for(body: Mapping[str, Any], **changes: str | None) -> dict[str, str]:
    """Return the headers of a request; `changes` sets (`_` stands for `-`) or removes some."""
    params = body.get("params", {})
    envelope = params.get("_meta")
    version = envelope.get(PROTOCOL_VERSION) if isinstance(envelope, Mapping) else None
    headers: dict[str, str | None] = {
        "host": "testserver",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION if version is None else str(version),
        "mcp-method": body.get("method"),
    }
    if body.get("method") in {"tools/call", "prompts/get"}:
        headers["mcp-name"] = params.get("name")
    if body.get("method") == "resources/read":
        headers["mcp-name"] = params.get("uri")
    headers.update({name.replace("_", "-"): value for name, value in changes.items()})
    return {name: value for name, value in headers.items() if value is not None}


@dataclass
class Answer:
    """The response of an application."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def json(self) -> Any:
        return json.loads(self.body)

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages of the stream, or the only message of the document."""
        if not self.is_stream:
            return [self.json()]
        # The event that opens a stream of 2025-11-25 has an id and no message.
        return [
            json.loads(event.data) for event in sse.EventDecoder().feed(self.body) if event.data
        ]

    def response(self) -> dict[str, Any]:
        """Return the response, which is the last message."""
        return self.messages()[-1]


class Connection:
    """One HTTP request to an ASGI application, read part by part.

    The messages of the application are validated by the published schema of their revision
    (`tests.published`). A violation is raised as soon as the test reads the next part.
    """

    def __init__(
        self,
        app: Any,
        path: str,
        body: bytes | Sequence[bytes],
        headers: Mapping[str, str],
        verb: str,
        *,
        complete: bool = True,
        root_path: str = "",
    ) -> None:
        self._parts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._body = deque([body] if isinstance(body, bytes) else body)
        self._complete = complete
        self.sent: list[dict[str, Any]] = []
        self.answer = Answer()
        self.acknowledged: dict[str, Any] = {}
        self._decoder = sse.EventDecoder()
        self._events: list[Any] = []
        self.exchange = Exchange(path, {name.lower(): value for name, value in headers.items()})
        self.exchange.ask(b"".join(self._body))
        path, _, query = path.partition("?")
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": verb,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": root_path,
            "query_string": query.encode(),
            "headers": [
                (k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()
            ],
            "client": ("127.0.0.1", 5000),
            "server": ("testserver", 80),
        }
        self.task = asyncio.create_task(app(self.scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            part = self._body.popleft()
            more = bool(self._body) or not self._complete
            return {"type": "http.request", "body": part, "more_body": more}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, part: dict[str, Any]) -> None:
        self.sent.append(part)
        self.exchange.take(part)
        await self._parts.put(part)

    async def part(self) -> dict[str, Any]:
        """Return the next ASGI message of the application."""
        waiting = asyncio.ensure_future(self._parts.get())
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait((waiting, self.task), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done() and self.task.done() and self._parts.empty():
                waiting.cancel()
                self.task.result()
                raise EOFError("the application ended without finishing its answer")
            next_part = await waiting
        self.exchange.complain()
        return next_part

    async def start(self) -> Answer:
        """Return the answer with its status and headers."""
        part = await self.part()
        assert part["type"] == "http.response.start", part
        self.answer.status = part["status"]
        self.answer.headers = {k.decode().lower(): v.decode("latin-1") for k, v in part["headers"]}
        return self.answer

    async def rest(self) -> Answer:
        """Return the answer with its whole body."""
        while True:
            part = await self.part()
            self.answer.body += part.get("body", b"")
            if not part.get("more_body"):
                return self.answer

    async def event(self) -> dict[str, Any]:
        """Return the next message of a stream; skip comments and events without a message."""
        while not self._events:
            part = await self.part()
            if part["type"] == "http.response.start":
                continue
            events = self._decoder.feed(part.get("body", b""))
            self._events.extend(event for event in events if event.data)
            if not part.get("more_body") and not self._events:
                raise EOFError("the stream ended")
        next_message: dict[str, Any] = json.loads(self._events.pop(0).data)
        return next_message

    def stall(self) -> None:
        """From now on, let the application wait until the test reads a part."""
        self._parts = asyncio.Queue(1)

    def disconnect(self) -> None:
        self._gone.set()

    async def close(self) -> None:
        """Disconnect, and wait until the application ends."""
        self.disconnect()
        async with asyncio.timeout(PATIENCE):
            await self.task
        self.exchange.complain()


@asynccontextmanager
async def connect(
    app: Any,
    path: str,
    body: Mapping[str, Any] | bytes,
    *,
    verb: str = "POST",
    **changes: str | None,
) -> AsyncIterator[Connection]:
    """Send a request, and disconnect at the end of the block."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = headers_for({} if isinstance(body, bytes) else body, **changes)
    connection = Connection(app, path, raw, headers, verb)
    try:
        yield connection
    finally:
        await connection.close()


async def send(
    app: Any,
    path: str,
    body: Mapping[str, Any] | bytes,
    *,
    verb: str = "POST",
    **changes: str | None,
) -> Answer:
    """Send a request and return the whole answer."""
    async with connect(app, path, body, verb=verb, **changes) as connection:
        await connection.start()
        return await connection.rest()
