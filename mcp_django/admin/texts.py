"""Base classes for prompts and skills written in the admin: list, form, preview and versions.

``AdminTextType`` has what differs between prompts and skills.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import model_ngettext, unquote
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from mcp_django.admin.base import SwitchableAdmin, server_choices
from mcp_django.admin.override_forms import RestrictedForm, ScopesField
from mcp_django.admin.servers import pages_of_made
from mcp_django.admin_base import MCPModelAdmin
from mcp_django.overrides.state import publish_change
from mcp_django.overrides.sync import catalog_rows
from mcp_django.overrides.text_versions import (
    MAX_COMPARED_LINES,
    ComparedLine,
    TextType,
    VersionConflict,
)
from mcp_django.server import all_servers
from mcp_django.tenants import of_tenant


@dataclass(frozen=True, kw_only=True)
class AdminTextType:
    """What is specific to the admin of prompts or of skills, beyond ``text_type``."""

    text_type: TextType
    component: tuple[str, str]
    """The kind and the key of the component of a row, with ``{name}`` for the row's name."""
    preview_template: str
    is_taken: Callable[[str, str], bool]
    """Whether code has a text of this name on this server, which takes precedence."""
    preview_context: Callable[[Any, Any], dict[str, Any]]
    """Returns the template context of the preview, for a valid row and the submitted data."""

    def error_of(self, row: Any) -> str:
        """Return why the row cannot be in the catalog, whether or not it is enabled."""
        noun = self.text_type.model._meta.verbose_name
        if row.server not in {server.name for server in all_servers()}:
            return gettext("A server with this name does not exist.")
        if self.is_taken(row.server, row.name):
            text = gettext("Code has a %(noun)s with this name, which is used instead.")
            return text % {"noun": noun}
        try:
            self.text_type.build(row)
        except self.text_type.error as exc:
            return INVALID_MESSAGE % {"noun": noun, "why": exc}
        return ""

    def broken_rows(self) -> Iterator[tuple[Any, str]]:
        """Yield the enabled rows that cannot be in the catalog, and why."""
        for row in of_tenant(self.text_type.model).filter(is_enabled=True):
            if reason := self.error_of(row):
                yield row, reason


INVALID_MESSAGE = _("The %(noun)s is invalid: %(why)s")


