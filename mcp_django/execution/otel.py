"""What is used of OpenTelemetry; the one module that imports its API.

Without an SDK the API does nothing, but for one thing: the trace of the client is still passed on
to whatever the site calls. W3C Trace Context and W3C Baggage are read whatever propagators the site
has, since MCP has named those two (MET-4).
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
    """A span that has begun, with the context that it is the current one in."""

    __slots__ = ("_context", "_span")

    def __init__(self, span: trace.Span, context: contexts.Context) -> None:
        self._span = span
        self._context = context

    @property
    def is_recording(self) -> bool:
        """Whether anybody will read it; without an SDK, and unsampled, nobody does."""
        return self._span.is_recording()

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits, or nothing where there is no trace."""
        found = self._span.get_span_context()
        return trace.format_trace_id(found.trace_id) if found.is_valid else ""

    def active(self) -> AbstractContextManager[None]:
        """Make it the parent of what is begun here."""
        return _Within(self._context)

    def set(self, attributes: Attributes) -> None:
        """Say more of it."""
        self._span.set_attributes(attributes)

    def rename(self, name: str) -> None:
        """Say what it is called."""
        self._span.update_name(name)

    def carried(self) -> dict[str, str]:
        """What a message to the other side carries, so that its spans become children.

        The trace alone: baggage may be the site's own.
        """
        found: dict[str, str] = {}
        _trace_context.inject(found, self._context)
        return found

    def end(self, *, error: str = "", description: str = "") -> None:
        """End it, with what went wrong."""
        if error:
            self._span.set_status(Status(StatusCode.ERROR, description or None))
        self._span.end()


class _Within:
    """Surrounds what is done within a context; a generator would cost twice as much."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: contexts.Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token = contexts.attach(self._context)

    def __exit__(self, *exc_info: object) -> None:
        contexts.detach(self._token)


class Instruments:
    """The tracer and the histograms of this package.

    Without providers they are those of the process, also if they are set later.
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
                meter, "mcp.server.operation.duration", "How long a request of a client took."
            ),
            "client": _histogram(
                meter, "mcp.client.operation.duration", "How long a client took to answer."
            ),
        }
        self._sessions = _histogram(
            meter, "mcp.server.session.duration", "How long a session with a client lasted."
        )

    @property
    def is_idle(self) -> bool:
        """Whether the process has no SDK, or none yet: what the API itself has does nothing."""
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
        """Begin a span: under the trace that was received, or under what is current.

        What is current (the span of a web server) is linked, where something was received: it is
        the way of the message, and not what caused it. ``within`` names the parent instead.
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
        """Count an operation; the span is its example."""
        self._operations[kind].record(seconds, attributes, span._context)

    def measure_session(self, seconds: float, attributes: Attributes) -> None:
        """Count a session."""
        self._sessions.record(seconds, attributes)


def _is_of_api(provider: object, package: str) -> bool:
    return f"{type(provider).__module__}.".startswith(f"{package}.")


def _version() -> str:
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:  # it is served from a checkout
        return ""


def _histogram(meter: metrics.Meter, name: str, description: str) -> metrics.Histogram:
    try:
        return meter.create_histogram(
            name, unit="s", description=description, explicit_bucket_boundaries_advisory=BUCKETS
        )
    except TypeError:
        # An API from before 1.30, which something else of the site has brought, knows no buckets.
        return meter.create_histogram(name, unit="s", description=description)
