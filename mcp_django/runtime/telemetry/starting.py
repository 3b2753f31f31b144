"""Where operations begin: at a request, at the handshake, at a notification."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from mcp_django.auth.credentials import client_ip
from mcp_django.exceptions import InvalidParams
from mcp_django.protocol.envelope import read_handshake_meta
from mcp_django.protocol.jsonrpc import Notification, Request
from mcp_django.runtime.telemetry import attributes, finding
from mcp_django.runtime.telemetry.operation import Operation

if TYPE_CHECKING:
    from mcp_django.runtime.incoming import Incoming

T = TypeVar("T")


def begin(incoming: Incoming) -> Operation | None:
    """The operation of a request that is about to be dispatched; ``None`` where nobody listens."""
    found = finding.instruments()
    # Without an SDK there is nothing but the trace of the client to be passed on.
    if found is None or (not incoming.envelope.trace and found.is_idle):
        return None
    request, row = incoming.request, getattr(incoming.session, "row", None)
    method = attributes.known(request.method)
    operation = Operation(
        found,
        method,
        attributes.common(method, incoming.revision.version, incoming.transport),
        attributes.identity(request.id, row.digest if row is not None else ""),
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
    """What the work gives, which is told when a revision is agreed on.

    Raises:
        MCPError: the work did.
    """
    found = finding.instruments()
    if found is None:
        return work(None)
    try:
        _, trace = read_handshake_meta(request.params)
    except InvalidParams:
        trace = {}
    common = attributes.common(request.method, "", transport)
    own = attributes.identity(request.id, "")
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
    """Around what a notification of the client does."""
    found = finding.instruments()
    if found is None:
        yield
        return
    try:
        _, trace = read_handshake_meta(message.params)
    except InvalidParams:
        trace = {}
    method = attributes.known(message.method)
    common = attributes.common(method, version, transport)
    own = attributes.identity(None, session)
    operation = Operation(found, method, common, own, trace=trace)
    with operation.active():
        try:
            yield
        except Exception as exc:
            operation.raised(exc)
            raise
    operation.returned({})


def session_ended(seconds: float, *, version: str, transport: str) -> None:
    """Count a session that its client has ended, or left."""
    found = finding.instruments()
    if found is not None:
        measured = dict(attributes.common("", version, transport))
        del measured["mcp.method.name"]
        found.measure_session(max(seconds, 0.0), measured)
