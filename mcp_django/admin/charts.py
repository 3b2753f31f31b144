"""Charts of calls, errors and latency: of the whole site, and of one server."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.charts_numbers import MAX_CALLS, RANGES, Range, numbers
from mcp_django.admin.pages import Visit, page
from mcp_django.models import Call

DEFAULT_RANGE = "day"


class WithCharts:
    """What the admin of the call log has for the charts: their page, and whether to offer it."""

    admin_site: admin.AdminSite

    def get_urls(self) -> list[URLPattern]:
        """With the charts of the whole site."""
        view = self.admin_site.admin_view(self.charts_view)
        urls: list[URLPattern] = super().get_urls()  # type: ignore[misc]
        return [path("charts/", view, name="mcp_django_call_charts"), *urls]

    def charts_view(self, request: HttpRequest) -> HttpResponseBase:
        """The charts of all servers."""
        if not request.user.has_perm("mcp_django.view_call"):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": _("Charts"),
            "opts": Call._meta,
            **_context(request, None),
        }
        return TemplateResponse(request, "admin/mcp_django/call_charts.html", context)


@page("charts", title=_("Charts"), permission="view_call")
def charts(visit: Visit) -> HttpResponseBase:
    """The charts of one server."""
    if visit.rest:
        raise Http404
    context = {**visit.context, **_context(visit.request, visit.server.name)}
    return TemplateResponse(visit.request, "admin/mcp_django/server_charts.html", context)


def _context(request: HttpRequest, server: str | None) -> dict[str, Any]:
    chosen = _range(request)
    found = numbers(chosen, server=server)
    return {
        "ranges": RANGES.values(),
        "chosen": chosen,
        "numbers": found,
        "is_one_server": server is not None,
        "components": [(one, calls_url(one.server, one.kind, one.key)) for one in found.components],
        "max_calls": MAX_CALLS,
    }


def _range(request: HttpRequest) -> Range:
    return RANGES.get(request.GET.get("range", ""), RANGES[DEFAULT_RANGE])


def calls_url(server: str, kind: str, key: str, **also: str) -> str:
    """The address of the call log, narrowed to one component."""
    query = {
        "server__exact": server,
        "kind__exact": kind,
        "component__exact": key,
        **{f"{name}__exact": value for name, value in also.items()},
    }
    return f"{reverse('admin:mcp_django_call_changelist')}?{urlencode(query)}"
