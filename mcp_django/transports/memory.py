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
from mcp_django.execution.call import (
    Call,
    Result,
    Subscription,
)
from mcp_django.execution.handlers.tasks import store_answers, task_outcome, wait_for_task
from mcp_django.execution.pipeline import admit
from mcp_django.execution.policy import authorize_connection
from mcp_django.execution.results import encode_response
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import error_revision_of
from mcp_django.protocol.jsonrpc import Request
from mcp_django.transports.local_session import LocalSession

Response = dict[str, Any]
MakePort = Callable[[Call], ClientPort]
AnswerQuestions = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


class MemoryConnection:
    """One caller's connection to one server; ``make_port`` makes the receiver of notifications.

    ``answer`` answers client requests of the handshake revisions: it gets the requests by key and
    returns the answers by key, or ``None`` to leave them unanswered. ``origin`` and ``acting``
    are recorded in the call log (``Call``).

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
        if not isinstance(opened, Call):
            return opened
        if opened.result is not None:
            return self._await(opened)
        port = self._port(opened)
        try:
            result = invoke.run(opened, port)
            while self._answer_requests(opened, result):
                result = invoke.run(opened, port)
            return _final(opened, result)
        except MCPError as exc:
            return _failed(opened, exc)

    async def arequest(self, message: dict[str, Any]) -> Response:
        """Send a request from an event loop and wait for its response.

        A synchronous function runs in the thread of ``sync_to_async``, so it uses the
        transaction of a test; the threads of the pool would not.
        """
        opened = await sync_to_async(self.open)(message)
        if not isinstance(opened, Call):
            return opened
        if opened.result is not None:
            return await sync_to_async(self._await)(opened)
        port = self._port(opened)
        try:
            result = await _arun(opened, port)
            while self._answer_requests(opened, result):
                result = await _arun(opened, port)
            return _final(opened, result)
        except MCPError as exc:
            return _failed(opened, exc)

    def _await(self, call: Call) -> Response:
        """Wait for a task and return its response; ``answer`` answers its client requests."""
        if isinstance(call.result, Subscription):
            return _failed(
                call,
                InvalidRequest("This request is answered with a stream, not with one response."),
            )
        try:
            row = wait_for_task(call)
            while row.questions:
                answers = self._answer(row.questions) if self._answer is not None else None
                if answers is None:
                    raise InvalidRequest("The task needs input, but has no answer.")
                store_answers(row, dict(answers))
                row = wait_for_task(call)
            return _decoded(encode_response(call, task_outcome(call, row)))
        except MCPError as exc:
            return _failed(call, exc)

    def open(self, message: dict[str, Any]) -> Response | Call:
        """Return the response to a request, or the call that remains to be run or waited for."""
        request = jsonrpc.decode(jsonrpc.encode(message))
        with call_log.log_rejections(
            self._server,
            request,
            transport="memory",
            principal=self._principal,
            session_revision=self.session.revision,
        ):
            self._server.refresh()
            authorize_connection(self._server, self._principal)
        if not isinstance(request, Request):
            wrong = InvalidRequest("The message is not a request.")
            return jsonrpc.build_failure(jsonrpc.request_id_of(request), wrong, None)
        try:
            if self.session.is_initialize(request):
                return _decoded(self.session.initialize(request))
            call = self.session.call_for(self._principal, request)
        except MCPError as exc:
            revision = error_revision_of(request, self.session.revision)
            return jsonrpc.build_failure(request.id, exc, revision)
        try:
            admit(call)
        except MCPError as exc:
            return _failed(call, exc)
        if isinstance(call.result, dict):
            return _decoded(encode_response(call, call.result))
        return call

    def _answer_requests(self, call: Call, result: Result) -> bool:
        """Return whether a call's client requests were answered, so that it has to run again."""
        if call.session is None or result.get("resultType") != "input_required":
            return False
        assert call.interaction is not None
        answers = self._answer(result["inputRequests"]) if self._answer is not None else None
        if answers is None:
            return False
        call.interaction.resume(answers)
        return True

    def _port(self, call: Call) -> ClientPort | None:
        return self._make_port(call) if self._make_port else None


async def _arun(call: Call, port: ClientPort | None) -> Result:
    if call.component.function.is_async:
        return await invoke.arun(call, port, own_thread=False)
    return await sync_to_async(invoke.run)(call, port)


def _final(call: Call, result: Result) -> Response:
    """Return the response to a call, including client requests that were left unanswered."""
    if call.session is not None and result.get("resultType") == "input_required":
        return jsonrpc.build_result(call.request.id, result)
    return _decoded(encode_response(call, result))


def _failed(call: Call, exc: MCPError) -> Response:
    return jsonrpc.build_failure(call.request.id, exc, call.revision)


def _decoded(raw: bytes) -> Response:
    decoded: Response = msgspec.json.decode(raw)
    return decoded
