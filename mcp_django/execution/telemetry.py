"""OpenTelemetry: a span and a duration metric for every request, if its API is installed.

``execution.pipeline`` begins the ``Operation`` of a request, its handler notes the component that
it found, and ``observed`` and ``aobserved`` run the function inside the span and end it. Names
follow the semantic conventions for the Model Context Protocol
(open-telemetry/semantic-conventions-genai, docs/gen-ai/mcp.md).

Text that a client invents never becomes a span name or a metric attribute, so the cardinality is
bounded: there are only so many methods, components, revisions and transports.

Only ``execution.otel`` imports the API, at the first request. Without the API, ``begin`` costs one
cache lookup.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from mcp_django.auth.credentials import client_ip
from mcp_django.conf import get_settings
from mcp_django.core.component import Component
from mcp_django.exceptions import InvalidParams, MCPError
from mcp_django.execution import call_record
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import read_handshake_meta
from mcp_django.protocol.errors import clip, code_in
from mcp_django.protocol.jsonrpc import Notification, Request, RequestId
from mcp_django.protocol.methods import REQUESTS
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.protocol.text import one_line

if TYPE_CHECKING:
    from mcp_django.execution.call import Incoming
    from mcp_django.execution.otel import Instruments, Span

# Attributes ---------------------------------------------------------------------------------------

OTHER = "_OTHER"
NOTIFICATIONS = frozenset({"notifications/initialized", "notifications/cancelled"})
QUESTIONS = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
MAX_ID = 100
MAX_URI = 2000

_KNOWN = NOTIFICATIONS | QUESTIONS
_NETWORK: Mapping[str, Mapping[str, str]] = {
    "http": {"network.transport": "tcp", "network.protocol.name": "http"},
    "sse": {"network.transport": "tcp", "network.protocol.name": "http"},
    "stdio": {"network.transport": "pipe"},
}


@lru_cache(maxsize=1024)
def _common_attributes(method: str, version: str, transport: str) -> Mapping[str, str]:
    """Return the attributes that a span and its metric share, cached."""
    found = {"mcp.method.name": method, **_NETWORK.get(transport, {})}
    if version:
        found["mcp.protocol.version"] = version
    if method == "tools/call":
        found["gen_ai.operation.name"] = "execute_tool"
    return found


def _known_method(method: str) -> str:
    """Return the method, or ``OTHER`` if the specification does not define it."""
    return method if method in REQUESTS or method in _KNOWN else OTHER


def _identity(request_id: RequestId | None, session: str) -> dict[str, str]:
    """Return the span attributes that identify the request and its session.

    ``session`` is the digest of the session id, as in the call log: the id itself is a secret of
    the client.
    """
    found = {}
    if request_id is not None:
        found["jsonrpc.request.id"] = clip(one_line(str(request_id)[: MAX_ID + 1]), limit=MAX_ID)
    if session:
        found["mcp.session.id"] = session
    return found


def _of_component(component: Component) -> dict[str, str]:
    """Return the name of a tool or prompt; nothing for resources, whose number is unbounded."""
    if component.kind == "tool":
        return {"gen_ai.tool.name": component.key}
    if component.kind == "prompt":
        return {"gen_ai.prompt.name": component.key}
    return {}


def _uri_of(component: Component, uri: str, *, is_logged: bool) -> str:
    """Return the resource's URI if its arguments may be logged, else its key or template."""
    if is_logged and not call_record.has_secrets(component):
        return clip(one_line(uri[: MAX_URI + 1]), limit=MAX_URI)
    return component.key


# Whether telemetry is available -------------------------------------------------------------------


def instruments() -> Instruments | None:
    """Return the tracer and histograms; ``None`` without the API or if ``TELEMETRY`` is false."""
    return _found() if get_settings().telemetry else None


@cache
def _found() -> Instruments | None:
    try:
        from mcp_django.execution.otel import Instruments
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] != "opentelemetry":
            raise
        return None
    return Instruments()


# ``Operation``: one request -----------------------------------------------------------------------

TOOL_ERROR = "tool_error"
CANCELLED = "cancelled"


