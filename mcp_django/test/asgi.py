"""HTTP without a socket: one request to an ASGI application of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from mcp_django.transports.request_checks import Receive, Scope, Send

Part = MutableMapping[str, Any]


class Application(Protocol):
    """An ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""


class Response:
    """Status and headers, and a body that is read as it comes."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.coming: asyncio.Queue[Part | None] = asyncio.Queue()

    @property
    def is_stream(self) -> bool:
        """Whether the body is a series of events."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    async def start(self) -> None:
        """Wait for status and headers."""
        part = await self.coming.get()
        if part is not None:
            self.status = part["status"]
            self.headers = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in part["headers"]
            }

    async def parts(self) -> AsyncIterator[bytes]:
        """The body, part by part."""
        while (part := await self.coming.get()) is not None:
            yield part.get("body", b"")
            if not part.get("more_body", False):
                return

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([part async for part in self.parts()])


@asynccontextmanager
async def request(
    app: Application, verb: str, target: str, headers: Mapping[str, str], body: bytes = b""
) -> AsyncIterator[Response]:
    """Send a request; at the end the connection is closed and the application has ended."""
    gone = asyncio.Event()
    waiting = [{"type": "http.request", "body": body, "more_body": False}]
    response = Response()

    async def receive() -> Part:
        if waiting:
            return waiting.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    serving = asyncio.create_task(app(_scope(verb, target, headers), receive, response.coming.put))
    serving.add_done_callback(lambda _: response.coming.put_nowait(None))
    try:
        await response.start()
        if not response.status:
            await serving
            raise EOFError(f"{verb} {target} was not answered.")
        yield response
    finally:
        gone.set()
        await serving


def _scope(verb: str, target: str, headers: Mapping[str, str]) -> Scope:
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": verb,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in headers.items()
        ],
        "client": ("127.0.0.1", 5000),
        "server": ("testserver", 80),
    }
