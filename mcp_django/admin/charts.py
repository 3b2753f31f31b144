"""Pages with charts of calls, errors and latency, and the tool quality report of one server.

The charts are of the whole site or of one server. The numbers come from ``admin.statistics``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _, ngettext_lazy

from mcp_django.admin.base import ServerPageRequest, server_page
from mcp_django.admin.statistics import (
    MAX_CALLS,
    MAX_INVALID,
    MIN_CALLS,
    RANGES,
    ComponentQuality,
    QualityReport,
    Range,
    build_chart_data,
    build_quality_report,
)
from mcp_django.management.lookups import ESTIMATE
from mcp_django.models import Call
from mcp_django.protocol.text import csv_cell

DEFAULT_RANGE = "day"


class ChartsMixin:
    """A mixin for ``CallAdmin`` with the charts of all servers."""

    admin_site: admin.AdminSite

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the charts of all servers."""
        view = self.admin_site.admin_view(self.charts_view)
        urls: list[URLPattern] = super().get_urls()  # type: ignore[misc]
        return [path("charts/", view, name="mcp_django_call_charts"), *urls]

    def charts_view(self, request: HttpRequest) -> HttpResponseBase:
        """Show the charts of all servers."""
        if not request.user.has_perm("mcp_django.view_call"):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": _("Charts"),
            "opts": Call._meta,
            **_context(request, None),
        }
        return TemplateResponse(request, "admin/mcp_django/call_charts.html", context)


@server_page("charts", title=_("Charts"), permission="view_call")
def charts_page(visit: ServerPageRequest) -> HttpResponseBase:
    """Show the charts of one server."""
    if visit.rest:
        raise Http404
    context = {**visit.context, **_context(visit.request, visit.server.name)}
    return TemplateResponse(visit.request, "admin/mcp_django/server_charts.html", context)


def _context(request: HttpRequest, server: str | None) -> dict[str, Any]:
    chosen = _range(request)
    found = build_chart_data(chosen, server=server)
    return {
        "ranges": RANGES.values(),
        "chosen": chosen,
        "numbers": found,
        "is_one_server": server is not None,
        "components": [
            (one, _calls_url(one.server, one.kind, one.key)) for one in found.components
        ],
        "max_calls": MAX_CALLS,
    }


def _range(request: HttpRequest) -> Range:
    return RANGES.get(request.GET.get("range", ""), RANGES[DEFAULT_RANGE])


def _calls_url(server: str, kind: str, key: str, **also: str) -> str:
    """Return the URL of the call log, filtered by one component."""
    query = {
        "server__exact": server,
        "kind__exact": kind,
        "component__exact": key,
        **{f"{name}__exact": value for name, value in also.items()},
    }
    return f"{reverse('admin:mcp_django_call_changelist')}?{urlencode(query)}"


# The tool quality report --------------------------------------------------------------------------

PERIODS = (1, 7, 30, 90)
DEFAULT_PERIOD = 30

COLUMNS = (
    "kind",
    "component",
    "used",
    "calls",
    "failed",
    "failure_rate",
    "invalid_arguments",
    "refused",
    "limited",
    "mean_bytes",
    "p95_bytes",
    "estimated_tokens",
    "median_ms",
    "p95_ms",
    "wrong_arguments",
)


@server_page("report", title=_("Tool quality"), permission="view_call")
def quality_report_page(visit: ServerPageRequest) -> HttpResponseBase:
    """Show the tool quality report of a server, or return it as a CSV file."""
    days = _days(visit.request)
    if visit.rest == "csv":
        return _csv(visit, build_quality_report(visit.server, timedelta(days=days)), days)
    if visit.rest:
        raise Http404
    found = build_quality_report(visit.server, timedelta(days=days))
    server = visit.server.name
    context: dict[str, Any] = {
        **visit.context,
        "report": found,
        "days": days,
        "periods": [(one, ngettext_lazy("%d day", "%d days", one) % one) for one in PERIODS],
        "never_used": [_ReportRow(one, server) for one in found.never_used],
        "failing": _rows(found.failing, server),
        "wrong": [(_ReportRow(one, server), path, n) for one, path, n in found.wrong],
        "biggest": _rows(found.biggest, server),
        "slowest": _rows(found.slowest, server),
        "refused": _rows(found.refused, server),
        "min_calls": MIN_CALLS,
        "max_calls": MAX_CALLS,
        "max_invalid": MAX_INVALID,
        "estimate": ESTIMATE,
    }
    return TemplateResponse(visit.request, "admin/mcp_django/report.html", context)


class _ReportRow:
    """A component of the report, with its URLs in the admin."""

    def __init__(self, one: ComponentQuality, server: str) -> None:
        self.one = one
        self._server = server

    @property
    def url(self) -> str:
        """The URL of the component's change page, empty if it has none."""
        if self.one.pk is None:
            return ""
        return reverse("admin:mcp_django_component_change", args=[self.one.pk])

    @property
    def calls_url(self) -> str:
        """The URL of the component's calls in the call log."""
        return _calls_url(self._server, self.one.kind, self.one.key)

    @property
    def invalid_url(self) -> str:
        """The URL of the component's calls with invalid arguments."""
        outcome = Call.Outcome.INVALID.value
        return _calls_url(self._server, self.one.kind, self.one.key, outcome=outcome)

    @property
    def failure_percent(self) -> float:
        """The error rate in percent."""
        return 100 * self.one.failure_rate


def _rows(found: Iterable[ComponentQuality], server: str) -> list[_ReportRow]:
    return [_ReportRow(one, server) for one in found]


def _days(request: HttpRequest) -> int:
    asked = request.GET.get("days", "")
    return next((one for one in PERIODS if str(one) == asked), DEFAULT_PERIOD)


def _csv(visit: ServerPageRequest, found: QualityReport, days: int) -> HttpResponse:
    name = f"{visit.server.name}-quality-{days}-days.csv"
    response = HttpResponse(
        content_type="text/csv; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "Cache-Control": "no-store, private",
        },
    )
    writer = csv.writer(response)
    writer.writerow(COLUMNS)
    for one in found.every:
        writer.writerow([csv_cell(value) for value in _line(one)])
    return response


def _line(one: ComponentQuality) -> tuple[Any, ...]:
    wrong = "; ".join(f"{path} ({n})" for path, n in one.wrong.most_common())
    return (
        one.kind,
        one.key,
        "yes" if one.was_used else "no",
        one.calls,
        one.failures,
        round(one.failure_rate, 4),
        one.invalid,
        one.refused,
        one.limited,
        _rounded(one.mean_bytes),
        _rounded(one.p95_bytes),
        one.tokens,
        _rounded(one.median_ms),
        _rounded(one.p95_ms),
        wrong,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 1)
