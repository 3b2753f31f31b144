"""Clients in this process: the requests of one caller, without a network.

``LocalClient`` is the client of ``mcp call``, of the admin (Try it, What a client sees) and of the
test client. Its messages have no headers, so HTTP's header rules do not apply; everything else
does, including permissions. ``BaseClient`` is the base class that it shares with the test client's
clients over a transport.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import msgspec
from asgiref.sync import sync_to_async

from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Server
from mcp_django.components.context import ClientPort
from mcp_django.exceptions import InvalidRequest, MCPError
from mcp_django.execution import invoke
from mcp_django.execution.call import Call, Channel, Result
from mcp_django.execution.handlers.subscribed_resources import Subscription
from mcp_django.execution.results import encode_response
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    error_revision_of,
)
from mcp_django.protocol.errors import TASKS, extension_declaration
from mcp_django.protocol.jsonrpc import Request
from mcp_django.protocol.revisions import Revision
from mcp_django.tasks.handlers import store_answers, task_outcome, wait_for_task
from mcp_django.tenants import as_tenant, current_tenant
from mcp_django.transports.local_session import IncomingOnConnection, LocalSession
from mcp_django.transports.outgoing import StreamPort

Message = dict[str, Any]
AnswerQuestions = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


class BaseClient(ABC):
    """A client of one revision; in a handshake revision it initializes a session first.

    ``client_info`` and ``capabilities`` are what it declares. ``answer`` answers the client
    requests of a call: it gets them by key and returns the answers by key, or ``None`` to leave
    them unanswered. ``hear`` is called with each progress and log message; without it, the client
    requests none.
    """

    def __init__(
        self,
        revision: Revision,
        *,
        client_info: Mapping[str, Any],
        capabilities: Mapping[str, Any] | None = None,
        answer: AnswerQuestions | None = None,
        hear: Callable[[Message], object] | None = None,
    ) -> None:
        self.revision = revision
        self._client_info = client_info
        self._capabilities = dict(capabilities or {})
        self._answer = answer
        self._hear = hear
        self._ids = count(1)
        self._is_initialized = False
        self.exchanges: list[tuple[Message, Message]] = []
        """The messages of the last request with their responses, ``initialize`` included."""

    @abstractmethod
    def send(self, message: Message) -> Message:
        """Send a message from a thread; return its response, empty for a notification."""

    @abstractmethod
    async def asend(self, message: Message) -> Message:
        """Send a message from an event loop; otherwise like ``send``."""

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> Message:
        """Send a request from a thread, and return its response.

        While ``answer`` answers the client requests of a response, the request is sent again with
        the answers.

        Raises:
            AccessRefused: the caller has to authenticate or lacks a scope.
            MCPError: the request was rejected before it was read.
        """
        self.exchanges = []
        refused = self.initialize()
        if refused is not None:
            return refused
        params = params or {}
        response = self._exchange(self.message(method, params))
        while more := self._retry_params(response):
            response = self._exchange(self.message(method, {**params, **more}))
        return response

    async def arequest(self, method: str, params: Mapping[str, Any] | None = None) -> Message:
        """Send a request from an event loop; otherwise like ``request``."""
        self.exchanges = []
        # In one thread for all requests, so that only the first of them initializes the session.
        refused = await sync_to_async(self.initialize)()
        if refused is not None:
            return refused
        params = params or {}
        response = await self._aexchange(self.message(method, params))
        while more := self._retry_params(response):
            response = await self._aexchange(self.message(method, {**params, **more}))
        return response

    def initialize(self) -> Message | None:
        """Initialize the session of a handshake revision, unless that was done before.

        Return the response that rejects ``initialize``, if there is one.
        """
        if self.revision.stateless or self._is_initialized:
            return None
        params = {
            "protocolVersion": self.revision.version,
            "capabilities": self._capabilities,
            "clientInfo": self._client_info,
        }
        response = self._exchange(jsonrpc.build_request(next(self._ids), "initialize", params))
        if "error" in response:
            return response
        self._is_initialized = True
        self.send(jsonrpc.build_notification("notifications/initialized"))
        if self._hear is not None:
            self._exchange(self.message("logging/setLevel", {"level": "debug"}))
        return None

    def message(self, method: str, params: Mapping[str, Any]) -> Message:
        """Return a request, with what the client declares in its revision."""
        declared: Message = {}
        if self.revision.stateless:
            declared[PROTOCOL_VERSION] = self.revision.version
            declared[CLIENT_CAPABILITIES] = self._capabilities
            if method.startswith("tasks/"):
                declared[CLIENT_CAPABILITIES] = with_tasks(self._capabilities)
            declared[CLIENT_INFO] = self._client_info
        if self._hear is not None:
            declared[PROGRESS_TOKEN] = "local"
            if self.revision.stateless:
                declared[LOG_LEVEL] = "debug"
        declared |= params.get("_meta", {})
        meta = {"_meta": declared} if declared else {}
        return jsonrpc.build_request(next(self._ids), method, {**params, **meta})

    def _retry_params(self, response: Message) -> Message:
        """Return the params that answer the questions of a response, empty if there are none."""
        result = response.get("result", {})
        if not self.revision.stateless or result.get("resultType") != "input_required":
            return {}
        answers = self._answer(result.get("inputRequests", {})) if self._answer else None
        if answers is None:
            return {}
        state = {"requestState": result["requestState"]} if "requestState" in result else {}
        return {"inputResponses": answers, **state}

    def _exchange(self, message: Message) -> Message:
        with self._noting(message) as responses:
            responses.append(self.send(message))
        return responses[0]

    async def _aexchange(self, message: Message) -> Message:
        with self._noting(message) as responses:
            responses.append(await self.asend(message))
        return responses[0]

    @contextmanager
    def _noting(self, message: Message) -> Iterator[list[Message]]:
        """Yield a list for the response to a request; record both, even if it is rejected."""
        responses: list[Message] = []
        try:
            yield responses
        except MCPError as exc:
            responses.append(jsonrpc.build_failure(message["id"], exc, self.revision))
            raise
        finally:
            self.exchanges += ((message, response) for response in responses)


def with_tasks(capabilities: Mapping[str, Any]) -> Message:
    """Return the capabilities with support for tasks added."""
    declared = capabilities.get("extensions") or {}
    return {
        **capabilities,
        "extensions": {**declared, **extension_declaration(TASKS)["extensions"]},
    }


class _Outbox:
    """Passes the messages of a running call to ``hear``."""

    def __init__(self, hear: Callable[[Message], object]) -> None:
        self._hear = hear

    def post(self, message: Any, *, key: Hashable = None) -> None:
        """Pass on a notification; a request to close the stream is ignored."""
        if isinstance(message, dict):
            self._hear(message)


class LocalClient(BaseClient):
    """A client of one server in this process, for one caller.

    ``origin`` and ``acting`` are recorded in the call log (``Channel``).

    Raises:
        AccessRefused: from every method, if the caller has to authenticate or lacks a scope.
    """

    def __init__(
        self,
        server: Server,
        principal: Principal,
        *,
        revision: Revision,
        client_info: Mapping[str, Any],
        capabilities: Mapping[str, Any] | None = None,
        answer: AnswerQuestions | None = None,
        hear: Callable[[Message], object] | None = None,
        origin: str = "client",
        acting: str = "",
    ) -> None:
        super().__init__(
            revision, client_info=client_info, capabilities=capabilities, answer=answer, hear=hear
        )
        self._server = server
        self._principal = principal
        self._session = LocalSession(
            server,
            channel=Channel(
                transport="memory", origin=origin, acting_user=acting, shares_thread=True
            ),
        )

    def send(self, message: Message) -> Message:
        """Send a request from a thread, and return its response; a notification is ignored.

        The request belongs to the current tenant of the thread.
        """
        with as_tenant(current_tenant()):
            if "id" not in message:
                return {}
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

    async def asend(self, message: Message) -> Message:
        """Send a message from an event loop; otherwise like ``send``.

        A synchronous function runs in the thread of ``sync_to_async``, so it uses the
        transaction of a test; the threads of the pool would not.
        """
        with as_tenant(await sync_to_async(current_tenant)()):
            if "id" not in message:
                return {}
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

    def _await(self, call: Call) -> Message:
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

    def open(self, message: Message) -> Message | Call:
        """Return the response to a request, or the call that remains to be run or waited for."""
        request = jsonrpc.decode(jsonrpc.encode(message))
        if not isinstance(request, Request):
            wrong = InvalidRequest("The message is not a request.")
            return jsonrpc.build_failure(jsonrpc.request_id_of(request), wrong, None)
        incoming = IncomingOnConnection(
            self._session, request, lambda: self._principal, principal=self._principal
        )
        incoming.authorize()
        try:
            opened = incoming.serve()
        except MCPError as exc:
            revision = error_revision_of(request, self._session.revision)
            return jsonrpc.build_failure(request.id, exc, revision)
        return _decoded(opened) if isinstance(opened, bytes) else opened

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
        return None if self._hear is None else StreamPort(call, _Outbox(self._hear))


async def _arun(call: Call, port: ClientPort | None) -> Result:
    if invoke.runs_as_coroutine(call):
        return await invoke.arun(call, port)
    return await sync_to_async(invoke.run)(call, port)


def _final(call: Call, result: Result) -> Message:
    """Return the response to a call, including client requests that were left unanswered."""
    if call.session is not None and result.get("resultType") == "input_required":
        return jsonrpc.build_result(call.request.id, result)
    return _decoded(encode_response(call, result))


def _failed(call: Call, exc: MCPError) -> Message:
    return jsonrpc.build_failure(call.request.id, exc, call.revision)


def _decoded(raw: bytes) -> Message:
    decoded: Message = msgspec.json.decode(raw)
    return decoded
