"""OpenTelemetry: a span and a duration metric for every request, if its API is installed.

``execution.pipeline`` begins the ``Operation`` of a request, its handler notes the component that
it found, and ``execution.call_log`` runs the function inside the span and ends it. Names
follow the semantic conventions for the Model Context Protocol
(open-telemetry/semantic-conventions-genai, docs/gen-ai/mcp.md).

Text that a client invents never becomes a span name or a metric attribute, so the cardinality is
bounded by the numbers of methods, components, revisions and transports.

Only ``execution.otel`` imports the API, at the first request. Without the API, ``begin_operation``
costs one cache lookup.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from mcp_django.auth.credentials import client_ip
from mcp_django.components.component import Component
from mcp_django.conf import get_settings
from mcp_django.exceptions import InvalidParams, MCPError
from mcp_django.execution import call_record
from mcp_django.execution.call_record import TracedRequest
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import read_handshake_meta
from mcp_django.protocol.jsonrpc import Notification, Request, RequestId
from mcp_django.protocol.methods import REQUESTS
from mcp_django.protocol.revisions import REVISIONS, error_code_in
from mcp_django.protocol.text import one_line

if TYPE_CHECKING:
    from mcp_django.execution.call import Call
    from mcp_django.execution.otel import Instruments, Span

OTHER = "_OTHER"
NOTIFICATIONS = frozenset({"notifications/initialized", "notifications/cancelled"})
CLIENT_REQUESTS = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
MAX_ID_LENGTH = 100
MAX_URI_LENGTH = 2000

_OTHER_KNOWN_METHODS = NOTIFICATIONS | CLIENT_REQUESTS
_NETWORK_ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "http": {"network.transport": "tcp", "network.protocol.name": "http"},
    "sse": {"network.transport": "tcp", "network.protocol.name": "http"},
    "stdio": {"network.transport": "pipe"},
}


@lru_cache(maxsize=1024)
def _common_attributes(method: str, version: str, transport: str) -> Mapping[str, str]:
    """Return the attributes that a span and its metric share, cached."""
    attributes = {"mcp.method.name": method, **_NETWORK_ATTRIBUTES.get(transport, {})}
    if version:
        attributes["mcp.protocol.version"] = version
    if method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    return attributes


def _known_method(method: str) -> str:
    """Return the method, or ``OTHER`` if the specification does not define it."""
    return method if method in REQUESTS or method in _OTHER_KNOWN_METHODS else OTHER


def _identity_attributes(request_id: RequestId | None, session: str) -> dict[str, str]:
    """Return the span attributes that identify the request and its session.

    ``session`` is the digest of the session id, as in the call log: the id itself is a secret of
    the client.
    """
    attributes = {}
    if request_id is not None:
        attributes["jsonrpc.request.id"] = one_line(str(request_id), limit=MAX_ID_LENGTH)
    if session:
        attributes["mcp.session.id"] = session
    return attributes


def get_instruments() -> Instruments | None:
    """Return the tracer and histograms; ``None`` without the API or if ``TELEMETRY`` is false."""
    return load_instruments() if get_settings().telemetry else None


@cache
def load_instruments() -> Instruments | None:
    """Return the tracer and histograms of this process; ``None`` without the API."""
    try:
        from mcp_django.execution.otel import Instruments
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] != "opentelemetry":
            raise
        return None
    return Instruments()


TOOL_ERROR = "tool_error"
CANCELLED = "cancelled"


class Operation:
    """A request or notification of a client, recorded as a span and a duration metric.

    It is not part of a reference cycle, so if it is abandoned, ``__del__`` ends it when the last
    reference is gone, like a ``CallRecord`` of the call log. ``span_attributes`` are the attributes
    of the span that the metric does not get.
    """

    __slots__ = (
        "_component",
        "_instruments",
        "_method",
        "_metric_attributes",
        "_pending",
        "_started",
        "failure_reason",
        "logs_arguments",
        "span",
    )

    def __init__(
        self,
        instruments: Instruments,
        method: str,
        common_attributes: Mapping[str, str],
        span_attributes: Mapping[str, str],
        *,
        trace: Mapping[str, str],
        logs_arguments: bool = False,
    ) -> None:
        self._started = time.perf_counter()
        self._instruments = instruments
        self._method = method
        self._metric_attributes = common_attributes
        self._component: Component | None = None
        self.logs_arguments = logs_arguments
        self.failure_reason = ""
        self.span: Span = instruments.start_span(
            method, {**common_attributes, **span_attributes}, received=trace
        )
        # Several threads may end the operation; the one that pops this ends it.
        self._pending: list[None] = [None]

    def activate(self) -> AbstractContextManager[None]:
        """Return a context manager in which the span is the parent of new spans."""
        return self.span.activate()

    @property
    def trace_id(self) -> str:
        """The trace id of the span; empty without a trace."""
        return self.span.trace_id

    def note_session(self, version: str, session: str = "") -> None:
        """Note the revision and the session that the handshake negotiated."""
        more = {"mcp.protocol.version": version}
        self._metric_attributes = {**self._metric_attributes, **more}
        self.span.set_attributes({**more, **_identity_attributes(None, session)})

    def note_component(self, component: Component, uri: str) -> None:
        """Note the component that the request is for."""
        self._component = component
        attributes: dict[str, str] = {}
        # Nothing for resources, whose number is unbounded.
        if component.kind == "tool":
            attributes["gen_ai.tool.name"] = component.key
        elif component.kind == "prompt":
            attributes["gen_ai.prompt.name"] = component.key
        if attributes:
            self._metric_attributes = {**self._metric_attributes, **attributes}
        if not self.span.is_recording:
            return
        if attributes:
            self.span.rename(f"{self._method} {component.key}")
        elif self._may_log_arguments(component) and not component.has_secrets:
            attributes = {"mcp.resource.uri": one_line(uri, limit=MAX_URI_LENGTH)}
        else:
            # The resource's key, or its template.
            attributes = {"mcp.resource.uri": component.key}
        self.span.set_attributes(attributes)

    def note_authorized(self, arguments: bytes | Mapping[str, Any]) -> None:
        """Note the arguments of an authorized call, if they are logged."""
        component = self._component
        if component is None or component.kind != "tool" or not self._may_log_arguments(component):
            return
        if self.span.is_recording:
            masked = component.mask(call_record.summarize_arguments(arguments).values)
            self.span.set_attributes(
                {"gen_ai.tool.call.arguments": jsonrpc.encode(masked).decode()}
            )

    def _may_log_arguments(self, component: Component) -> bool:
        setting = component.log_arguments
        return self.logs_arguments if setting is None else setting

    def note_exception(self, exc: Exception) -> None:
        """Note the exception of the component's function, before it is converted to a result."""
        self.failure_reason = call_record.outcome_of_failure(exc).reason

    def end_returned(self, result: Mapping[str, Any], *, is_stateless: bool = True) -> None:
        """End with a result; in a session, a question is not the end of its request."""
        if result.get("resultType") == "input_required" and not is_stateless:
            return
        if result.get("isError"):
            self._end(TOOL_ERROR, self.failure_reason)
        else:
            self._end()

    def end_raised(self, exc: BaseException) -> None:
        """End with an error, recorded by code or type, since its text may contain arguments."""
        if isinstance(exc, asyncio.CancelledError):
            self._end(CANCELLED)
            return
        outcome = call_record.outcome_before_run(exc)
        revision = REVISIONS.get(self._metric_attributes.get("mcp.protocol.version", ""))
        wire_code = None if outcome.code is None else str(error_code_in(revision, outcome.code))
        # A caller who is rejected over HTTP gets a status code and no JSON-RPC error.
        code = wire_code if isinstance(exc, MCPError) else None
        self._end(
            wire_code or type(exc).__name__, self.failure_reason or outcome.reason, code=code or ""
        )

    def discard(self) -> None:
        """Discard the operation, since the request is handled again elsewhere."""
        self._pending.clear()

    def _end(self, error: str = "", description: str = "", *, code: str = "") -> None:
        try:
            self._pending.pop()
        except IndexError:
            return
        attributes: dict[str, str] = {}
        if error:
            attributes["error.type"] = error
        if code:
            attributes["rpc.response.status_code"] = code
        if attributes:
            self.span.set_attributes(attributes)
        self.span.end(error=error, description=description)
        seconds = time.perf_counter() - self._started
        self._instruments.record_operation(
            seconds, {**self._metric_attributes, **attributes}, self.span
        )

    def __del__(self) -> None:
        # The attribute is missing if the span could not be started.
        if getattr(self, "_pending", None):
            self._end(CANCELLED)

    def begin_client_request(self, method: str, request_id: str) -> _ClientRequestSpan:
        """Begin the span of a request to the client, as a child of this one."""
        shared_keys = ("network.transport", "network.protocol.name", "mcp.protocol.version")
        common = {
            key: self._metric_attributes[key]
            for key in shared_keys
            if key in self._metric_attributes
        }
        return _ClientRequestSpan(self._instruments, self.span, method, request_id, common)


