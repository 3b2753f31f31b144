"""Approvals in the admin: the pending and past ones, and the page that grants or refuses one."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Case, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.translation import gettext as _now, gettext_lazy as _, ngettext

from mcp_django.admin_base import ReadOnlyAdmin
from mcp_django.execution.approval_guard import (
    PERMISSION,
    DryRunPreview,
    decide,
    may_decide,
    text_items,
)
from mcp_django.models import Approval
from mcp_django.storage import approval_rows


@admin.register(Approval)
class ApprovalAdmin(ReadOnlyAdmin):
    """Approvals, pending ones first; only the decision and its reason can be written."""

    change_form_template = "admin/mcp_django/approval_change_form.html"
    list_display = [
        *("component", "server", "user_name", "client", "by", "state"),
        *("created_at", "expires_at", "decided_by"),
    ]
    list_filter = ["state", "by", "server", "created_at"]
    search_fields = ["component", "user_name", "client"]
    # Counting the whole table for each page is too expensive.
    show_full_result_count = False
    actions = ["grant_selected", "refuse_selected"]
    fields = [
        *("component", "server", "user_name", "client", "by", "state", "created_at"),
        *("expires_at", "arguments", "preview", "decided_at", "decided_by", "reason"),
    ]

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        """Order by pending first, then newest first."""
        is_pending = When(state=Approval.State.PENDING, then=Value(0))
        return [Case(is_pending, default=Value(1)).asc(), "-pk"]

    # Permissions ------------------------------------------------------------------------------

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may view the rows; users who may decide may also view them."""
        may_view: bool = super().has_view_permission(request, obj)
        return may_view or self.has_decide_permission(request)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may open the section; users who may decide may open it."""
        may: bool = super().has_module_permission(request)
        return may or self.has_decide_permission(request)

    def has_decide_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may decide about calls of other users."""
        return request.user.has_perm(PERMISSION)

    # Actions ----------------------------------------------------------------------------------

    @admin.action(description=_("Grant the selected calls"), permissions=["decide"])
    def grant_selected(self, request: HttpRequest, queryset: QuerySet[Approval]) -> None:
        """Grant each selected call, for one use."""
        self._decide_all(request, queryset, is_granted=True)

    @admin.action(description=_("Refuse the selected calls"), permissions=["decide"])
    def refuse_selected(self, request: HttpRequest, queryset: QuerySet[Approval]) -> None:
        """Refuse each selected call."""
        self._decide_all(request, queryset, is_granted=False)

    def _decide_all(
        self, request: HttpRequest, queryset: QuerySet[Approval], *, is_granted: bool
    ) -> None:
        found = list(queryset)
        done = sum(
            may_decide(row, request.user) and decide(row, request.user, is_granted=is_granted)
            for row in found
        )
        if done:
            text = ngettext(
                "The decision was saved for %(n)d call.",
                "The decision was saved for %(n)d calls.",
                done,
            )
            self.message_user(request, text % {"n": done}, messages.SUCCESS)
        if left := len(found) - done:
            text = ngettext(
                "%(n)d call was skipped: already decided, expired, or you may not decide it.",
                "%(n)d calls were skipped: already decided, expired, or you may not decide them.",
                left,
            )
            self.message_user(request, text % {"n": left}, messages.WARNING)

    # The page of one approval -----------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the page that grants or refuses one call."""
        decide_path = self.page_path("<path:object_id>/decide/", self.decide_view, "decide")
        return [decide_path, *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show the row, with a button that leads to the decision page."""
        row = self.get_object(request, unquote(object_id))
        extra = {**(extra_context or {})}
        if row is not None and may_decide(row, request.user) and approval_rows.is_pending(row):
            extra["decide_url"] = self.page_url("decide", row.pk)
        return super().change_view(request, object_id, form_url, extra)

    def decide_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Show the call to decide about; a POST grants or refuses it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is None:
            # As Django responds for a missing row: with a message, and a redirect to the index.
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        if not may_decide(row, request.user):
            raise PermissionDenied
        if request.method == "POST":
            return self._save_decision(request, row)
        return self.render_page(
            request,
            "approval_decide",
            _now("Grant or refuse %(tool)s") % {"tool": row.component},
            row=row,
            arguments=text_items(row.arguments),
            preview=DryRunPreview.from_stored(row.preview),
            is_open=approval_rows.is_pending(row),
            back_url=self.page_url("change", row.pk),
        )

    def _save_decision(self, request: HttpRequest, row: Approval) -> HttpResponse:
        verdict = request.POST.get("decision")
        if verdict not in ("grant", "refuse"):
            raise PermissionDenied
        reason = request.POST.get("reason", "").strip()
        if decide(row, request.user, is_granted=verdict == "grant", reason=reason):
            text, level = _now("The decision was saved."), messages.SUCCESS
        else:
            text, level = _now("This call was already decided, or has expired."), messages.WARNING
        self.message_user(request, text, level)
        return HttpResponseRedirect(self.page_url("change", row.pk))
