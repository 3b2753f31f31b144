"""What the list and the form of prompts and of skills have in common."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.texts_pages import TextPages
from mcp_django.overrides.state import decided
from mcp_django.overrides.sync import catalog_rows
from mcp_django.server import all_servers

FIXED = ("server", "name")


class TextAdmin(TextPages):
    """The list of what is written here and the form of one; everybody hears of a change."""

    what_it_is: ClassVar[tuple[str, ...]]
    what_it_says: ClassVar[tuple[str, ...]]
    more_about_it: ClassVar[tuple[str, ...]] = ()

    change_form_template = "admin/mcp_django/text_change_form.html"
    list_filter = ["server", "is_enabled"]
    # Whoever has two tabs open does not fill in the same one twice.
    save_as = False

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """What it is, what it says, who may see it."""
        may_save = self.has_change_permission(request, obj) if obj else True
        based_on = ["based_on"] if may_save else []
        more = [(_("More about it"), {"fields": [*self.more_about_it]})]
        return [
            (None, {"fields": ["server", "name", "is_enabled", *self.what_it_is]}),
            (_("What it says"), {"fields": [*self.what_it_says, *based_on]}),
            *(more if self.more_about_it else []),
            (
                _("Who may see it"),
                {
                    "fields": ["groups", "permissions", "scopes"],
                    "description": _("Empty: whoever may enter the server."),
                },
            ),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """It keeps its name: what was decided about it, and approved of it, hangs on that."""
        return list(FIXED) if obj else []

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """The form, with the ways to its preview and its versions."""
        obj = kwargs.get("obj")
        if obj is None:
            context["preview_url"] = self.url_of("preview_new")
        else:
            context["versions_url"] = self.url_of("versions", obj.pk)
            if self.has_change_permission(request, obj):
                context["preview_url"] = self.url_of("preview", obj.pk)
        return super().render_change_form(request, context, *args, **kwargs)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> Any:
        """The form, with what keeps it from being offered."""
        extra = dict(extra_context or {})
        if request.method == "GET" and self.has_view_or_change_permission(request):
            row = self.get_object(request, unquote(object_id))
            extra["not_offered"] = self._hindrance(row) if row is not None else ""
        return super().change_view(request, object_id, form_url, extra)

    @admin.display(description=_("state"))
    def state(self, row: Any) -> str:
        """Whether it is offered, and why not."""
        return self._hindrance(row) or (_now("offered") if row.is_enabled else _now("switched off"))

    def _hindrance(self, row: Any) -> str:
        """What keeps it from being offered, whether it is switched on or not."""
        if row.server not in {one.name for one in all_servers()}:
            return _now("There is no server of this name.")
        if self.kind.is_taken(row.server, row.name):
            return str(self.kind.code_has_it)
        try:
            self.kind.versions.check(row)
        except self.kind.error as exc:
            return self.kind.not_offered % {"why": exc}
        return ""

    # Changes ----------------------------------------------------------------------------------

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001
        """Keep it, with a version of what it says."""
        based_on = form.cleaned_data.get("based_on") or 0
        self.kind.versions.keep(obj, author=request.user, based_on=based_on)
        catalog_rows.write_after_commit()

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Take it away, and say so."""
        super().delete_model(request, obj)
        self._tell({obj.server})

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Take several away, and say so."""
        servers = set(queryset.order_by().values_list("server", flat=True).distinct())
        super().delete_queryset(request, queryset)
        self._tell(servers)

    def switch(self, request: HttpRequest, queryset: QuerySet[Any], *, is_enabled: bool) -> None:
        """Offer some, or offer them no more."""
        with transaction.atomic(using=queryset.db):
            rows = list(queryset.exclude(is_enabled=is_enabled))
            # Whoever has the form open changes what it says, and is not in the way of this.
            queryset.model._default_manager.using(queryset.db).filter(
                pk__in=[row.pk for row in rows]
            ).update(is_enabled=is_enabled)
            for row in rows:
                self.log_change(request, row, _now("Enabled.") if is_enabled else _now("Disabled."))
            self._tell({row.server for row in rows})
        self.message_user(request, self.kind.were_changed % {"n": len(rows)}, messages.SUCCESS)

    def _tell(self, servers: set[str]) -> None:
        decided((server, self.kind.offered_among) for server in sorted(servers))
        catalog_rows.write_after_commit()
