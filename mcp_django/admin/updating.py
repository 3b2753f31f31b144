"""*Update from code*: lists whose rows are made of code, and say where they are behind it.

Looking at a list writes nothing; ``managed.catalog_rows`` says who else writes the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db import router, transaction
from django.http import HttpRequest, HttpResponseBase, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils.text import get_text_list
from django.utils.translation import gettext as _
from django.utils.translation import ngettext_lazy

from mcp_django.admin_base import Base
from mcp_django.exceptions import Busy
from mcp_django.models import Component, Server
from mcp_django.overrides.sync import Difference, compare, sync
from mcp_django.server import all_servers

LACKING: Mapping[str, Any] = {
    "servers": ngettext_lazy("%d new server", "%d new servers"),
    "added": ngettext_lazy("%d new component", "%d new components"),
    "changed": ngettext_lazy("%d changed component", "%d changed components"),
    "missing": ngettext_lazy("%d component that is gone", "%d components that are gone"),
}
DONE: Mapping[str, Any] = {
    "servers": ngettext_lazy("%d server added", "%d servers added"),
    "added": ngettext_lazy("%d component added", "%d components added"),
    "changed": ngettext_lazy("%d component changed", "%d components changed"),
    "missing": ngettext_lazy("%d component marked as missing", "%d components marked as missing"),
}


class UpdatedFromCode(Base):
    """A list with a row for each thing that code declares."""

    change_list_template = "admin/mcp_django/from_code_list.html"

    def get_urls(self) -> list[URLPattern]:
        """With the page that updates the rows."""
        view = self.admin_site.admin_view(self.update_view)
        return [path("update/", view, name=self._update_name), *super().get_urls()]

    @property
    def _update_name(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_update"

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        """The list, with what it lacks."""
        extra = dict(extra_context or {})
        if request.method != "POST" and self.has_view_or_change_permission(request):
            extra["mcp_behind"] = self._lacking()
            extra["mcp_may_update"] = self.has_change_permission(request)
            extra["mcp_update_url"] = f"admin:{self._update_name}"
        return super().changelist_view(request, extra)

    def _lacking(self) -> str:
        try:
            return _list(LACKING, compare(all_servers()))
        except Busy:
            # The list itself can be read; what the admin adds to the catalog cannot.
            return ""

    def update_view(self, request: HttpRequest) -> HttpResponseBase:
        """Make the rows of all servers and components what code declares."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        self._update(request)
        return redirect(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def _update(self, request: HttpRequest) -> None:
        try:
            found = sync(all_servers())
        except Busy as exc:
            told = _("Nothing was updated: %(why)s") % {"why": exc.message}
            self.message_user(request, told, messages.ERROR)
            return
        _log(request, found)
        if found:
            told = _("Updated from code: %(what)s.") % {"what": _list(DONE, found)}
        else:
            told = _("There is nothing to update: the rows say what code says.")
        self.message_user(request, told, messages.SUCCESS)


def _list(words: Mapping[str, Any], found: Difference) -> str:
    """One phrase, as "1 new server, 2 new components and …"; empty if nothing is different."""
    counted = [(text, len(getattr(found, name))) for name, text in words.items()]
    return get_text_list([str(text % count) for text, count in counted if count], _("and"))


def _log(request: HttpRequest, found: Difference) -> None:
    """A line in the history of each row; those that are new have their keys by now."""
    alias = router.db_for_write(Component)
    servers = Server._default_manager.using(alias)
    components = Component._default_manager.using(alias)
    added = {(row.server, row.kind, row.key) for row in found.added}
    names = {row.server for row in found.added}
    rows = components.filter(server__in=names).iterator() if added else ()
    new = [row for row in rows if (row.server, row.kind, row.key) in added]
    new_servers = servers.filter(name__in=[row.name for row in found.servers])
    user: Any = request.user
    with transaction.atomic(using=router.db_for_write(LogEntry)):
        for changed, flag, text in (
            ([*new_servers, *new], ADDITION, _("Added from code.")),
            (found.changed, CHANGE, _("Updated from code.")),
            (found.missing, CHANGE, _("Code has it no more.")),
        ):
            if changed:
                LogEntry.objects.log_actions(
                    user_id=user.pk, queryset=changed, action_flag=flag, change_message=text
                )
