"""A connection without a network: messages of one caller, handled in this process.

It is what the test client and commands use. There are no headers, so the header rules of HTTP do
not apply; everything else does, policy included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from asgiref.sync import sync_to_async

from mcp_django.auth.principal import Principal
from mcp_django.context import ClientPort
from mcp_django.exceptions import InvalidRequest, MCPError
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import Stateless, claimed_revision, classify
from mcp_django.protocol.errors import error_object
from mcp_django.protocol.jsonrpc import Request, RequestId
from mcp_django.protocol.revisions import Revision
from mcp_django.runtime import calls
from mcp_django.runtime.dispatch import dispatch, respond
from mcp_django.runtime.incoming import Incoming, Invocation, Listening
from mcp_django.runtime.policy import admit_connection
from mcp_django.runtime.ports import Server

Response = dict[str, Any]
MakePort = Callable[[Incoming], ClientPort]


class MemoryConnection:
    """One caller's way to one server; ``make_port`` receives progress and log messages.

    Raises:
        AccessRefused: from every method, when the caller has to authenticate or lacks a scope.
    """

    def __init__(
        self, server: Server, principal: Principal, *, make_port: MakePort | None = None
    ) -> None:
        self._server = server
        self._principal = principal
        self._make_port = make_port

    def request(self, message: dict[str, Any]) -> Response:
        """Send a request from a thread and wait for its response."""
        opened = self.open(message)
        if not isinstance(opened, Invocation):
            return self._only_response(opened)
        try:
            result = calls.run(opened, self._port(opened))
            return _decoded(respond(opened.incoming, result))
        except MCPError as exc:
            return _failed(opened.incoming, exc)

    async def arequest(self, message: dict[str, Any]) -> Response:
        """Send a request from an event loop and wait for its response.

        A synchronous function runs where ``sync_to_async`` does, and so sees the transaction of
        a test, which the threads of the pool would not.
        """
        opened = await sync_to_async(self.open)(message)
        if not isinstance(opened, Invocation):
            return self._only_response(opened)
        port = self._port(opened)
        try:
            if opened.component.function.is_async:
                result = await calls.arun(opened, port, own_thread=False)
            else:
                result = await sync_to_async(calls.run)(opened, port)
            return _decoded(respond(opened.incoming, result))
        except MCPError as exc:
            return _failed(opened.incoming, exc)

    def open(self, message: dict[str, Any]) -> Response | Invocation | Listening:
        """The response to a request, or what is left to run for it."""
        admit_connection(self._server, self._principal)
        request = jsonrpc.decode(jsonrpc.encode(message))
        if not isinstance(request, Request):
            return _error(InvalidRequest("This is not a request."), None, None)
        try:
            route = classify(request, None, enabled=self._server.protocol_versions)
        except MCPError as exc:
            return _error(exc, request.id, claimed_revision(request))
        if not isinstance(route, Stateless):
            return _error(InvalidRequest("The request has no envelope."), request.id, None)
        incoming = Incoming(
            server=self._server,
            request=request,
            envelope=route.envelope,
            principal=self._principal,
        )
        try:
            outcome = dispatch(incoming)
        except MCPError as exc:
            return _failed(incoming, exc)
        if isinstance(outcome, (Invocation, Listening)):
            return outcome
        return _decoded(respond(incoming, outcome))

    def _port(self, invocation: Invocation) -> ClientPort | None:
        return self._make_port(invocation.incoming) if self._make_port else None

    def _only_response(self, opened: Response | Listening) -> Response:
        if isinstance(opened, Listening):
            return _failed(opened.incoming, InvalidRequest("A stream is not one response."))
        return opened


def _failed(incoming: Incoming, exc: MCPError) -> Response:
    return _error(exc, incoming.request.id, incoming.revision)


def _error(exc: MCPError, request_id: RequestId | None, revision: Revision | None) -> Response:
    return jsonrpc.error_message(request_id, error_object(exc, revision))


def _decoded(raw: bytes) -> Response:
    decoded: Response = msgspec.json.decode(raw)
    return decoded
