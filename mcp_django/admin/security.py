"""The security log, and who the subjects of foreign issuers are here."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from mcp_django.admin_base import ActingAdmin, ReadOnlyAdmin
from mcp_django.models import AuthEvent, ExternalIdentity


@admin.register(AuthEvent)
class AuthEventAdmin(ReadOnlyAdmin):
    """The security log, to be read; it is pruned by its age alone."""

    list_display = ["at", "kind", "username", "client_id", "server", "address"]
    list_filter = ["kind", "at"]
    search_fields = ["username", "client_id", "address"]
    date_hierarchy = "at"
    # Counting a log of millions for each page is not worth it.
    show_full_result_count = False


@admin.register(ExternalIdentity)
class ExternalIdentityAdmin(ActingAdmin):
    """Who a subject is: a row lets that subject in as the user, and without one he is nobody."""

    acts_as = "user"
    list_display = ["subject", "issuer", "user", "created_at", "last_used_at"]
    list_filter = ["issuer"]
    list_select_related = ["user"]
    search_fields = ["subject", "issuer"]
    raw_id_fields = ["user"]
    readonly_fields = ["last_used_at"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Another subject is another row, with a history of its own."""
        return [*(["issuer", "subject"] if obj else []), *self.readonly_fields]
