"""Model exposures in the admin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mcp_django.admin.exposures.base import ExposureAdmin
from mcp_django.admin.exposures.choosing import ModelChoosingForm
from mcp_django.admin.exposures.model_form import ModelExposureForm
from mcp_django.integrations.models.columns import resolve
from mcp_django.integrations.models.row_access import codename
from mcp_django.models import ModelExposure
from mcp_django.overrides.exposure_rules import ModelOptions
from mcp_django.overrides.exposures import model_of


@admin.register(ModelExposure)
class ModelExposureAdmin(ExposureAdmin):
    """A model as tools and resources, without code."""

    kind = "model"
    form = ModelExposureForm
    choosing_form = ModelChoosingForm
    choosing_help = gettext_lazy("Then you choose its fields, and see what clients will get.")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """What, how, and who; for whoever may only look, what the row says."""
        what = ["target", "server", "is_enabled", "name", "plural", "description"]
        who = (gettext_lazy("Who may use it"), {"fields": ["groups", "permissions", "scopes"]})
        if obj is not None and not self.has_change_permission(request, obj):
            return [(None, {"fields": ["target", "server", "is_enabled", "name", "said"]}), who]
        return [
            (None, {"fields": what}),
            (gettext_lazy("Fields"), {"fields": ["paths", "ordering"]}),
            (gettext_lazy("Tools"), {"fields": ["operations", "page_size"]}),
            (gettext_lazy("Resources"), {"fields": ["uri", "is_listed", "subscribe"]}),
            who,
        ]

    def lists_of(self, rows: Iterable[Any]) -> list[tuple[str, str]]:
        """Tools, resources or both."""
        return [(row.server, one) for row in rows for one in _lists(row)]

    def refusal(self, request: HttpRequest, row: Any) -> str:
        """Whoever may not view or change the model himself may not expose it."""
        try:
            model = model_of(row.target)
            options = ModelOptions.read(row.options if isinstance(row.options, dict) else {})
            hops = [hop for one in options.fields for hop in resolve(model, one, what="").hops]
        except ImproperlyConfigured as exc:
            return str(exc)
        needed = [codename(model, action) for action in options.actions]
        needed += [codename(hop.related_model, "view") for hop in hops]
        user: Any = request.user
        lacking = [one for one in dict.fromkeys(needed) if not user.has_perm(one)]
        if not lacking:
            return ""
        return _("you lack the permission %(names)s.") % {"names": ", ".join(lacking)}


def _lists(row: Any) -> tuple[str, ...]:
    try:
        return ModelOptions.read(row.options).lists
    except (ImproperlyConfigured, AttributeError):
        return ("tools", "resources")