class _ClientRequestSpan:
    """The span and metric of one request to the client, from sending it to its answer."""

    def __init__(
        self,
        instruments: Instruments,
        parent: Span,
        method: str,
        request_id: str,
        common: Mapping[str, str],
    ) -> None:
        self._started = time.perf_counter()
        self._instruments = instruments
        self._metric_attributes = {**common, "mcp.method.name": _known_method(method)}
        own = {**self._metric_attributes, **_identity_attributes(request_id, "")}
        name = self._metric_attributes["mcp.method.name"]
        self._span = instruments.start_span(name, own, kind="client", within=parent)

    def trace_context(self) -> dict[str, str]:
        """Return the trace context for the ``_meta`` of the request."""
        return self._span.trace_context()

    def end(self, error: str = "") -> None:
        """End the span, with or without an answer."""
        attributes = {"error.type": error} if error else {}
        if attributes:
            self._span.set_attributes(attributes)
        self._span.end(error=error)
        seconds = time.perf_counter() - self._started
        self._instruments.record_operation(
            seconds, {**self._metric_attributes, **attributes}, self._span, kind="client"
        )


# Client requests: elicitation, sampling, roots ----------------------------------------------------

# Error codes: JSON-RPC 2.0, section 5.1, and the code of clients whose user rejects sampling.
RESERVED_ERROR_CODES = range(-32768, -31999)
SAMPLING_REJECTED = -1
TIMEOUT = "timeout"


