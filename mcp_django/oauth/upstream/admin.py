"""The admin of what users let this site do at third parties: look, and end it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from mcp_django.admin_base import Base
from mcp_django.conf import get_settings
from mcp_django.oauth.models import UpstreamGrant


@admin.register(UpstreamGrant)
class UpstreamGrantAdmin(Base):
    """Upstream access of all users; what is encrypted is not shown."""

    list_display = ["provider", "user", "subject", "status", "expires_at", "checked_at"]
    list_filter = ["provider", "status"]
    list_select_related = ["user"]
    search_fields = ["subject", "provider"]
    actions = ["disconnect"]
    fields = (
        *("provider", "user", "issuer", "subject", "scopes", "status", "last_error"),
        *("created_at", "authorized_at", "expires_at", "refresh_expires_at", "checked_at"),
    )

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Without a provider there is nothing to see."""
        return bool(get_settings().oauth.upstream) and super().has_module_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Only a user can let the site in."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """What a provider granted is not edited."""
        return False

    def has_disconnect_permission(self, request: HttpRequest) -> bool:
        """Whoever may delete upstream access may end it."""
        return self.has_delete_permission(request)

    @admin.action(description=_("Disconnect"), permissions=["disconnect"])
    def disconnect(self, request: HttpRequest, queryset: QuerySet[UpstreamGrant]) -> None:
        """End the chosen accesses, here with every token that stands on them and upstream."""
        rows = list(queryset.select_related("user").filter(status=UpstreamGrant.Status.LIVE))
        for row in rows:
            self._disconnect(request, row)
            self.log_change(request, row, "Disconnected.")
        text = ngettext("Access ended.", "%(n)d accesses ended.", len(rows)) % {"n": len(rows)}
        self.message_user(request, text, messages.SUCCESS)

    def delete_model(self, request: HttpRequest, obj: UpstreamGrant) -> None:
        """Deleting the access ends what stands on it."""
        self._disconnect(request, obj)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[UpstreamGrant]) -> None:
        """Deleting several ends what stands on each."""
        for row in queryset.select_related("user"):
            self._disconnect(request, row)
        super().delete_queryset(request, queryset)

    def _disconnect(self, request: HttpRequest, row: UpstreamGrant) -> None:
        # It asks the provider, whose client is an extra.
        from mcp_django.oauth.upstream import endings

        if row.status == UpstreamGrant.Status.LIVE:
            reason = f"disconnected by {request.user.get_username()}"
            endings.disconnect(row, reason=reason, request=request)
