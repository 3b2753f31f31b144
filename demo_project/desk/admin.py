"""Admin of notices, which are published, corrected and closed, but never deleted."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest

from demo_project.desk.models import Notice


@admin.register(Notice)
class NoticeAdmin(admin.ModelAdmin):
    list_display = ["title", "airport", "severity", "published_at", "is_current"]
    list_filter = [("closed_at", admin.EmptyFieldListFilter), "severity", "published_at"]
    list_select_related = ["airport"]
    search_fields = ["title", "text", "=airport__icao", "=airport__iata"]
    autocomplete_fields = ["airport"]
    readonly_fields = ["published_at", "closed_at", "created_by"]
    date_hierarchy = "published_at"
    actions = ["close_notices"]

    @admin.display(boolean=True, description="current")
    def is_current(self, notice: Notice) -> bool:
        return notice.is_current

    @admin.action(description="Close selected notices", permissions=["change"])
    def close_notices(self, request: HttpRequest, queryset: QuerySet[Notice]) -> None:
        # Save each one: a bulk update sends no signals, so subscribers would not be notified.
        current = queryset.filter(closed_at=None)
        for notice in current:
            notice.close()
        self.message_user(request, f"{len(current)} closed.", messages.SUCCESS)

    def save_model(
        self, request: HttpRequest, obj: Notice, form: ModelForm[Notice], change: Any
    ) -> None:
        if not change:
            obj.created_by = request.user
        super().save_model(request, obj, form, change)

    def has_delete_permission(self, request: HttpRequest, obj: Notice | None = None) -> bool:
        return False
