"""The in-memory transport: requests of one caller, served in this process without a network.

The test client and management commands use it. Messages have no headers, so HTTP's header rules do
not apply; everything else does, including permissions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from asgiref.sync import sync_to_async

from mcp_django.auth.principal import Principal
from mcp_django.core.catalog import Server
from mcp_django.core.context import ClientPort
from mcp_django.exceptions import InvalidRequest, MCPError
from mcp_django.execution import call_log, invoke
from mcp_django.execution.call import Awaiting, Incoming, Invocation, Listening, Result
from mcp_django.execution.handlers.tasks import outcome_of, take_answers, wait_for
from mcp_django.execution.pipeline import dispatch, respond
from mcp_django.execution.policy import admit_connection
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import revision_of
from mcp_django.protocol.errors import error_object
from mcp_django.protocol.jsonrpc import Request, RequestId
from mcp_django.protocol.revisions import Revision
from mcp_django.transports.local_session import LocalSession

Response = dict[str, Any]
MakePort = Callable[[Incoming], ClientPort]
AnswerQuestions = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


class MemoryConnection:
    """One caller's connection to one server; ``make_port`` makes the receiver of notifications.

    ``answer`` answers client requests of the handshake revisions: it gets the requests by key and
    returns the answers by key, or ``None`` to leave them unanswered. ``origin`` and ``acting``
    are recorded in the call log (``Incoming``).

    Raises:
        AccessRefused: from every method, if the caller has to authenticate or lacks a scope.
    """

    def __init__(
        self,
        server: Server,
        principal: Principal,
        *,
        make_port: MakePort | None = None,
        answer: AnswerQuestions | None = None,
        origin: str = "client",
        acting: str = "",
    ) -> None:
        self._server = server
        self._principal = principal
        self._make_port = make_port
        self._answer = answer
        self.session = LocalSession(server, origin=origin, acting=acting, transport="memory")

    def request(self, message: dict[str, Any]) -> Response:
        """Send a request from a thread and wait for its response."""
        opened = self.open(message)
        if isinstance(opened, Awaiting):
            return self._await(opened)
        if not isinstance(opened, Invocation):
            return self._only_response(opened)
        port = self._port(opened)
        try:
            result = invoke.run(opened, port)
            while self._resumes(opened, result):
                result = invoke.run(opened, port)
            return _final(opened, result)
        except MCPError as exc:
            return _failed(opened.incoming, exc)

    async def arequest(self, message: dict[str, Any]) -> Response:
        """Send a request from an event loop and wait for its response.

        A synchronous function runs in the thread of ``sync_to_async``, so it uses the
        transaction of a test; the threads of the pool would not.
        """
        opened = await sync_to_async(self.open)(message)
        if isinstance(opened, Awaiting):
            return await sync_to_async(self._await)(opened)
        if not isinstance(opened, Invocation):
            return self._only_response(opened)
        port = self._port(opened)
        try:
            result = await _arun(opened, port)
            while self._resumes(opened, result):
                result = await _arun(opened, port)
            return _final(opened, result)
        except MCPError as exc:
            return _failed(opened.incoming, exc)

    def _await(self, awaiting: Awaiting) -> Response:
        """Wait for a task and return its response; ``answer`` answers its client requests."""
        incoming = awaiting.incoming
        try:
            row = wait_for(incoming)
            while row.questions:
                answers = self._answer(row.questions) if self._answer is not None else None
                if answers is None:
                    raise InvalidRequest("The task needs input, but has no answer.")
                take_answers(row, dict(answers))
                row = wait_for(incoming)
            return _decoded(respond(incoming, outcome_of(incoming, row)))
        except MCPError as exc:
            return _failed(incoming, exc)

    def open(self, message: dict[str, Any]) -> Response | Invocation | Listening | Awaiting:
        """Return the response to a request, or what remains to be run or waited for."""
        request = jsonrpc.decode(jsonrpc.encode(message))
        with call_log.watched(
            self._server,
            request,
            transport="memory",
            principal=self._principal,
            session=self.session.revision,
        ):
            self._server.refresh()
            admit_connection(self._server, self._principal)
        if not isinstance(request, Request):
            wrong = InvalidRequest("The message is not a request.")
            return _error(wrong, jsonrpc.request_id_of(request), None)
        try:
            if self.session.is_initialize(request):
                return _decoded(self.session.initialize(request))
            incoming = self.session.incoming(self._principal, request)
        except MCPError as exc:
            return _error(exc, request.id, revision_of(request, self.session.revision))
        try:
            outcome = dispatch(incoming)
        except MCPError as exc:
            return _failed(incoming, exc)
        if isinstance(outcome, (Invocation, Listening, Awaiting)):
            return outcome
        return _decoded(respond(incoming, outcome))

    def _resumes(self, call: Invocation, result: Result) -> bool:
        """Return whether a call's client requests were answered, so that it has to run again."""
        if call.incoming.session is None or result.get("resultType") != "input_required":
            return False
        assert call.interaction is not None
        answers = self._answer(result["inputRequests"]) if self._answer is not None else None
        if answers is None:
            return False
        call.interaction.resume(answers)
        return True

    def _port(self, invocation: Invocation) -> ClientPort | None:
        return self._make_port(invocation.incoming) if self._make_port else None

    def _only_response(self, opened: Response | Listening) -> Response:
        if isinstance(opened, Listening):
            return _failed(
                opened.incoming,
                InvalidRequest("This request is answered with a stream, not with one response."),
            )
        return opened


async def _arun(call: Invocation, port: ClientPort | None) -> Result:
    if call.component.function.is_async:
        return await invoke.arun(call, port, own_thread=False)
    return await sync_to_async(invoke.run)(call, port)


def _final(call: Invocation, result: Result) -> Response:
    """Return the response to a call, including client requests that were left unanswered."""
    if call.incoming.session is not None and result.get("resultType") == "input_required":
        return jsonrpc.result_message(call.incoming.request.id, result)
    return _decoded(respond(call.incoming, result))


def _failed(incoming: Incoming, exc: MCPError) -> Response:
    return _error(exc, incoming.request.id, incoming.revision)


def _error(exc: MCPError, request_id: RequestId | None, revision: Revision | None) -> Response:
    return jsonrpc.error_message(request_id, error_object(exc, revision))


def _decoded(raw: bytes) -> Response:
    decoded: Response = msgspec.json.decode(raw)
    return decoded
