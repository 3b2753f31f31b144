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
    ListenRequest,
    PreparedCall,
    RequestContext,
    Result,
    TaskResultWait,
)
from mcp_django.execution.handlers.tasks import store_answers, task_outcome, wait_for_task
from mcp_django.execution.pipeline import dispatch, encode_response
from mcp_django.execution.policy import authorize_connection
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import error_revision_of
from mcp_django.protocol.jsonrpc import Request
from mcp_django.transports.local_session import LocalSession

Response = dict[str, Any]
MakePort = Callable[[RequestContext], ClientPort]
AnswerQuestions = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


class MemoryConnection:
    """One caller's connection to one server; ``make_port`` makes the receiver of notifications.

    ``answer`` answers client requests of the handshake revisions: it gets the requests by key and
    returns the answers by key, or ``None`` to leave them unanswered. ``origin`` and ``acting``
    are recorded in the call log (``RequestContext``).

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
        if isinstance(opened, TaskResultWait):
            return self._await(opened)
        if not isinstance(opened, PreparedCall):
            return self._only_response(opened)
        port = self._port(opened)
        try:
            result = invoke.run(opened, port)
            while self._answer_requests(opened, result):
                result = invoke.run(opened, port)
            return _final(opened, result)
        except MCPError as exc:
            return _failed(opened.request_context, exc)

    async def arequest(self, message: dict[str, Any]) -> Response:
        """Send a request from an event loop and wait for its response.

        A synchronous function runs in the thread of ``sync_to_async``, so it uses the
        transaction of a test; the threads of the pool would not.
        """
        opened = await sync_to_async(self.open)(message)
        if isinstance(opened, TaskResultWait):
            return await sync_to_async(self._await)(opened)
        if not isinstance(opened, PreparedCall):
            return self._only_response(opened)
        port = self._port(opened)
        try:
            result = await _arun(opened, port)
            while self._answer_requests(opened, result):
                result = await _arun(opened, port)
            return _final(opened, result)
        except MCPError as exc:
            return _failed(opened.request_context, exc)

    def _await(self, task_wait: TaskResultWait) -> Response:
        """Wait for a task and return its response; ``answer`` answers its client requests."""
        request_context = task_wait.request_context
        try:
            row = wait_for_task(request_context)
            while row.questions:
                answers = self._answer(row.questions) if self._answer is not None else None
                if answers is None:
                    raise InvalidRequest("The task needs input, but has no answer.")
                store_answers(row, dict(answers))
                row = wait_for_task(request_context)
            return _decoded(encode_response(request_context, task_outcome(request_context, row)))
        except MCPError as exc:
            return _failed(request_context, exc)

    def open(
        self, message: dict[str, Any]
    ) -> Response | PreparedCall | ListenRequest | TaskResultWait:
        """Return the response to a request, or what remains to be run or waited for."""
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
            request_context = self.session.request_context(self._principal, request)
        except MCPError as exc:
            revision = error_revision_of(request, self.session.revision)
            return jsonrpc.build_failure(request.id, exc, revision)
        try:
            outcome = dispatch(request_context)
        except MCPError as exc:
            return _failed(request_context, exc)
        if isinstance(outcome, (PreparedCall, ListenRequest, TaskResultWait)):
            return outcome
        return _decoded(encode_response(request_context, outcome))

    def _answer_requests(self, call: PreparedCall, result: Result) -> bool:
        """Return whether a call's client requests were answered, so that it has to run again."""
        if call.request_context.session is None or result.get("resultType") != "input_required":
            return False
        assert call.interaction is not None
        answers = self._answer(result["inputRequests"]) if self._answer is not None else None
        if answers is None:
            return False
        call.interaction.resume(answers)
        return True

    def _port(self, prepared_call: PreparedCall) -> ClientPort | None:
        return self._make_port(prepared_call.request_context) if self._make_port else None

    def _only_response(self, opened: Response | ListenRequest) -> Response:
        if isinstance(opened, ListenRequest):
            return _failed(
                opened.request_context,
                InvalidRequest("This request is answered with a stream, not with one response."),
            )
        return opened


async def _arun(call: PreparedCall, port: ClientPort | None) -> Result:
    if call.component.function.is_async:
        return await invoke.arun(call, port, own_thread=False)
    return await sync_to_async(invoke.run)(call, port)


def _final(call: PreparedCall, result: Result) -> Response:
    """Return the response to a call, including client requests that were left unanswered."""
    if call.request_context.session is not None and result.get("resultType") == "input_required":
        return jsonrpc.build_result(call.request_context.request.id, result)
    return _decoded(encode_response(call.request_context, result))


def _failed(request_context: RequestContext, exc: MCPError) -> Response:
    return jsonrpc.build_failure(request_context.request.id, exc, request_context.revision)


def _decoded(raw: bytes) -> Response:
    decoded: Response = msgspec.json.decode(raw)
    return decoded