class Operation:
    """A request or notification of a client, recorded as a span and a duration metric.

    It is not part of a reference cycle, so if it is abandoned, ``__del__`` ends it when the last
    reference is gone, like an ``Entry`` of the call log. ``own`` are the attributes of the span
    that the metric does not get.
    """

    __slots__ = (
        "_began",
        "_component",
        "_ends",
        "_instruments",
        "_measured",
        "_method",
        "cause",
        "logs_arguments",
        "span",
    )

    def __init__(
        self,
        instruments: Instruments,
        method: str,
        common: Mapping[str, str],
        own: Mapping[str, str],
        *,
        trace: Mapping[str, str],
        logs_arguments: bool = False,
    ) -> None:
        self._began = time.perf_counter()
        self._instruments = instruments
        self._method = method
        self._measured = common
        self._component: Component | None = None
        self.logs_arguments = logs_arguments
        self.cause = ""
        self.span: Span = instruments.begin(method, {**common, **own}, received=trace)
        # Several threads may end the operation; the one that pops this ends it.
        self._ends: list[None] = [None]

    def active(self) -> AbstractContextManager[None]:
        """Return a context manager in which the span is the parent of new spans."""
        return self.span.active()

    @property
    def trace_id(self) -> str:
        """The trace id of the span; empty without a trace."""
        return self.span.trace_id

    # Notes of the handlers ----------------------------------------------------------------------

    def agreed(self, version: str, session: str = "") -> None:
        """Note the revision and the session that the handshake negotiated."""
        more = {"mcp.protocol.version": version}
        self._measured = {**self._measured, **more}
        self.span.set({**more, **_identity(None, session)})

    def found(self, component: Component, uri: str) -> None:
        """Note the component that the request is for."""
        self._component = component
        named = _of_component(component)
        if named:
            self._measured = {**self._measured, **named}
        if not self.span.is_recording:
            return
        if named:
            self.span.rename(f"{self._method} {component.key}")
        else:
            logged = self._logs(component)
            named = {"mcp.resource.uri": _uri_of(component, uri, is_logged=logged)}
        self.span.set(named)

    def admitted(self, given: bytes | Mapping[str, Any]) -> None:
        """Note the arguments of an authorized call, if they are logged."""
        component = self._component
        if component is None or component.kind != "tool" or not self._logs(component):
            return
        if self.span.is_recording:
            shown = call_record.shown(call_record.read(given), component)
            self.span.set({"gen_ai.tool.call.arguments": jsonrpc.encode(shown).decode()})

    def _logs(self, component: Component) -> bool:
        wanted = component.log_arguments
        return self.logs_arguments if wanted is None else wanted

    # End ----------------------------------------------------------------------------------------

    def failed(self, exc: Exception) -> None:
        """Note the exception of the component's function, before it is converted to a result."""
        self.cause = call_record.failure(exc).reason

    def returned(self, result: Mapping[str, Any], *, is_stateless: bool = True) -> None:
        """End with a result; in a session, a question is not the end of its request."""
        if result.get("resultType") == "input_required" and not is_stateless:
            return
        if result.get("isError"):
            self._end(TOOL_ERROR, self.cause)
        else:
            self._end()

    def raised(self, exc: BaseException) -> None:
        """End with an error, recorded by code or type, since its text may contain arguments."""
        if isinstance(exc, asyncio.CancelledError):
            self._end(CANCELLED)
            return
        meaning = call_record.before(exc)
        revision = REVISIONS.get(self._measured.get("mcp.protocol.version", ""))
        known = None if meaning.code is None else str(code_in(revision, meaning.code))
        # A caller who is rejected over HTTP gets a status code and no JSON-RPC error.
        code = known if isinstance(exc, MCPError) else None
        self._end(known or type(exc).__name__, self.cause or meaning.reason, code=code or "")

    def forget(self) -> None:
        """Discard the operation, since the request is handled again elsewhere."""
        self._ends.clear()

    def _end(self, error: str = "", description: str = "", *, code: str = "") -> None:
        try:
            self._ends.pop()
        except IndexError:
            return
        found: dict[str, str] = {}
        if error:
            found["error.type"] = error
        if code:
            found["rpc.response.status_code"] = code
        if found:
            self.span.set(found)
        self.span.end(error=error, description=description)
        seconds = time.perf_counter() - self._began
        self._instruments.measure(seconds, {**self._measured, **found}, self.span)

    def __del__(self) -> None:
        # The attribute is missing if the span could not be started.
        if getattr(self, "_ends", None):
            self._end(CANCELLED)

    # Client requests ----------------------------------------------------------------------------

    def ask(self, method: str, request_id: str) -> _Question:
        """Begin the span of a request to the client, as a child of this one."""
        kept = ("network.transport", "network.protocol.name", "mcp.protocol.version")
        common = {key: self._measured[key] for key in kept if key in self._measured}
        return _Question(self._instruments, self.span, method, request_id, common)


class _Question:
    """The span and metric of one request to the client, from sending it to its answer."""

    def __init__(
        self,
        instruments: Instruments,
        parent: Span,
        method: str,
        request_id: str,
        common: Mapping[str, str],
    ) -> None:
        self._began = time.perf_counter()
        self._instruments = instruments
        self._measured = {**common, "mcp.method.name": _known_method(method)}
        own = {**self._measured, **_identity(request_id, "")}
        name = self._measured["mcp.method.name"]
        self._span = instruments.begin(name, own, kind="client", within=parent)

    def carried(self) -> dict[str, str]:
        """Return the trace context for the ``_meta`` of the request."""
        return self._span.carried()

    def end(self, error: str = "") -> None:
        """End the span, with or without an answer."""
        found = {"error.type": error} if error else {}
        if found:
            self._span.set(found)
        self._span.end(error=error)
        seconds = time.perf_counter() - self._began
        self._instruments.measure(seconds, {**self._measured, **found}, self._span, kind="client")


