"""OpenTelemetry spans and histograms; the only module that imports the OpenTelemetry API.

Without an SDK the API records nothing, but the client's trace context is still propagated to the
services that the site calls. W3C Trace Context and W3C Baggage are always extracted, regardless of
the site's propagators, since the MCP specification names these two.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib import metadata
from typing import Any, Literal

from opentelemetry import context as contexts, metrics, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

SCOPE = "mcp_django"
PACKAGE = "django-mcp-provider"
BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)

Attributes = Mapping[str, Any]
Kind = Literal["server", "client"]

_KINDS: Mapping[Kind, SpanKind] = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT}
_trace_context = TraceContextTextMapPropagator()
_baggage = W3CBaggagePropagator()


class Span:
    """A started span, with the context in which it is the current span."""

    __slots__ = ("_context", "_span")

    def __init__(self, span: trace.Span, context: contexts.Context) -> None:
        self._span = span
        self._context = context

    @property
    def is_recording(self) -> bool:
        """Whether the span is recorded; false without an SDK, or if it is not sampled."""
        return self._span.is_recording()

    @property
    def trace_id(self) -> str:
        """The trace id as 32 hexadecimal digits; empty without a trace."""
        found = self._span.get_span_context()
        return trace.format_trace_id(found.trace_id) if found.is_valid else ""

    def active(self) -> AbstractContextManager[None]:
        """Return a context manager in which the span is the parent of new spans."""
        return _Within(self._context)

    def set(self, attributes: Attributes) -> None:
        """Set attributes of the span."""
        self._span.set_attributes(attributes)

    def rename(self, name: str) -> None:
        """Change the name of the span."""
        self._span.update_name(name)

    def carried(self) -> dict[str, str]:
        """Return the trace context for a message to the client, whose spans become children.

        Baggage is left out, since it may contain the site's internal data.
        """
        found: dict[str, str] = {}
        _trace_context.inject(found, self._context)
        return found

    def end(self, *, error: str = "", description: str = "") -> None:
        """End the span, with status ``ERROR`` if there was an error."""
        if error:
            self._span.set_status(Status(StatusCode.ERROR, description or None))
        self._span.end()


class _Within:
    """Attaches a context for a ``with`` block; a generator would cost twice as much."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: contexts.Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token = contexts.attach(self._context)

    def __exit__(self, *exc_info: object) -> None:
        contexts.detach(self._token)


class Instruments:
    """The tracer and the histograms of this package.

    Without arguments the global providers are used, even if they are set later.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._is_of_process = tracer_provider is None and meter_provider is None
        version = _version()
        self._tracer = trace.get_tracer(SCOPE, version, tracer_provider)
        meter = metrics.get_meter(SCOPE, version, meter_provider)
        self._operations: Mapping[Kind, metrics.Histogram] = {
            "server": _histogram(
                meter, "mcp.server.operation.duration", "Duration of a request from a client."
            ),
            "client": _histogram(
                meter,
                "mcp.client.operation.duration",
                "Time that a client took to answer a request.",
            ),
        }
        self._sessions = _histogram(
            meter, "mcp.server.session.duration", "Duration of a session with a client."
        )

    @property
    def is_idle(self) -> bool:
        """Whether no SDK is configured (yet), so that the API's own providers record nothing."""
        if not self._is_of_process:
            return False
        traces, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
        return _is_of_api(traces, "opentelemetry.trace") and _is_of_api(
            meters, "opentelemetry.metrics"
        )

    def begin(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: Kind = "server",
        received: Mapping[str, str] | None = None,
        within: Span | None = None,
    ) -> Span:
        """Start a span, as a child of the received trace or else of the current span.

        If a trace was received, the current span (such as the web server's) is linked instead: it
        transported the message and did not cause it. ``within`` names another parent than the
        current span.
        """
        around = contexts.get_current() if within is None else within._context
        links: tuple[Link, ...] = ()
        parent = around
        if received:
            parent = _baggage.extract(received, _trace_context.extract(received, around))
            way = trace.get_current_span(around).get_span_context()
            if way.is_valid and "traceparent" in received:
                links = (Link(way),)
        span = self._tracer.start_span(
            name, parent, kind=_KINDS[kind], attributes=attributes, links=links
        )
        return Span(span, trace.set_span_in_context(span, parent))

    def measure(
        self, seconds: float, attributes: Attributes, span: Span, *, kind: Kind = "server"
    ) -> None:
        """Record the duration of an operation, with the span as its exemplar."""
        self._operations[kind].record(seconds, attributes, span._context)

    def measure_session(self, seconds: float, attributes: Attributes) -> None:
        """Record the duration of a session."""
        self._sessions.record(seconds, attributes)


def _is_of_api(provider: object, package: str) -> bool:
    return f"{type(provider).__module__}.".startswith(f"{package}.")


def _version() -> str:
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:  # the package runs from a checkout
        return ""


def _histogram(meter: metrics.Meter, name: str, description: str) -> metrics.Histogram:
    try:
        return meter.create_histogram(
            name, unit="s", description=description, explicit_bucket_boundaries_advisory=BUCKETS
        )
    except TypeError:
        # The API before 1.30, which another package of the site may require, has no buckets.
        return meter.create_histogram(name, unit="s", description=description)
