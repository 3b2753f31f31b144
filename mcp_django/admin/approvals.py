"""Approvals in the admin: the list of pending and past ones, and the page for a decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Case, Q, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from mcp_django.admin.base import ConditionFilter, find_server, short_time
from mcp_django.admin.call_filters import calls_url
from mcp_django.admin_base import ReadOnlyAdmin
from mcp_django.execution.approval_guard import (
    PERMISSION,
    DryRunPreview,
    decide,
    may_decide,
    text_items,
)
from mcp_django.models import Approval, Call
from mcp_django.protocol.text import clip
from mcp_django.storage import approval_rows
from mcp_django.tenants import of_tenant

MAX_RECENT = 1000
"""How many calls of the user are counted for the page of a decision."""


class StateFilter(ConditionFilter):
    """A filter by state; a call that was not decided in time has expired."""

    title = _("state")
    parameter_name = "state"

    def conditions(self) -> Mapping[str, tuple[Any, Q]]:
        """Return the states."""
        pending, now = Q(state=Approval.State.PENDING), timezone.now()
        decided = {
            state.value: (state.label, Q(state=state))
            for state in Approval.State
            if state != Approval.State.PENDING
        }
        return {
            "waiting": (_("waiting"), pending & Q(expires_at__gt=now)),
            **decided,
            "expired": (_("expired"), pending & Q(expires_at__lte=now)),
        }


@admin.register(Approval)
class ApprovalAdmin(ReadOnlyAdmin):
    """Approvals, pending ones first; only the decision and its reason can be written."""

    change_form_template = "admin/mcp_django/approval_change_form.html"
    list_display = [
        *("component", "shown_state", "shown_arguments", "user_name", "client", "shown_time"),
    ]
    list_filter = [StateFilter, "by", "server", "created_at"]
    search_fields = ["component", "user_name", "client"]
    # Counting the whole table for each page is too expensive.
    show_full_result_count = False
    actions = ["approve_selected", "reject_selected"]
    fields = [
        *("component", "server", "user_name", "client", "by", "state", "created_at"),
        *("expires_at", "arguments", "preview", "decided_at", "decided_by", "reason"),
    ]

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        """Order by pending first, then newest first."""
        is_pending = When(state=Approval.State.PENDING, then=Value(0))
        return [Case(is_pending, default=Value(1)).asc(), "-pk"]

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

    @admin.action(description=_("Approve selected calls"), permissions=["decide"])
    def approve_selected(
        self, request: HttpRequest, queryset: QuerySet[Approval]
    ) -> HttpResponse | None:
        """Show each selected call, then approve it for one use."""
        return self._decide_all(request, queryset, is_granted=True)

    @admin.action(description=_("Reject selected calls"), permissions=["decide"])
    def reject_selected(
        self, request: HttpRequest, queryset: QuerySet[Approval]
    ) -> HttpResponse | None:
        """Show each selected call, then reject it."""
        return self._decide_all(request, queryset, is_granted=False)

    def _decide_all(
        self, request: HttpRequest, queryset: QuerySet[Approval], *, is_granted: bool
    ) -> HttpResponse | None:
        rows = list(queryset)
        page = self.confirm_action(
            request,
            "approve_selected" if is_granted else "reject_selected",
            rows,
            shown=[(row, text_items(row.arguments), approval_rows.is_pending(row)) for row in rows],
            question="",
            template="approval_decide_all",
            is_harmless=is_granted,
        )
        if page is not None:
            return page
        done = sum(
            may_decide(row, request.user) and decide(row, request.user, is_granted=is_granted)
            for row in rows
        )
        if done:
            approved = ngettext("%(n)d call was approved.", "%(n)d calls were approved.", done)
            rejected = ngettext("%(n)d call was rejected.", "%(n)d calls were rejected.", done)
            text = approved if is_granted else rejected
            self.message_user(request, text % {"n": done}, messages.SUCCESS)
        if skipped := len(rows) - done:
            text = ngettext(
                "%(n)d call was skipped: already decided, expired, or you may not decide it.",
                "%(n)d calls were skipped: already decided, expired, or you may not decide them.",
                skipped,
            )
            self.message_user(request, text % {"n": skipped}, messages.WARNING)
        return None

    @admin.display(description=_("state"), ordering="state")
    def shown_state(self, row: Approval) -> str:
        """Return the state: until when the call waits, or who decided."""
        if row.state == Approval.State.PENDING and row.expires_at > timezone.now():
            until = gettext("waiting until %(time)s")
            return until % {"time": short_time(row.expires_at)}
        if row.state == Approval.State.PENDING:
            return gettext("expired")
        decided = gettext("%(state)s by %(user)s")
        return decided % {"state": row.get_state_display(), "user": row.decided_by}

    @admin.display(description=_("requested"), ordering="created_at")
    def shown_time(self, row: Approval) -> str:
        """Return when the call was requested."""
        return short_time(row.created_at)

    @admin.display(description=_("arguments"))
    def shown_arguments(self, row: Approval) -> str:
        """Return the arguments, shortened."""
        values = text_items(row.arguments)
        return clip(", ".join(f"{name}: {value}" for name, value in values), limit=120)

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
        tool: Any = None
        server = find_server(row.server)
        if server is not None:
            server.refresh()
            tool = server.catalog.by_kind.get("tool", {}).get(row.component)
        recent = None
        if request.user.has_perm("mcp_django.view_call"):
            # The user's calls in the last hour, by component and outcome.
            since = timezone.now() - timedelta(hours=1)
            calls = of_tenant(Call).filter(user_key=row.user_key, at__gte=since).order_by("-pk")
            newest = [*calls.only("component", "outcome")[:MAX_RECENT]]
            counted = Counter((call.component, call.get_outcome_display()) for call in newest)
            recent = {
                "count": len(newest),
                "most": [(clip(name), outcome, n) for (name, outcome), n in counted.most_common(5)],
                "url": calls_url(since=since, user=row.user_key),
            }
        return self.render_page(
            request,
            "approval_decide",
            gettext("Approve or reject %(tool)s") % {"tool": row.component},
            row=row,
            tool=tool,
            recent=recent,
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
            texts = gettext("The call was approved."), gettext("The call was rejected.")
            text = texts[0] if verdict == "grant" else texts[1]
            self.message_user(request, text, messages.SUCCESS)
        else:
            text = gettext("This call was already decided, or has expired.")
            self.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(self.page_url("change", row.pk))