# Client requests: elicitation, sampling, roots ----------------------------------------------------

# Error codes: JSON-RPC 2.0, section 5.1, and what clients answer if the user rejects sampling.
RESERVED = range(-32768, -31999)
REJECTED = -1
UNANSWERED = "timeout"


class _Asking:
    """The open requests to the client, by request id.

    Each has a span, and the trace context in its ``_meta``.
    """

    def __init__(self, operation: Operation | None) -> None:
        self._operation = operation
        self._open: dict[str, _Question] = {}

    def sent(self, request_id: str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Begin the span of a request; return its parameters with the trace context."""
        if self._operation is None:
            return dict(params)
        question = self._open[request_id] = self._operation.ask(method, request_id)
        carried = question.carried()
        if not carried:
            return dict(params)
        return {**params, "_meta": {**params.get("_meta", {}), **carried}}

    def answered(self, answers: Mapping[str, Mapping[str, Any]]) -> None:
        """End the spans of all open requests; those without an answer timed out."""
        for request_id in tuple(self._open):
            question = self._open.pop(request_id)
            answer = answers.get(request_id)
            question.end(UNANSWERED if answer is None else _error_of(answer))

    def end(self) -> None:
        """End all open spans as cancelled."""
        while self._open:
            self._open.popitem()[1].end(CANCELLED)


def _error_of(answer: Mapping[str, Any]) -> str:
    error = answer.get("error")
    if not isinstance(error, Mapping):
        return ""
    code = error.get("code")
    # A client may invent any number, so only defined codes are used as attributes.
    return str(code) if code == REJECTED or code in RESERVED else OTHER


@contextmanager
def asking(operation: Operation | None) -> Iterator[_Asking]:
    """Yield the tracker of client requests; without an operation it changes nothing."""
    found = _Asking(operation)
    try:
        yield found
    finally:
        found.end()


# Begin and end ------------------------------------------------------------------------------------

T = TypeVar("T")


def begin(incoming: Incoming) -> Operation | None:
    """Begin the operation of a request; ``None`` if there is nothing to record or propagate."""
    found = instruments()
    # Without an SDK an operation is only needed to propagate the client's trace context.
    if found is None or (not incoming.envelope.trace and found.is_idle):
        return None
    request, row = incoming.request, getattr(incoming.session, "row", None)
    method = _known_method(request.method)
    operation = Operation(
        found,
        method,
        _common_attributes(method, incoming.revision.version, incoming.transport),
        _identity(request.id, row.digest if row is not None else ""),
        trace=incoming.envelope.trace,
        logs_arguments=incoming.server.log_arguments,
    )
    if operation.span.is_recording and incoming.transport in ("http", "sse"):
        _add_address(operation, incoming)
    incoming.entry.operation = operation
    return operation


def _add_address(operation: Operation, incoming: Incoming) -> None:
    request = incoming.http_request()
    address = client_ip(request) if request is not None else None
    if address is not None:
        operation.span.set({"client.address": address})


def initialize(request: Request, work: Callable[[Operation | None], T], *, transport: str) -> T:
    """Run the handshake in an operation and return its result.

    ``work`` gets the operation, to note the negotiated revision.

    Raises:
        MCPError: the handshake failed.
    """
    found = instruments()
    if found is None:
        return work(None)
    try:
        _, trace = read_handshake_meta(request.params)
    except InvalidParams:
        trace = {}
    common = _common_attributes(request.method, "", transport)
    own = _identity(request.id, "")
    operation = Operation(found, request.method, common, own, trace=trace)
    with operation.active():
        try:
            result = work(operation)
        except Exception as exc:
            operation.raised(exc)
            raise
    operation.returned({})
    return result


@contextmanager
def notified(
    message: Notification, *, version: str, transport: str, session: str = ""
) -> Iterator[None]:
    """Run the block in the operation of a notification from the client."""
    found = instruments()
    if found is None:
        yield
        return
    try:
        _, trace = read_handshake_meta(message.params)
    except InvalidParams:
        trace = {}
    method = _known_method(message.method)
    common = _common_attributes(method, version, transport)
    own = _identity(None, session)
    operation = Operation(found, method, common, own, trace=trace)
    with operation.active():
        try:
            yield
        except Exception as exc:
            operation.raised(exc)
            raise
    operation.returned({})


def session_ended(seconds: float, *, version: str, transport: str) -> None:
    """Record the duration of a session that the client ended or abandoned."""
    found = instruments()
    if found is not None:
        measured = dict(_common_attributes("", version, transport))
        del measured["mcp.method.name"]
        found.measure_session(max(seconds, 0.0), measured)
