"""OpenTelemetry spans and histograms; the only module that imports the OpenTelemetry API.

Without an SDK the API records nothing, but the client's trace context is still propagated to the
services that the site calls. W3C Trace Context and W3C Baggage are always extracted, regardless of
the site's propagators, since the MCP specification names these two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from importlib import metadata
from typing import Any, Literal

from opentelemetry import context as contexts, metrics, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mcp_django.storage.cache import cache_counters

INSTRUMENTATION_SCOPE = "mcp_django"
PACKAGE = "django-mcp-provider"
DURATION_BUCKETS_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)

Attributes = Mapping[str, Any]
SpanRole = Literal["server", "client"]

_SPAN_KINDS: Mapping[SpanRole, SpanKind] = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT}
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
        span_context = self._span.get_span_context()
        return trace.format_trace_id(span_context.trace_id) if span_context.is_valid else ""

    def activate(self) -> AbstractContextManager[None]:
        """Return a context manager in which the span is the parent of new spans."""
        return _AttachedContext(self._context)

    def set_attributes(self, attributes: Attributes) -> None:
        """Set attributes of the span."""
        self._span.set_attributes(attributes)

    def rename(self, name: str) -> None:
        """Change the name of the span."""
        self._span.update_name(name)

    def trace_context(self) -> dict[str, str]:
        """Return the trace context for a message to the client, whose spans become children.

        Baggage is left out, since it may contain the site's internal data.
        """
        carrier: dict[str, str] = {}
        _trace_context.inject(carrier, self._context)
        return carrier

    def end(self, *, error: str = "", description: str = "") -> None:
        """End the span, with status ``ERROR`` if there was an error."""
        if error:
            self._span.set_status(Status(StatusCode.ERROR, description or None))
        self._span.end()


class _AttachedContext:
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
        self._uses_global_providers = tracer_provider is None and meter_provider is None
        # The providers of the last check: a site may set others at any time.
        self._known_providers: tuple[object, object] = (None, None)
        self._is_noop = False
        version = _package_version()
        self._tracer = trace.get_tracer(INSTRUMENTATION_SCOPE, version, tracer_provider)
        meter = metrics.get_meter(INSTRUMENTATION_SCOPE, version, meter_provider)
        self._operations: Mapping[SpanRole, metrics.Histogram] = {
            "server": _create_histogram(
                meter, "mcp.server.operation.duration", "Duration of a request from a client."
            ),
            "client": _create_histogram(
                meter,
                "mcp.client.operation.duration",
                "Time that a client took to answer a request.",
            ),
        }
        self._sessions = _create_histogram(
            meter, "mcp.server.session.duration", "Duration of a session with a client."
        )
        meter.create_observable_counter(
            "mcp_django.cache.values",
            [_observe_cache],
            unit="{value}",
            description="Callers and sessions that were known, asked for or confirmed.",
        )

    @property
    def is_noop(self) -> bool:
        """Whether no SDK is configured (yet), so that the API's own providers record nothing."""
        if not self._uses_global_providers:
            return False
        providers = trace.get_tracer_provider(), metrics.get_meter_provider()
        if providers != self._known_providers:
            # The packages of the API's own providers.
            own = ("opentelemetry.trace.", "opentelemetry.metrics.")
            modules = [f"{type(provider).__module__}." for provider in providers]
            is_noop = all(module.startswith(own) for module in modules)
            self._known_providers, self._is_noop = providers, is_noop
        return self._is_noop

    def start_span(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: SpanRole = "server",
        received: Mapping[str, str] | None = None,
        within: Span | None = None,
    ) -> Span:
        """Start a span, as a child of the received trace or else of the current span.

        If a trace was received, the current span (such as the web server's) is linked instead: it
        transported the message and did not cause it. ``within`` is used as the parent instead of
        the current span.
        """
        current = contexts.get_current() if within is None else within._context
        links: tuple[Link, ...] = ()
        parent = current
        if received:
            parent = _baggage.extract(received, _trace_context.extract(received, current))
            current_span = trace.get_current_span(current).get_span_context()
            if current_span.is_valid and "traceparent" in received:
                links = (Link(current_span),)
        span = self._tracer.start_span(
            name, parent, kind=_SPAN_KINDS[kind], attributes=attributes, links=links
        )
        return Span(span, trace.set_span_in_context(span, parent))

    def record_operation(
        self, seconds: float, attributes: Attributes, span: Span, *, kind: SpanRole = "server"
    ) -> None:
        """Record the duration of an operation, with the span as its exemplar."""
        self._operations[kind].record(seconds, attributes, span._context)

    def record_session(self, seconds: float, attributes: Attributes) -> None:
        """Record the duration of a session."""
        self._sessions.record(seconds, attributes)


def _observe_cache(options: metrics.CallbackOptions) -> Iterator[metrics.Observation]:
    for name, counters in cache_counters().items():
        for event in ("hits", "asked", "confirmed"):
            yield metrics.Observation(counters[event], {"cache": name, "event": event})


def _package_version() -> str:
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:  # the package runs from a checkout
        return ""


def _create_histogram(meter: metrics.Meter, name: str, description: str) -> metrics.Histogram:
    try:
        return meter.create_histogram(
            name,
            unit="s",
            description=description,
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS_SECONDS,
        )
    except TypeError:
        # The API before 1.30, which another package of the site may require, has no buckets.
        return meter.create_histogram(name, unit="s", description=description)
