"""Fixtures that record spans and metrics in memory, with the real OpenTelemetry SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mcp_django.execution import telemetry
from mcp_django.execution.otel import Instruments
from tests.transports.conftest import close_asgiref_connections

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


class Recorder:
    """The spans and metrics that were recorded."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.traces = TracerProvider()
        self.traces.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])

    def spans(self) -> dict[str, ReadableSpan]:
        """Return the ended spans by name; no two may have the same name."""
        spans = self._exporter.get_finished_spans()
        spans_by_name = {span.name: span for span in spans}
        assert len(spans_by_name) == len(spans), [span.name for span in spans]
        return spans_by_name

    def names(self) -> list[str]:
        """The names of the spans that have ended, in any order."""
        return sorted(span.name for span in self._exporter.get_finished_spans())

    def only(self) -> ReadableSpan:
        """Return the only ended span."""
        (span,) = self._exporter.get_finished_spans()
        return span

    def clear(self) -> None:
        """Delete the recorded spans."""
        self._exporter.clear()

    def points(self, name: str) -> list[Any]:
        """Return the data points of the metric with this name."""
        data = self._reader.get_metrics_data()
        metrics = [
            metric
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        return [point for metric in metrics for point in metric.data.data_points]


@pytest.fixture
def recorder(monkeypatch):
    """A recorder of all spans and metrics from now on."""
    recorder = Recorder()
    instruments = Instruments(recorder.traces, recorder.meters)
    monkeypatch.setattr(telemetry, "load_instruments", lambda: instruments)
    yield recorder
    recorder.traces.shutdown()
    recorder.meters.shutdown()


@pytest.fixture
def site(settings, transactional_db):
    """The URLconf of the traced server."""
    settings.ROOT_URLCONF = "tests.execution.telemetry.site"
    close_asgiref_connections()
    yield
    close_asgiref_connections()
