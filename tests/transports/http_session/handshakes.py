"""A client of a handshake revision at one mount of this process, one message at a time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from mcp_django.protocol.revisions import HANDSHAKE
from tests.kit.drivers import Answer, Connection, connect
from tests.transports.asgi import MOUNTS
from tests.transports.mounts import ask

VERSIONS = [revision.version for revision in HANDSHAKE]
A, B, C, D = reversed(VERSIONS)
OPEN = "/open/mcp"
STAGE = "/stage/mcp"
CLIENT = {"name": "tester", "version": "1"}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def request(method: str, params: Any = None, *, id: Any = 1) -> dict[str, Any]:
    """Return a request without an envelope."""
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    return message if params is None else {**message, "params": params}


def initialize(version: Any = D, *, id: Any = 1, **changes: Any) -> dict[str, Any]:
    """Return the first message of a session; `None` removes a parameter."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT, **changes}
    return request("initialize", {k: v for k, v in params.items() if v is not None}, id=id)


def call(name: str, /, *, id: Any = 1, progress: Any = None, **arguments: Any) -> dict[str, Any]:
    """Return a call of a tool, with a progress token if one is given."""
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    if progress is not None:
        params["_meta"] = {"progressToken": progress}
    return request("tools/call", params, id=id)


def notification(method: str, **params: Any) -> dict[str, Any]:
    """Return a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def code_of(answer: Answer) -> int:
    """Return the code of the error in an answer."""
    code: int = answer.json()["error"]["code"]
    return code


class Peer:
    """One client; `headers` go with each of its messages."""

    def __init__(
        self, mount: str, path: str = OPEN, *, version: str = D, token: str | None = None
    ) -> None:
        self.mount = mount
        self.path = path
        self.version = version
        self.headers: dict[str, str | None] = {
            "mcp_protocol_version": None,
            "mcp_method": None,
            "authorization": token,
        }
        self._ids = count(100)

    @property
    def id(self) -> str:
        """The id of the session."""
        session_id = self.headers["mcp_session_id"]
        assert session_id is not None
        return session_id

    async def open(self, **capabilities: Any) -> dict[str, Any]:
        """Open a session, and return the result of `initialize`."""
        answer = await self.send(initialize(self.version, capabilities=capabilities))
        assert answer.status == 200, answer.body
        self.headers["mcp_session_id"] = answer.headers["mcp-session-id"]
        self.headers["mcp_protocol_version"] = self.version
        accepted = await self.send(INITIALIZED)
        assert (accepted.status, accepted.body) == (202, b"")
        result: dict[str, Any] = answer.json()["result"]
        return result

    async def send(self, body: Any, *, verb: str = "POST", **changes: str | None) -> Answer:
        """Send a message, or several, and read the whole answer."""
        headers = {**self.headers, **changes}
        return await ask(self.mount, self.path, encoded(body), verb=verb, **headers)

    async def get(self, **changes: str | None) -> Answer:
        """Send a GET that is not answered by a stream."""
        return await self.send(b"", verb="GET", **{"accept": "text/event-stream", **changes})

    async def delete(self, **changes: str | None) -> Answer:
        """End the session."""
        return await self.send(b"", verb="DELETE", **changes)

    async def result(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Send a request, and return its result."""
        request_id = next(self._ids)
        answer = await self.send(request(method, params, id=request_id))
        assert answer.status == 200, answer.body
        response = answer.response()
        assert response["id"] == request_id
        return response["result"]

    @asynccontextmanager
    async def stream(
        self, body: Any = b"", *, verb: str = "POST", **changes: str | None
    ) -> AsyncIterator[Connection]:
        """Send a message and read its answer part by part; leave at the end."""
        headers = {**self.headers, **changes}
        app = MOUNTS[self.mount]
        async with connect(app, self.path, encoded(body), verb=verb, **headers) as connection:
            yield connection

    def standing(self, **changes: str | None) -> Any:
        """Open the GET stream."""
        return self.stream(verb="GET", **{"accept": "text/event-stream", **changes})


def encoded(body: Any) -> bytes:
    """Return the bytes of a message."""
    return body if isinstance(body, bytes) else json.dumps(body).encode()


async def opened(mount: str, path: str = OPEN, **options: Any) -> Peer:
    """Return a client that has opened its session."""
    peer = Peer(mount, path, **options)
    await peer.open()
    return peer
