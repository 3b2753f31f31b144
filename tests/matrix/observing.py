"""Observe the calls in the log, spans and signals of a request; reset the state before it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.core.cache import cache
from django.db import connection
from django.db.models import Model
from django.dispatch import Signal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from mcp_django import signals
from mcp_django.auth import limits, security_log
from mcp_django.execution.call_log import anonymous_limiter
from mcp_django.execution.otel import Instruments
from mcp_django.models import Approval, Call, Task
from mcp_django.storage.cache import clear_caches
from mcp_django.storage.call_rows import CallLog
from tests.kit.drivers import PATIENCE
from tests.matrix.links import Answer
from tests.matrix.links_local import SENTINEL
from tests.matrix.rules import (
    replace_attributes,
    replace_columns,
    replace_headers,
    replace_in_text,
    result_sizes,
)

CALLS, TASKS = Call._meta.db_table, Task._meta.db_table
# The models of the rows that requests may leave.
MODELS: tuple[type[Model], ...] = (Call, Approval, Task, Group)


def _whether_each(*rows: str) -> str:
    return "SELECT " + ", ".join(f"EXISTS (SELECT 1 FROM {row})" for row in rows)


# Constants, so that they are not built again for each of thousands of requests.
BUSY = _whether_each(
    f"{TASKS} WHERE status = '{Task.Status.WORKING}'",
    f"{CALLS} WHERE outcome = '{Call.Outcome.STARTED}'",
)
FILLED = _whether_each(*(model._meta.db_table for model in MODELS))
STORED = f"SELECT 1 FROM {CALLS} WHERE at = %s AND token = %s"

SIGNALS = ("component_failed", "call_started", "call_finished", "approval_requested")

Observation = dict[str, Any]


class Spans(SpanProcessor):
    """Keeps the spans that ended, and the spans that have not ended."""

    def __init__(self) -> None:
        # Weak, because a request that starts again in a thread drops the span of its first try.
        self.open: WeakValueDictionary[int, Span] = WeakValueDictionary()
        self.ended: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        context = span.get_span_context()
        assert context is not None
        self.open[context.span_id] = span

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)
        context = span.get_span_context()
        assert context is not None
        self.open.pop(context.span_id, None)


class Watch:
    """Watches one request after the other."""

    def __init__(self, log: CallLog) -> None:
        self._log = log
        self.spans = Spans()
        self._sent: list[list[Any]] = []
        traces = TracerProvider()
        traces.add_span_processor(self.spans)
        self.instruments = Instruments(traces, MeterProvider())

    @contextmanager
    def receive_signals(self) -> Iterator[None]:
        """Receive the signals of the package."""
        for name in SIGNALS:
            receiver = getattr(self, f"_receive_{name}", self._receive_call)
            _signal(name).connect(receiver, weak=False, dispatch_uid="matrix")
        try:
            yield
        finally:
            for name in SIGNALS:
                _signal(name).disconnect(dispatch_uid="matrix")

    def _receive_call(self, signal: Signal, call: Any, **kwargs: Any) -> None:
        name = "call_started" if signal is signals.call_started else "call_finished"
        fields = [name, call.component, call.outcome, call.code, call.reason]
        self._sent.append([*fields, "saved" if _is_stored(call) else "unsaved"])

    def _receive_component_failed(self, component: Any, exception: Exception, **kw: Any) -> None:
        fields = [component.kind, component.key, type(exception).__name__, str(exception)]
        self._sent.append(["component_failed", *fields])

    def _receive_approval_requested(self, approval: Approval, url: str, **kwargs: Any) -> None:
        fields = [approval.component, approval.by, bool(url)]
        self._sent.append(["approval_requested", *fields])

    async def forget(self, *, is_reset: bool) -> None:
        """Wait until requests have ended; discard traces, and with `is_reset` limits and rows."""
        await sync_to_async(self._settle_and_forget)(is_reset=is_reset)

    async def observe(self, answer: Answer, **context: str) -> Observation:
        """Return the answer and its traces as they are recorded; discard the traces."""
        # One switch of threads for everything, since there are thousands of requests.
        rows, spans, sent = await sync_to_async(self._take)()
        headers = replace_headers(answer.headers, answer.body, **context)
        sizes = result_sizes(answer.body)
        # A transport that is not HTTP has no status and no headers.
        head = {} if answer.status is None else {"status": answer.status, "headers": headers}
        return {
            **head,
            "body": replace_in_text(answer.body, **context),
            "calls": sorted((replace_columns(row, sizes, **context) for row in rows), key=str),
            "spans": sorted((_span(span, context) for span in spans), key=str),
            # Calls of a batch, and a task and its call, run at the same time.
            "signals": sorted(sent, key=str) if len(rows) > 1 else sent,
        }

    def _take(self) -> tuple[list[dict[str, Any]], list[ReadableSpan], list[list[Any]]]:
        filled = self._settle()
        traces = _rows() if Call in filled else [], self._own_spans(), list(self._sent)
        self._forget(filled, is_reset=True)
        return traces

    def _settle_and_forget(self, *, is_reset: bool) -> None:
        self._forget(self._settle(), is_reset=is_reset)

    def _settle(self) -> set[type[Model]]:
        """Wait until requests have ended, and return the models that have rows then."""
        until = time.monotonic() + PATIENCE
        while self._is_busy():
            assert time.monotonic() < until, (
                f"{[*self.spans.open.values()] or 'a row'} does not end"
            )
            # Nothing signals the end of the thread of a task, or of a call that was abandoned.
            time.sleep(0.001)
        assert self._log.flush(PATIENCE)
        return {
            model for model, is_filled in zip(MODELS, _select(FILLED), strict=True) if is_filled
        }

    def _is_busy(self) -> bool:
        # A span ends after the record of its call is written.
        return bool(self.spans.open) or any(_select(BUSY))

    def _forget(self, filled: set[type[Model]], *, is_reset: bool) -> None:
        if is_reset:
            _reset(filled)
        self.spans.ended.clear()
        self._sent.clear()
        if Call in filled:
            Call.objects.all()._raw_delete("default")

    def _own_spans(self) -> list[ReadableSpan]:
        return [
            span
            for span in self.spans.ended
            if (span.attributes or {}).get("jsonrpc.request.id") != SENTINEL
        ]


def _signal(name: str) -> Signal:
    signal: Signal = getattr(signals, name)
    return signal


def _reset(filled: set[type[Model]]) -> None:
    cache.clear()
    limits.accepted_credentials.clear()
    security_log.event_limiter.clear()
    clear_caches()
    anonymous_limiter.clear()
    for model in filled - {Call}:
        model._default_manager.all().delete()


def _select(statement: str, *params: Any) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return tuple(cursor.fetchone() or ())


def _is_stored(call: Call) -> bool:
    at = connection.ops.adapt_datetimefield_value(call.at)
    return bool(_select(STORED, at, call.token))


def _rows() -> list[dict[str, Any]]:
    rows = [dict(row) for row in Call.objects.order_by("id").values()]
    for row in rows:
        # Not recorded: a process finds its own row by the token.
        assert row.pop("token")
    return rows


def _span(span: ReadableSpan, context: dict[str, str]) -> dict[str, Any]:
    attributes = replace_attributes(span.name, dict(span.attributes or {}), **context)
    record = {
        "name": span.name,
        "kind": span.kind.name,
        "status": [span.status.status_code.name, span.status.description or ""],
        "parent": span.parent is not None,
        "events": [event.name for event in span.events],
        "attributes": attributes,
    }
    usual = {
        "kind": "SERVER",
        "status": ["UNSET", ""],
        "parent": False,
        "events": [],
        "attributes": {},
    }
    return {k: v for k, v in record.items() if k not in usual or v != usual[k]}
