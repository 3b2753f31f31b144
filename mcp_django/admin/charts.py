"""Charts of calls, errors and latency, and the tool quality report of one server.

The charts are of the whole site (``admin.calls``) or of one server. The numbers come from
``admin.statistics``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext_lazy as _, ngettext_lazy

from mcp_django.admin.base import ServerPageRequest, server_page
from mcp_django.admin.call_filters import calls_url
from mcp_django.admin.statistics import (
    MAX_CALLS,
    MAX_INVALID,
    MIN_CALLS,
    MIN_PERCENTILE,
    RANGES,
    ComponentQuality,
    QualityReport,
    build_chart_data,
    build_quality_report,
)
from mcp_django.models import Call
from mcp_django.protocol.text import csv_line

DEFAULT_RANGE = "day"


@server_page("charts", title=_("Charts"), permission="view_call")
def charts_page(page_request: ServerPageRequest) -> HttpResponseBase:
    """Show the charts of one server."""
    return page_request.render(
        "server_charts", **charts_context(page_request.request, page_request.server.name)
    )


def charts_context(request: HttpRequest, server: str | None) -> dict[str, Any]:
    """Return the context of the charts of one server, or of all."""
    chosen = RANGES.get(request.GET.get("range", ""), RANGES[DEFAULT_RANGE])
    component = {name: request.GET[name] for name in ("kind", "key") if request.GET.get(name)}
    # No component has a NUL in its key, with which a database would reject the query.
    is_one = server is not None and len(component) == 2 and "\0" not in "".join(component.values())
    chart_data = build_chart_data(chosen, server=server, component=component if is_one else None)
    since = chart_data.cut or chart_data.since
    return {
        "ranges": [
            (span, urlencode({**(component if is_one else {}), "range": span.slug}))
            for span in RANGES.values()
        ],
        "chosen": chosen,
        "component": component if is_one else None,
        "numbers": chart_data,
        "is_one_server": server is not None,
        "components": [
            (counts, _urls_of(counts.server, counts.kind, counts.key, since=since))
            for counts in chart_data.components
        ],
        "max_calls": MAX_CALLS,
        "min_percentile": MIN_PERCENTILE,
    }


def _urls_of(server: str, kind: str, key: str, *, since: datetime) -> dict[str, str]:
    """Return the URLs of the calls of a component since a time, by what the number counts."""
    query = {"server__exact": server, "kind__exact": kind, "component": key}
    outcomes = {"errors": "failures", "refused": "refusals", "invalid": Call.Outcome.INVALID.value}
    return {
        "calls": calls_url(since=since, **query),
        **{
            name: calls_url(since=since, **query, outcome=outcome)
            for name, outcome in outcomes.items()
        },
    }


PERIODS = (1, 7, 30, 90)
DEFAULT_PERIOD = 30


@server_page("report", title=_("Tool quality"), permission="view_call", has_subpages=True)
def quality_report_page(page_request: ServerPageRequest) -> HttpResponseBase:
    """Show the tool quality report of a server, or return it as a CSV file."""
    chosen = page_request.request.GET.get("days", "")
    days = next((period for period in PERIODS if str(period) == chosen), DEFAULT_PERIOD)
    if page_request.rest not in ("", "csv"):
        raise Http404
    report = build_quality_report(page_request.server, timedelta(days=days))
    if page_request.rest:
        return _csv(page_request, report, days)

    server, since = page_request.server.name, report.cut or report.since
    page = "admin:mcp_django_component_change"

    def row(component: ComponentQuality) -> dict[str, Any]:
        return {
            "component": component,
            "url": "" if component.pk is None else reverse(page, args=[component.pk]),
            "urls": _urls_of(server, component.kind, component.key, since=since),
            "failure_percent": 100 * component.failure_rate,
        }

    names = ("never_used", "failing", "biggest", "slowest", "refused")
    tables: dict[str, Any] = {
        name: [row(component) for component in getattr(report, name)] for name in names
    }
    return page_request.render(
        "report",
        report=report,
        days=days,
        periods=[
            (period, ngettext_lazy("%d day", "%d days", period) % period) for period in PERIODS
        ],
        **tables,
        wrong=[(row(component), path, n) for component, path, n in report.wrong],
        min_calls=MIN_CALLS,
        max_calls=MAX_CALLS,
        max_invalid=MAX_INVALID,
    )


def _csv(page_request: ServerPageRequest, report: QualityReport, days: int) -> HttpResponse:
    name = f"{page_request.server.name}-quality-{days}-days.csv"
    response = HttpResponse(
        content_type="text/csv; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "Cache-Control": "no-store, private",
        },
    )
    response.write(csv_line(COLUMNS))
    for component in report.every:
        response.write(csv_line(value_of(component) for value_of in COLUMNS.values()))
    return response


def _rounded(name: str) -> Callable[[ComponentQuality], float | None]:
    def value_of(component: ComponentQuality) -> float | None:
        value = getattr(component, name)
        return None if value is None else round(float(value), 1)

    return value_of


COLUMNS: Mapping[str, Callable[[ComponentQuality], Any]] = {
    "kind": attrgetter("kind"),
    "component": attrgetter("key"),
    "used": lambda component: "yes" if component.was_used else "no",
    "calls": attrgetter("calls"),
    "failed": attrgetter("failures"),
    "failure_rate": lambda component: round(component.failure_rate, 4),
    "invalid_arguments": attrgetter("invalid"),
    "refused": attrgetter("refused"),
    "limited": attrgetter("limited"),
    "mean_bytes": _rounded("mean_bytes"),
    "p95_bytes": _rounded("p95_bytes"),
    "estimated_tokens": attrgetter("tokens"),
    "median_ms": _rounded("median_ms"),
    "p95_ms": _rounded("p95_ms"),
    "wrong_arguments": lambda component: "; ".join(
        f"{path} ({n})" for path, n in component.wrong.most_common()
    ),
}
"""The columns of the CSV file, each with its value for a component."""
