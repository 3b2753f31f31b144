"""Filters of the list of components that no column is enough for."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

# What a row says whose component is as in code, but for being switched off.
SAYS_NOTHING: Final[dict[str, Any]] = {
    **dict.fromkeys(("title", "description", "rate", "approval"), ""),
    **{name: [] for name in ("groups", "permissions", "scopes")},
}


class _YesNo(admin.SimpleListFilter):
    """Those of which something holds, or those of which it does not."""

    condition: Q

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Yes and no."""
        return [("yes", _("Yes")), ("no", _("No"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """What is left."""
        if self.value() == "yes":
            return queryset.filter(self.condition)
        return queryset.exclude(self.condition) if self.value() == "no" else queryset


class OverriddenFilter(_YesNo):
    """Those of which the admin says anything but that they are switched off."""

    title = _("overridden")
    parameter_name = "overridden"
    condition = ~Q(**SAYS_NOTHING)


class MissingFilter(_YesNo):
    """Those that code has no more."""

    title = _("missing")
    parameter_name = "missing"
    condition = Q(missing_since__isnull=False)
