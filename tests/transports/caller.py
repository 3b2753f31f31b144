"""A client of one application, in a session if its revision has sessions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp_django.protocol.envelope import SERVER_INFO
from tests.kit.drivers import VERSION, Answer, message, send
from tests.transports.http_session.handshakes import INITIALIZED, initialize, request
from tests.transports.mounts import in_thread, wsgi

WSGI = object()
REVISIONS = (VERSION, "2025-11-25")


class Caller:
    """The client; `authorization` goes with each of its requests.

    The application is an ASGI application, or `WSGI` for the site over WSGI.
    """

    def __init__(
        self, app: Any, path: str, version: str = VERSION, *, authorization: str | None = None
    ) -> None:
        self._app = app
        self._path = path
        self._version = version
        self.headers: dict[str, str | None] = {"authorization": authorization}

    @property
    def is_stateless(self) -> bool:
        """Whether the revision has no sessions."""
        return self._version == VERSION

    async def open(self) -> dict[str, Any]:
        """Open a session if the revision has sessions, and return the server's `serverInfo`."""
        if self.is_stateless:
            return dict((await self.ask("server/discover")).json()["result"]["_meta"][SERVER_INFO])
        # Only messages of 2026-07-28 repeat their method and name in headers.
        self.headers |= {"mcp_method": None, "mcp_name": None}
        beginning = {"mcp_session_id": None, "mcp_protocol_version": None}
        answer = await self._send(initialize(self._version), **beginning)
        assert answer.status == 200, answer.body
        session = {"mcp_session_id": answer.headers["mcp-session-id"]}
        self.headers |= {**session, "mcp_protocol_version": self._version}
        assert (await self._send(INITIALIZED)).status == 202
        return dict(answer.json()["result"]["serverInfo"])

    async def ask(self, method: str, **params: Any) -> Answer:
        """Send a request."""
        return await self._send(self.message(method, params))

    def message(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request of the revision."""
        return message(method, params) if self.is_stateless else request(method, params)

    async def post(self, body: bytes, **changes: str | None) -> Answer:
        """Send these bytes, with the headers of every request."""
        return await self._deliver(body, **changes)

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool, and return the result or the error."""
        answer = await self.ask("tools/call", name=tool, arguments=arguments)
        response = answer.response()
        return dict(response.get("result") or response["error"])

    async def texts(self, *tools: str, **arguments: Any) -> list[str]:
        """Call several tools, and return the text of each, or the code of its error."""
        return [_text(await self.call(tool, **arguments)) for tool in tools]

    async def titles(self) -> dict[str, str]:
        """Return the titles of the tools in the list."""
        result = (await self.ask("tools/list")).response()["result"]
        return {tool["name"]: tool.get("title", "") for tool in result["tools"]}

    async def _send(self, body: Mapping[str, Any], **changes: str | None) -> Answer:
        return await self._deliver(
            body if self.is_stateless else json.dumps(body).encode(), **changes
        )

    async def _deliver(self, body: Mapping[str, Any] | bytes, **changes: str | None) -> Answer:
        headers = {**self.headers, **changes}
        if self._app is WSGI:
            return await in_thread(wsgi, self._path, body, **headers)
        return await send(self._app, self._path, body, **headers)


def _text(answer: Mapping[str, Any]) -> str:
    text = answer["content"][0]["text"] if "content" in answer else str(answer["code"])
    return f"error: {text}" if answer.get("isError") else str(text)