class _ClientRequestSpans:
    """The open requests to the client, by request id.

    Each has a span, and the trace context in its ``_meta``.
    """

    def __init__(self, operation: TracedRequest | None) -> None:
        self._operation = operation
        self._open: dict[str, _ClientRequestSpan] = {}

    def begin_request(
        self, request_id: str, method: str, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Begin the span of a request; return its parameters with the trace context."""
        if self._operation is None:
            return dict(params)
        question = self._open[request_id] = self._operation.begin_client_request(method, request_id)
        carried = question.trace_context()
        if not carried:
            return dict(params)
        return {**params, "_meta": {**params.get("_meta", {}), **carried}}

    def end_answered(self, answers: Mapping[str, Mapping[str, Any]]) -> None:
        """End the spans of all open requests; those without an answer timed out."""
        for request_id in tuple(self._open):
            question = self._open.pop(request_id)
            answer = answers.get(request_id)
            error = TIMEOUT if answer is None else ""
            problem = None if answer is None else answer.get("error")
            if isinstance(problem, Mapping):
                code = problem.get("code")
                # A client may invent any number, so only defined codes are used as attributes.
                is_defined = code == SAMPLING_REJECTED or code in RESERVED_ERROR_CODES
                error = str(code) if is_defined else OTHER
            question.end(error)

    def end_all(self) -> None:
        """End all open spans as cancelled."""
        while self._open:
            self._open.popitem()[1].end(CANCELLED)


@contextmanager
def trace_client_requests(operation: TracedRequest | None) -> Iterator[_ClientRequestSpans]:
    """Yield the tracker of client requests; without an operation it does nothing."""
    tracker = _ClientRequestSpans(operation)
    try:
        yield tracker
    finally:
        tracker.end_all()


T = TypeVar("T")


def begin_operation(call: Call) -> Operation | None:
    """Begin the operation of a request; ``None`` if there is nothing to record or propagate."""
    instruments = get_instruments()
    # Without an SDK an operation is only needed to propagate the client's trace context.
    if instruments is None or (not call.envelope.trace and instruments.is_noop):
        return None
    return start_operation(call, instruments)


def start_operation(call: Call, instruments: Instruments) -> Operation:
    """Begin the operation of a request."""
    request = call.request
    method = _known_method(request.method)
    operation = Operation(
        instruments,
        method,
        _common_attributes(method, call.revision.version, call.channel.transport),
        _identity_attributes(request.id, "" if call.session is None else call.session.digest),
        trace=call.envelope.trace,
        logs_arguments=call.server.log_arguments,
    )
    if operation.span.is_recording and call.channel.transport in ("http", "sse"):
        http_request = call.http_request()
        address = client_ip(http_request) if http_request is not None else None
        if address is not None:
            operation.span.set_attributes({"client.address": address})
    call.record.operation = operation
    return operation


def start_handshake(request: Request, *, transport: str) -> Operation | None:
    """Return the operation of a handshake, which its caller activates and ends."""
    instruments = get_instruments()
    if instruments is None:
        return None
    try:
        _, trace = read_handshake_meta(request.params)
    except InvalidParams:
        trace = {}
    common = _common_attributes(request.method, "", transport)
    own = _identity_attributes(request.id, "")
    return Operation(instruments, request.method, common, own, trace=trace)


def trace_handshake(
    request: Request, work: Callable[[Operation | None], T], *, transport: str
) -> T:
    """Run the handshake in an operation and return its result.

    ``work`` gets the operation, to note the negotiated revision.

    Raises:
        MCPError: the handshake failed.
    """
    operation = start_handshake(request, transport=transport)
    if operation is None:
        return work(None)
    with operation.activate():
        try:
            result = work(operation)
        except Exception as exc:
            operation.end_raised(exc)
            raise
    operation.end_returned({})
    return result


@contextmanager
def trace_notification(
    message: Notification, *, version: str, transport: str, session: str = ""
) -> Iterator[None]:
    """Run the block in the operation of a notification from the client."""
    instruments = get_instruments()
    if instruments is None:
        yield
        return
    try:
        _, trace = read_handshake_meta(message.params)
    except InvalidParams:
        trace = {}
    method = _known_method(message.method)
    common = _common_attributes(method, version, transport)
    own = _identity_attributes(None, session)
    operation = Operation(instruments, method, common, own, trace=trace)
    with operation.activate():
        try:
            yield
        except Exception as exc:
            operation.end_raised(exc)
            raise
    operation.end_returned({})


def record_session_end(seconds: float, *, version: str, transport: str) -> None:
    """Record the duration of a session that the client ended or abandoned."""
    instruments = get_instruments()
    if instruments is not None:
        measured = dict(_common_attributes("", version, transport))
        del measured["mcp.method.name"]
        instruments.record_session(max(seconds, 0.0), measured)
