"""The tool quality report of one server, as a page and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from mcp_django.admin.charts import calls_url
from mcp_django.admin.charts_numbers import MAX_CALLS
from mcp_django.admin.pages import Visit, page
from mcp_django.admin.report_numbers import MAX_INVALID, MIN_CALLS, Quality, Report, report
from mcp_django.management.facts import ESTIMATE
from mcp_django.models import Call

PERIODS = (1, 7, 30, 90)
DEFAULT_PERIOD = 30
# What a spreadsheet takes for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")

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


@page("report", title=_("Tool quality"), permission="view_call")
def quality(visit: Visit) -> HttpResponseBase:
    """What the tools of a server are like to use, and the same as a file."""
    days = _days(visit.request)
    if visit.rest == "csv":
        return _csv(visit, report(visit.server, timedelta(days=days)), days)
    if visit.rest:
        raise Http404
    found = report(visit.server, timedelta(days=days))
    server = visit.server.name
    context: dict[str, Any] = {
        **visit.context,
        "report": found,
        "days": days,
        "periods": [(one, ngettext_lazy("%d day", "%d days", one) % one) for one in PERIODS],
        "never_used": [Row(one, server) for one in found.never_used],
        "failing": _rows(found.failing, server),
        "wrong": [(Row(one, server), path, n) for one, path, n in found.wrong],
        "biggest": _rows(found.biggest, server),
        "slowest": _rows(found.slowest, server),
        "refused": _rows(found.refused, server),
        "min_calls": MIN_CALLS,
        "max_calls": MAX_CALLS,
        "max_invalid": MAX_INVALID,
        "estimate": ESTIMATE,
    }
    return TemplateResponse(visit.request, "admin/mcp_django/report.html", context)


class Row:
    """A component with its addresses in the admin."""

    def __init__(self, one: Quality, server: str) -> None:
        self.one = one
        self._server = server

    @property
    def url(self) -> str:
        """The page of the component, empty where it has none."""
        if self.one.pk is None:
            return ""
        return reverse("admin:mcp_django_component_change", args=[self.one.pk])

    @property
    def calls_url(self) -> str:
        """Its calls."""
        return calls_url(self._server, self.one.kind, self.one.key)

    @property
    def invalid_url(self) -> str:
        """Its calls with wrong arguments."""
        outcome = Call.Outcome.INVALID.value
        return calls_url(self._server, self.one.kind, self.one.key, outcome=outcome)

    @property
    def failure_percent(self) -> float:
        """The share of errors, of a hundred."""
        return 100 * self.one.failure_rate


def _rows(found: Iterable[Quality], server: str) -> list[Row]:
    return [Row(one, server) for one in found]


def _days(request: HttpRequest) -> int:
    asked = request.GET.get("days", "")
    return next((one for one in PERIODS if str(one) == asked), DEFAULT_PERIOD)


def _csv(visit: Visit, found: Report, days: int) -> HttpResponse:
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
        writer.writerow([_cell(value) for value in _line(one)])
    return response


def _line(one: Quality) -> tuple[Any, ...]:
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


def _cell(value: Any) -> Any:
    """A text that no spreadsheet runs: names of arguments come from whoever called."""
    is_formula = isinstance(value, str) and value.startswith(FORMULA)
    return f"'{value}" if is_formula else value
