"""Code that several admin pages share: server pages, links, forms, filters, *Update from code*.

``server_page`` registers a page of each server. The page ``playground``, whose slug is ``try``, is
served at ``…/mcp_django/server/PK/try/`` and at all paths below it, is reversed as
``admin:mcp_django_server_playground``, and has a button on the change page of its server.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.db import router, transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponseBase, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.formats import date_format, localize
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import get_text_list
from django.utils.translation import gettext, gettext_lazy as _, ngettext_lazy

from mcp_django.admin_base import MCPModelAdmin, to_local_time
from mcp_django.exceptions import Busy
from mcp_django.models import Component, Server
from mcp_django.overrides.sync import Difference, compare_rows, sync_rows
from mcp_django.server import MCPServer, all_servers
from mcp_django.tenants import of_tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPageRequest:
    """A request for a page of one server, from a user who has the page's permission.

    ``rest`` is the path after the slug, without leading and trailing slashes; ``context`` is the
    template context of every admin page, with the ``title``, ``opts`` and ``row`` of this one.
    """

    request: HttpRequest
    row: Server
    server: MCPServer
    rest: str
    context: dict[str, Any]

    def render(self, template: str, *, status: int = 200, **context: Any) -> TemplateResponse:
        """Return the page, with the context that every page of a server has."""
        name = f"admin/mcp_django/{template}.html"
        return TemplateResponse(self.request, name, {**self.context, **context}, status=status)


View = Callable[[ServerPageRequest], HttpResponseBase]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPage:
    """A page of each server; ``permission`` is a codename of this app, such as ``view_call``.

    ``name`` is part of the name of the URL pattern, and ``slug`` of the path. Without
    ``has_subpages``, paths below the page do not exist.
    """

    name: str
    slug: str
    title: Any
    permission: str
    view: View
    has_subpages: bool


SERVER_PAGES: dict[str, ServerPage] = {}
"""The registered pages by name, in the order of their buttons."""


def server_page(
    name: str, *, title: Any, permission: str, slug: str = "", has_subpages: bool = False
) -> Callable[[View], View]:
    """Register the decorated view as a page of each server; ``slug`` is the name by default."""

    def decorator(view: View) -> View:
        SERVER_PAGES[name] = ServerPage(
            name=name,
            slug=slug or name,
            title=title,
            permission=permission,
            view=view,
            has_subpages=has_subpages,
        )
        return view

    return decorator


EMPTY_VALUE = "-"
KIND_TITLES: Mapping[str, Any] = {
    "tool": _("Tools"),
    "resource": _("Resources"),
    "resource template": _("Resource templates"),
    "prompt": _("Prompts"),
}


def text_area(rows: int, *classes: str, **attrs: Any) -> forms.Textarea:
    """Return a widget for several lines, as wide as those of the admin."""
    css = " ".join(("vLargeTextField", *classes))
    return forms.Textarea(attrs={"rows": rows, "class": css, **attrs})


def server_choices() -> list[tuple[str, str]]:
    """Return the servers of the site as choices of a form field."""
    return [(server.name, server.name) for server in all_servers()]


def local_time(moment: datetime) -> str:
    """Return a time in the current time zone as text."""
    return str(localize(to_local_time(moment)))


def short_time(moment: datetime | None) -> str:
    """Return a time in the current time zone in the short format of the language, for lists."""
    if moment is None:
        return EMPTY_VALUE
    return date_format(to_local_time(moment), "SHORT_DATETIME_FORMAT")


def time_column(field: str, label: Any) -> Callable[[Any], str]:
    """Return a column of a list: the time in this field, in the short format of the language."""

    @admin.display(description=label, ordering=field)
    def column(row: Any) -> str:
        return short_time(getattr(row, field))

    column.__name__ = field
    return column


def with_details(main: Any, details: Any) -> SafeString:
    """Return the text of a cell, followed by less important details."""
    return format_html('{} <span class="mcp-quiet">{}</span>', main, details)


def has_all_words(words: Iterable[str], text: str) -> bool:
    """Return whether a text has all of these words, which are in lower case."""
    lower = text.lower()
    return all(word in lower for word in words)


def client_name(info: Any) -> str:
    """Return the name and version that a client sent, if any."""
    values = info if isinstance(info, dict) else {}
    return " ".join(str(values[key]) for key in ("name", "version") if values.get(key))


def render_outcome(tone: str, text: Any) -> SafeString:
    """Return an outcome as a label in the color of ``tone``: good, fair or bad."""
    return format_html('<span class="mcp-outcome mcp-outcome-{}">{}</span>', tone, text)


def render_list(texts: Iterable[Any]) -> SafeString:
    """Return texts as an HTML list."""
    lines = format_html_join("", "<li>{}</li>", ((text,) for text in texts))
    return format_html('<ul class="mcp-list">{}</ul>', lines)


def link_to_row(model: str, pk: Any, text: str) -> SafeString | str:
    """Return the text, linked to the change page of the row if there is one."""
    if pk is None:
        return text
    url = reverse(f"admin:mcp_django_{model}_change", args=[quote(pk)])
    return format_html('<a href="{}">{}</a>', url, text)


def find_server(name: str) -> MCPServer | None:
    """Return the server with this name, or ``None`` if it is not in the code."""
    return next((server for server in all_servers() if server.name == name), None)


# Forms that detect concurrent edits ---------------------------------------------------------------

# The columns that control access; each model has some of them.
ACCESS_COLUMNS = ("is_enabled", "groups", "permissions", "scopes", "rate", "approval", "options")

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[Any]
else:
    # Generic in the stubs only.
    ModelForm = forms.ModelForm


class OptimisticLockForm(ModelForm):
    """A model form that detects concurrent changes of the access columns (optimistic locking).

    A form submits every field, including those that its user did not change. Without this check, a
    form that was opened before a tool was disabled would enable it again. The first save fails with
    an error; saving again replaces the other change.

    ``access_digest`` is not in the fieldsets: the form templates render it at the top.
    """

    is_saved = True
    """Whether valid data is saved; false for a preview."""

    access_digest = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row = self.instance
        values = {name: getattr(row, name) for name in ACCESS_COLUMNS if hasattr(row, name)}
        self._now = sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()
        self.fields["access_digest"].initial = self._now

    @cached_property
    def changed_data(self) -> list[str]:
        """The names of the changed fields, for the history."""
        return [name for name in super().changed_data if name != "access_digest"]

    def clean(self) -> Any:
        """Add an error if the access columns have changed since the form was opened."""
        cleaned = super().clean() or self.cleaned_data
        seen = cleaned.get("access_digest")
        if self.is_saved and self.instance.pk is not None and seen and seen != self._now:
            # The error is shown once; the next save replaces the other change.
            self.data = self.data.copy()  # type: ignore[attr-defined]
            self.data[self.add_prefix("access_digest")] = self._now  # type: ignore[index]
            message = gettext(
                "Another user changed the access settings while you were editing, so your changes "
                "were not saved. Check the current values in another tab. If you save again, your "
                "values replace them."
            )
            self.add_error(None, message)
        return cleaned


def saved_row(request: HttpRequest, context: dict[str, Any], row: Any) -> Any:
    """Return the stored row, since a rejected form has changed its instance in memory.

    ``context["original"]``, which the templates use, becomes the stored row as well.
    """
    if row is None or row.pk is None or request.method != "POST":
        return row
    stored_row = type(row)._default_manager.filter(pk=row.pk).first() or row
    context["original"] = stored_row
    return stored_row


class ConditionFilter(admin.SimpleListFilter):
    """A filter whose choices are conditions."""

    @abstractmethod
    def conditions(self) -> Mapping[str, tuple[Any, Q]]:
        """Return the label and the condition of each choice, by its name in the URL."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the choices."""
        return [(name, label) for name, (label, _condition) in self.conditions().items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Filter by the condition of the chosen value; an unknown value filters nothing."""
        choice = self.conditions().get(self.value() or "")
        return queryset if choice is None else queryset.filter(choice[1])


class ExactFilter(admin.SimpleListFilter):
    """A filter by the exact value of a column, whose choices need no query."""

    parameter_name = ""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Filter by the chosen value."""
        value = self.value()
        return queryset if value is None else queryset.filter(**{self.parameter_name: value})


class ServerFilter(ExactFilter):
    """A filter by server."""

    title = _("server")
    parameter_name = "server__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the registered servers, and the chosen one even if it no longer exists."""
        names = [server.name for server in all_servers()]
        value = request.GET.get(self.parameter_name)
        return [(name, name) for name in dict.fromkeys([*names, *([value] if value else [])])]


class SwitchableAdmin(MCPModelAdmin):
    """Rows with actions that enable and disable them."""

    @abstractmethod
    def set_enabled(
        self, request: HttpRequest, queryset: QuerySet[Any], *, is_enabled: bool
    ) -> None:
        """Enable or disable the rows, and publish the change."""

    @admin.action(description=_("Enable selected %(verbose_name_plural)s"), permissions=["change"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Enable the selected rows."""
        self.set_enabled(request, queryset.filter(is_enabled=False), is_enabled=True)

    @admin.action(description=_("Disable selected %(verbose_name_plural)s"), permissions=["change"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Disable the selected rows."""
        self.set_enabled(request, queryset.filter(is_enabled=True), is_enabled=False)


# *Update from code* -------------------------------------------------------------------------------

DIFFERENCE_LABELS: Mapping[str, Any] = {
    "servers": ngettext_lazy("%d new server", "%d new servers"),
    "added": ngettext_lazy("%d new component", "%d new components"),
    "changed": ngettext_lazy("%d changed component", "%d changed components"),
    "missing": ngettext_lazy("%d removed component", "%d removed components"),
}
UPDATE_LABELS: Mapping[str, Any] = {
    "servers": ngettext_lazy("%d server added", "%d servers added"),
    "added": ngettext_lazy("%d component added", "%d components added"),
    "changed": ngettext_lazy("%d component changed", "%d components changed"),
    "missing": ngettext_lazy("%d component marked as missing", "%d components marked as missing"),
}


class CodeSyncAdmin(MCPModelAdmin):
    """A list with one row for each server or component in the code; shows what is out of date.

    Viewing the list writes nothing; ``overrides.sync`` documents what else writes the rows.
    """

    change_list_template = "admin/mcp_django/code_sync_list.html"

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the view that updates the rows."""
        return [self.page_path("update/", self.update_view, "update"), *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        """Show the list, with a summary of the rows that are out of date."""
        extra = dict(extra_context or {})
        if request.method != "POST" and self.has_view_or_change_permission(request):
            try:
                extra["mcp_behind"] = _join_counts(DIFFERENCE_LABELS, compare_rows(all_servers()))
            except Busy:
                # The list can be read, but the admin-defined components cannot.
                extra["mcp_behind"] = ""
            extra["mcp_may_update"] = self.has_change_permission(request)
            extra["mcp_update_url"] = self.page_url("update")
        return super().changelist_view(request, extra)

    def update_view(self, request: HttpRequest) -> HttpResponseBase:
        """Update the rows of all servers and components from the code."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        try:
            difference = sync_rows(all_servers())
        except Busy as exc:
            message = gettext("Nothing was updated: %(why)s") % {"why": exc.message}
            self.message_user(request, message, messages.ERROR)
            return redirect(self.page_url("changelist"))
        # The history of each row shows the update; new rows are fetched for their primary keys.
        alias = router.db_for_write(Component)
        added = {(row.server, row.kind, row.key) for row in difference.added}
        names = {row.server for row in difference.added}
        components = of_tenant(Component).using(alias).filter(server__in=names)
        rows = components.iterator() if added else ()
        new = [row for row in rows if (row.server, row.kind, row.key) in added]
        servers = of_tenant(Server).using(alias)
        new_servers = servers.filter(name__in=[row.name for row in difference.servers])
        user: Any = request.user
        with transaction.atomic(using=router.db_for_write(LogEntry)):
            for changed, flag, text in (
                ([*new_servers, *new], ADDITION, gettext("Added from code.")),
                (difference.changed, CHANGE, gettext("Updated from code.")),
                (difference.missing, CHANGE, gettext("Removed from code.")),
            ):
                if changed:
                    LogEntry.objects.log_actions(
                        user_id=user.pk, queryset=changed, action_flag=flag, change_message=text
                    )
        message = gettext("There is nothing to update: the rows match the code.")
        if difference:
            counts = _join_counts(UPDATE_LABELS, difference)
            message = gettext("Updated from code: %(what)s.") % {"what": counts}
        self.message_user(request, message, messages.SUCCESS)
        return redirect(self.page_url("changelist"))


def _join_counts(words: Mapping[str, Any], difference: Difference) -> str:
    """Return a phrase such as "1 new server and 2 new components"; empty without differences."""
    counted = [(text, len(getattr(difference, name))) for name, text in words.items()]
    return get_text_list([str(text % count) for text, count in counted if count], gettext("and"))
