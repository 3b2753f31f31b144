"""The pages of a prompt or a skill beside its form: its preview and its versions."""

from __future__ import annotations

from itertools import islice
from typing import Any, ClassVar

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _

from mcp_django.admin.texts_kinds import Kind
from mcp_django.admin_base import Base
from mcp_django.overrides.prompt_versions import MAX_COMPARED_LINES, Line, Overtaken
from mcp_django.overrides.sync import catalog_rows

PAGE_SIZE = 50


class TextPages(Base):
    """A ``ModelAdmin`` of one kind with more pages than a form."""

    kind: ClassVar[Kind]

    def get_urls(self) -> list[URLPattern]:
        """With those pages."""
        name, view = f"{self.opts.app_label}_{self.opts.model_name}_", self.admin_site.admin_view
        one = "<path:object_id>/"
        version = f"{one}versions/<int:number>/"
        return [
            path("preview/", view(self.preview_view), name=f"{name}preview_new"),
            path(f"{one}preview/", view(self.preview_view), name=f"{name}preview"),
            path(f"{one}versions/", view(self.versions_view), name=f"{name}versions"),
            path(version, view(self.version_view), name=f"{name}version"),
            path(f"{version}restore/", view(self.restore_view), name=f"{name}restore"),
            *super().get_urls(),
        ]

    def url_of(self, page: str, *args: Any) -> str:
        """The address of one of those pages."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(f"{self.admin_site.name}:{name}", args=args)

    # Preview ----------------------------------------------------------------------------------

    def preview_view(self, request: HttpRequest, object_id: str | None = None) -> HttpResponseBase:
        """What a client would get of what stands in the form; nothing is kept."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if object_id is None:
            row, may = None, self.has_add_permission(request)
        else:
            row = self._row(request, object_id)
            may = self.has_change_permission(request, row)
        if not may:
            raise PermissionDenied
        kept = self.get_readonly_fields(request, row)
        asked: Any = self.form.base_fields
        fields = [name for name in asked if name not in ("based_on", *kept)]
        form_class: Any = self.get_form(request, row, change=row is not None, fields=fields)
        form = form_class(request.POST, instance=row, is_draft=True)
        shown = self.model(pk=row.pk, name=row.name) if row is not None else None
        context = (
            self.kind.previewed(form.instance, request.POST)
            if form.is_valid()
            else {"errors": _errors(form)}
        )
        return self._page(request, f"{self.kind.noun}_preview", _("Preview"), shown, **context)

    # Versions ---------------------------------------------------------------------------------

    def versions_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """All versions, the newest first."""
        row = self._viewed(request, object_id)
        rows = self.kind.versions.versions_of(row).defer("content")
        page = Paginator(rows, PAGE_SIZE).get_page(request.GET.get("p"))
        title = self.kind.versions_title % {self.kind.noun: row}
        return self._page(request, "text_versions", title, row, versions=list(page), page=page)

    def version_view(self, request: HttpRequest, object_id: str, number: int) -> HttpResponseBase:
        """One version, and what is different in it from the one before, or from any other."""
        row = self._viewed(request, object_id)
        version = self._version(row, number)
        wanted = request.GET.get("with", "")
        before = int(wanted) if wanted.isdecimal() and len(wanted) < 10 else number - 1
        versions = self.kind.versions
        other = versions.versions_of(row).filter(number=before).first()
        lines = (
            versions.differences(other.content, version.content)
            if other is not None
            else (Line("same", text) for text in versions.lines_of(version.content))
        )
        title = self.kind.version_title % {"number": number, self.kind.noun: row}
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
        """Have it say again what it said once."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        row = self._row(request, object_id)
        if not self.has_change_permission(request, row):
            raise PermissionDenied
        version = self._version(row, number)
        based_on = request.POST.get("based_on", "")
        told = -1 if not based_on.isdecimal() or len(based_on) > 9 else int(based_on)
        try:
            with transaction.atomic(using=row._state.db):
                self.kind.versions.restore(row, version, author=request.user, based_on=told)
                catalog_rows.write_after_commit()
                text = _("Restored version %(old)d, as version %(new)d.")
                done = text % {"old": number, "new": row.version}
                self.log_change(request, row, done)
        except Overtaken:
            self.message_user(request, str(self.kind.look_again), messages.ERROR)
            return redirect(self.url_of("version", row.pk, number))
        except self.kind.error as exc:
            text = _("Version %(number)d cannot be restored: %(why)s")
            self.message_user(request, text % {"number": number, "why": exc}, messages.ERROR)
            return redirect(self.url_of("version", row.pk, number))
        self.message_user(request, done, messages.SUCCESS)
        return redirect(self.url_of("versions", row.pk))

    # ------------------------------------------------------------------------------------------

    def _row(self, request: HttpRequest, object_id: str) -> Any:
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is None:
            raise Http404
        return row

    def _viewed(self, request: HttpRequest, object_id: str) -> Any:
        row = self._row(request, object_id)
        if not self.has_view_or_change_permission(request, row):
            raise PermissionDenied
        return row

    def _version(self, row: Any, number: int) -> Any:
        version = self.kind.versions.versions_of(row).filter(number=number).first()
        if version is None:
            raise Http404
        return version

    def _page(
        self, request: HttpRequest, template: str, title: str, row: Any = None, **context: Any
    ) -> TemplateResponse:
        """A page with the way back to the form of a row, if it is about one."""
        request.current_app = self.admin_site.name
        page = {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.opts,
            "row": row,
            "back": self.kind.back % {self.kind.noun: row},
            **context,
        }
        return TemplateResponse(request, f"admin/mcp_django/{template}.html", page)


def _errors(form: Any) -> list[tuple[str, str]]:
    """What is wrong, each with the label of its field."""
    return [
        (str(form.fields[name].label) if name in form.fields else "", error)
        for name, errors in form.errors.items()
        for error in errors
    ]
