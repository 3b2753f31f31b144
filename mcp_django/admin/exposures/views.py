"""View exposures in the admin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from mcp_django.admin.exposures.base import ExposureAdmin
from mcp_django.admin.exposures.choosing import ViewChoosingForm
from mcp_django.admin.exposures.view_form import ViewExposureForm, methods_of
from mcp_django.models import ViewExposure
from mcp_django.overrides.exposure_rules import ViewOptions


@admin.register(ViewExposure)
class ViewExposureAdmin(ExposureAdmin):
    """A view as a tool, a resource or a prompt, without code."""

    kind = "view"
    form = ViewExposureForm
    choosing_form = ViewChoosingForm
    choosing_help = gettext_lazy(
        "The site's own middleware and view answer each call, as the user who calls."
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """What the view becomes, and who may use it."""
        who = (gettext_lazy("Who may use it"), {"fields": ["groups", "permissions", "scopes"]})
        what = ["target", "server", "is_enabled", "name"]
        if obj is not None and not self.has_change_permission(request, obj):
            return [(None, {"fields": [*what, "said"]}), who]
        target = obj.target if obj is not None else request.GET.get("target", "")
        ways = ["methods"] if methods_of(target) else ["becomes", "uri", "query", "is_readable"]
        return [
            (None, {"fields": [*what, "title", "description"]}),
            (gettext_lazy("What it becomes"), {"fields": ways}),
            who,
        ]

    def lists_of(self, rows: Iterable[Any]) -> list[tuple[str, str]]:
        """The one list that it is in."""
        return [(row.server, one) for row in rows for one in _lists(row)]


def _lists(row: Any) -> tuple[str, ...]:
    try:
        return ViewOptions.read(row.options).lists
    except (ImproperlyConfigured, AttributeError):
        return ("tools", "resources", "prompts")