class TextForm(RestrictedForm):
    """The form of a prompt or skill; ``based_on`` is the version that its user is editing.

    An edit by another user is not silently overwritten: if there is a newer version than the one
    that the form started from, the form is rejected once. A name that code already uses is rejected
    too, since the prompt or skill in code takes precedence.
    """

    kind: ClassVar[AdminTextType]
    multiline_fields: ClassVar[tuple[str, ...]] = ("text",)
    """The fields whose line endings are normalized to ``\\n``; browsers send ``\\r\\n``."""

    server = forms.ChoiceField(label=_("Server"), choices=server_choices)
    help_of_names: ClassVar[Mapping[str, Any]] = {
        "groups": _("Only members of these groups see the %(noun)s."),
        "permissions": _("Only users with all of these permissions see the %(noun)s."),
    }
    scopes = ScopesField(help_text=_("Scopes that an OAuth token needs, separated by spaces."))
    based_on = forms.IntegerField(widget=forms.HiddenInput, initial=0, required=False)

    def __init__(self, *args: Any, is_draft: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_saved = not is_draft
        self.noun = self.instance._meta.verbose_name
        for name in self.help_of_names:
            self.fields[name].help_text %= {"noun": self.noun}
        self.fields["based_on"].initial = self.instance.version

    def clean(self) -> dict[str, Any]:
        """Check that no newer version exists, and that code does not use the name."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        for field in self.multiline_fields:
            if field in cleaned:
                cleaned[field] = str(cleaned[field]).replace("\r\n", "\n")
        self.clean_dependent_fields(cleaned)
        server, name = cleaned.get("server"), cleaned.get("name")
        if server and name and self.kind.is_taken(server, name):
            text = gettext(
                "Code has a %(noun)s “%(name)s” on the server %(server)s; use another name."
            )
            self.add_error("name", text % {"noun": self.noun, "name": name, "server": server})
        if self.instance.pk is not None and self.is_saved:
            newest = self.kind.text_type.newest_version(self.instance.pk)
            if newest is not None and cleaned.get("based_on") != newest:
                # Saving again after this error overwrites the newer version.
                self.data = self.data.copy()  # type: ignore[attr-defined]
                self.data[self.add_prefix("based_on")] = str(newest)  # type: ignore[index]
                text = gettext(
                    "Another user has changed this %(noun)s in the meantime: it is now at version "
                    "%(newest)d, and your changes were not saved. Compare with “Versions”, and "
                    "copy what you need. If you save again, your text becomes the next version; "
                    "the other one stays among the versions."
                )
                self.add_error(None, text % {"noun": self.noun, "newest": newest})
        return cleaned

    def clean_dependent_fields(self, cleaned: dict[str, Any]) -> None:
        """Check fields that depend on each other, beyond what ``text_type.build`` checks."""

    def _post_clean(self) -> None:
        """Build the instance, and check it as a whole."""
        super()._post_clean()  # type: ignore[misc]
        if self.errors:
            return
        try:
            self.kind.text_type.build(self.instance)
        except self.kind.text_type.error as exc:
            field = getattr(exc, "field", "")
            if field in self.fields:
                self.add_error(field, str(exc))
            else:
                self.add_error(None, INVALID_MESSAGE % {"noun": self.noun, "why": exc})


PAGE_SIZE = 50


class TextPages(MCPModelAdmin):
    """A ``ModelAdmin`` with additional pages: preview, versions and restore."""

    kind: ClassVar[AdminTextType]

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs, including those of the additional pages."""
        version = "<path:object_id>/versions/<int:number>/"
        return [
            self.page_path("preview/", self.preview_view, "preview_new"),
            self.page_path("<path:object_id>/preview/", self.preview_view, "preview"),
            self.page_path("<path:object_id>/versions/", self.versions_view, "versions"),
            self.page_path(version, self.version_view, "version"),
            self.page_path(f"{version}restore/", self.restore_view, "restore"),
            *super().get_urls(),
        ]

    def preview_view(self, request: HttpRequest, object_id: str | None = None) -> HttpResponseBase:
        """Show what a client would get for the submitted form; saves nothing."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        row = None
        if object_id is not None:
            row = self._row(request, object_id, self.has_change_permission)
        elif not self.has_add_permission(request):
            raise PermissionDenied
        readonly_fields = self.get_readonly_fields(request, row)
        base_fields: Any = self.form.base_fields
        fields = [name for name in base_fields if name not in ("based_on", *readonly_fields)]
        form_class: Any = self.get_form(request, row, change=row is not None, fields=fields)
        form = form_class(request.POST, instance=row, is_draft=True)
        linked_row = self.model(pk=row.pk, name=row.name) if row is not None else None
        context = (
            self.kind.preview_context(form.instance, request.POST)
            if form.is_valid()
            else {"errors": _errors(form)}
        )
        return self._page(
            request, self.kind.preview_template, gettext("Preview"), linked_row, **context
        )

    def versions_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Show all versions, the newest first."""
        row = self._row(request, object_id, self.has_view_or_change_permission)
        rows = self.kind.text_type.versions_of(row).defer("content")
        page = Paginator(rows, PAGE_SIZE).get_page(request.GET.get("p"))
        title = gettext("Versions of %(row)s") % {"row": row}
        return self._page(request, "text_versions", title, row, versions=list(page), page=page)

    def version_view(self, request: HttpRequest, object_id: str, number: int) -> HttpResponseBase:
        """Show one version, compared with the previous one or with any other."""
        row = self._row(request, object_id, self.has_view_or_change_permission)
        version = self._version(row, number)
        value = request.GET.get("with", "")
        before = int(value) if value.isdecimal() and len(value) < 10 else number - 1
        text_type = self.kind.text_type
        other = text_type.versions_of(row).filter(number=before).first()
        lines = (
            text_type.differences(other.content, version.content)
            if other is not None
            else (ComparedLine("same", text) for text in text_type.content_lines(version.content))
        )
        title = gettext("Version %(number)d of %(row)s") % {"number": number, "row": row}
        return self._page(
            request,
            "text_version",
            title,
            row,
            version=version,
            other=other,
            lines=list(islice(lines, 2 * MAX_COMPARED_LINES)),
            may_restore=number != row.version and self.has_change_permission(request, row),
        )

    def restore_view(self, request: HttpRequest, object_id: str, number: int) -> HttpResponseBase:
        """Restore the content of a version as a new version."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        row = self._row(request, object_id, self.has_change_permission)
        version = self._version(row, number)
        value = request.POST.get("based_on", "")
        based_on = int(value) if value.isdecimal() and len(value) < 10 else -1
        try:
            with transaction.atomic(using=row._state.db):
                self.kind.text_type.restore(row, version, author=request.user, based_on=based_on)
                catalog_rows.write_after_commit()
                text = gettext("Restored version %(old)d, as version %(new)d.")
                done = text % {"old": number, "new": row.version}
                self.log_change(request, row, done)
        except VersionConflict:
            text = gettext(
                "Another user has changed this %(noun)s in the meantime. Review it and try again."
            )
            problem = text % {"noun": self.opts.verbose_name}
        except self.kind.text_type.error as exc:
            text = gettext("Version %(number)d cannot be restored: %(why)s")
            problem = text % {"number": number, "why": exc}
        else:
            self.message_user(request, done, messages.SUCCESS)
            return redirect(self.page_url("versions", row.pk))
        self.message_user(request, problem, messages.ERROR)
        return redirect(self.page_url("version", row.pk, number))

    def _row(
        self, request: HttpRequest, object_id: str, has_permission: Callable[..., bool]
    ) -> Any:
        """Return the row, if the user has this permission for it.

        Raises:
            PermissionDenied: the user may not view such rows, or lacks the permission.
            Http404: the row does not exist.
        """
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is None:
            raise Http404
        if not has_permission(request, row):
            raise PermissionDenied
        return row

    def _version(self, row: Any, number: int) -> Any:
        version = self.kind.text_type.versions_of(row).filter(number=number).first()
        if version is None:
            raise Http404
        return version

    def _page(
        self, request: HttpRequest, template: str, title: str, row: Any = None, **context: Any
    ) -> TemplateResponse:
        """Return a page, with a link back to the form of the row if there is one."""
        request.current_app = self.admin_site.name
        back = gettext("Back to the %(noun)s %(row)s")
        context["back"] = back % {"noun": self.opts.verbose_name, "row": row}
        return self.render_page(request, template, title, row=row, **context)


def _errors(form: Any) -> list[tuple[str, str]]:
    """Return the errors of a form, each with the label of its field."""
    return [
        (str(form.fields[name].label) if name in form.fields else "", error)
        for name, errors in form.errors.items()
        for error in errors
    ]


FIXED = ("server", "name")


class TextAdmin(SwitchableAdmin, TextPages):
    """Base class of the admin of prompts and of skills; publishes every change."""

    identity_fields: ClassVar[tuple[str, ...]]
    content_fields: ClassVar[tuple[str, ...]]
    extra_fields: ClassVar[tuple[str, ...]] = ()

    change_form_template = "admin/mcp_django/text_change_form.html"
    list_filter = ["server", "is_enabled"]
    # "Save as new" cannot work: server and name are read-only in an existing row.
    save_as = False

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fieldsets: identity, content, and permissions."""
        may_save = self.has_change_permission(request, obj) if obj else True
        based_on = ["based_on"] if may_save else []
        more = [(_("More details"), {"fields": [*self.extra_fields]})]
        return [
            (None, {"fields": ["server", "name", "is_enabled", *self.identity_fields]}),
            (_("Content"), {"fields": [*self.content_fields, *based_on]}),
            *(more if self.extra_fields else []),
            (
                _("Who may see it"),
                {
                    "fields": ["groups", "permissions", "scopes"],
                    "description": _("Empty: every user who has access to the server."),
                },
            ),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Make the name read-only after creation: overrides and approvals refer to it."""
        return list(FIXED) if obj else []

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Render the form with links to its preview and its versions."""
        obj = kwargs.get("obj")
        if obj is None:
            context["preview_url"] = self.page_url("preview_new")
        else:
            context["versions_url"] = self.page_url("versions", obj.pk)
            kind, key = self.kind.component
            context["mcp_pages"] = pages_of_made(
                request, obj.server, {(kind, key.format(name=obj.name))}
            )
            if self.has_change_permission(request, obj):
                context["preview_url"] = self.page_url("preview", obj.pk)
        return super().render_change_form(request, context, *args, **kwargs)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> Any:
        """Show the form, with the reason why the row is not in the catalog, if any."""
        extra = dict(extra_context or {})
        if request.method == "GET" and self.has_view_or_change_permission(request):
            row = self.get_object(request, unquote(object_id))
            extra["not_offered"] = self.kind.error_of(row) if row is not None else ""
        return super().change_view(request, object_id, form_url, extra)

    @admin.display(description=_("state"))
    def state(self, row: Any) -> str:
        """Return whether the row is in the catalog, or why it is not."""
        return self.kind.error_of(row) or (
            gettext("available") if row.is_enabled else gettext("disabled")
        )

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001
        """Save the row, with a new version if its content has changed."""
        based_on = form.cleaned_data.get("based_on") or 0
        self.kind.text_type.save(obj, author=request.user, based_on=based_on)
        self.warn_of_long_texts(request, form)
        catalog_rows.write_after_commit()

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete the row and publish the change."""
        super().delete_model(request, obj)
        self._publish_change({obj.server})

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete the rows and publish the change."""
        servers = set(queryset.order_by().values_list("server", flat=True).distinct())
        super().delete_queryset(request, queryset)
        self._publish_change(servers)

    def set_enabled(
        self, request: HttpRequest, queryset: QuerySet[Any], *, is_enabled: bool
    ) -> None:
        """Enable or disable the rows, and publish the change."""
        with transaction.atomic(using=queryset.db):
            rows = list(queryset)
            # ``update`` does not change the version, so it does not conflict with an open form.
            tenant_rows = of_tenant(queryset.model, queryset.db)
            tenant_rows.filter(pk__in=[row.pk for row in rows]).update(is_enabled=is_enabled)
            self.log_changed_fields(request, rows, {"is_enabled": is_enabled})
            self._publish_change({row.server for row in rows})
        n = len(rows)
        text = ngettext("%(n)d %(name)s was changed.", "%(n)d %(name)s were changed.", n)
        message = text % {"n": n, "name": model_ngettext(self.opts, n)}
        self.message_user(request, message, messages.SUCCESS)

    def _publish_change(self, servers: set[str]) -> None:
        publish_change((server, self.kind.text_type.list_name) for server in sorted(servers))
        catalog_rows.write_after_commit()
