"""The admin of exposed models and exposed views: components that need no code.

``ExposureAdmin`` has the steps of both kinds: choose the server and the model or view, preview the
result, save it, and notify other processes and clients of the change.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import router, transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from mcp_django.admin.base import (
    SwitchableAdmin,
    find_server,
    saved_row,
    server_choices,
    time_column,
)
from mcp_django.admin.exposure_forms import (
    PREVIEW,
    ModelExposureForm,
    ViewExposureForm,
    build_preview,
    rest_methods_of,
)
from mcp_django.admin.override_forms import publish_change_once
from mcp_django.admin.servers import pages_of_made
from mcp_django.integrations.models.columns import resolve_path
from mcp_django.integrations.models.row_access import codename
from mcp_django.models import Exposure, ModelExposure, ViewExposure
from mcp_django.overrides.exposure_rules import ModelOptions, exposable_models
from mcp_django.overrides.exposures import build_exposures, exposable_routes, model_of
from mcp_django.overrides.override_values import read_exposures, spec_of
from mcp_django.overrides.sync import catalog_rows
from mcp_django.tenants import of_tenant


class TargetForm(forms.Form):
    """The choice of a server, and of the model or view to expose on it."""

    server = forms.ChoiceField(label=_("Server"), choices=server_choices)

    def __init__(self, data: Any, target: forms.ChoiceField) -> None:
        super().__init__(data)
        self.fields["target"] = target


class ExposureList(ChangeList):
    """The change list, with the state of each row."""

    def get_results(self, request: HttpRequest) -> None:
        """Fetch the rows, then determine their states."""
        super().get_results(request)
        rows = list(self.result_list)
        states = _describe_states(rows)
        for row in rows:
            row.mcp_state = states[row.pk]
        self.result_list = rows


class ExposureAdmin(SwitchableAdmin):
    """Base class of the admin of exposed models and of exposed views."""

    kind: ClassVar[str]
    choosing_help: ClassVar[Any] = ""
    lists: ClassVar[tuple[str, ...]]
    """All lists that can contain the components of a row."""

    list_display = [
        "target",
        "server",
        "name",
        "is_enabled",
        "state",
        time_column("changed_at", _("changed")),
    ]
    list_filter = ["server", "is_enabled"]
    search_fields = ["target", "name"]
    actions = ["enable", "disable"]
    change_form_template = "admin/mcp_django/exposures/change_form.html"
    # "Save as new" would skip the first step.
    save_as = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows of this kind: the proxy models share a table."""
        return super().get_queryset(request).filter(kind=self.kind)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the change list with states."""
        return ExposureList

    @admin.display(description=_("state"))
    def state(self, row: Any) -> str:
        """Return whether the row is in the catalog, or why it is not."""
        return getattr(row, "mcp_state", "") or _describe_states([row])[row.pk]

    @admin.display(description=_("options"))
    def options_text(self, row: Any) -> str:
        """Return the options as text, for users who may view but not change the row."""
        options = row.options if isinstance(row.options, dict) else {}
        return ", ".join(f"{name}: {value}" for name, value in options.items())

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> Any:
        """Show the form to choose server and target, and then the form of the row."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        query = request.GET if "target" in request.GET else None
        form = TargetForm(query, self.target_field(request.user))
        if form.is_valid():
            return super().add_view(request, form_url, extra_context)
        return self.render_page(
            request,
            "exposures/choose",
            gettext("Add %(name)s") % {"name": self.opts.verbose_name},
            form=form,
            media=self.media,
            explanation=self.choosing_help,
        )

    @abstractmethod
    def target_field(self, user: Any) -> forms.ChoiceField:
        """Return the field of the first step with what this user may expose."""

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Return the fixed fields: exposing another model or view needs another row."""
        return ["server", "target", "options_text"]

    def get_form(self, request: Any, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001, FBT002
        """Return the form class, with the current user and the choices of the first step."""
        base: Any = super().get_form(request, obj, change, **kwargs)
        chosen = (
            {} if obj is not None else {n: request.GET.get(n, "") for n in ("server", "target")}
        )
        attributes = {"user": request.user, "choice": chosen, "is_preview": PREVIEW in request.POST}
        return type(base.__name__, (base,), attributes)

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Render the form, with a preview of the saved row or, if requested, of the input."""
        row = saved_row(request, context, kwargs.get("obj"))
        context["preview"] = context["adminform"].form.preview
        if request.method == "GET" and row is not None:
            context["preview"] = build_preview(spec_of(row), request.user)
        if row is not None:
            specs = read_exposures().get(row.server, ())
            build_result = build_exposures(find_server(row.server), row.server, specs)
            keys = {
                (component.kind, component.key)
                for component in build_result.components_of(spec_of(row))
            }
            context["mcp_pages"] = pages_of_made(request, row.server, keys)
        return super().render_change_form(request, context, *args, **kwargs)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fieldsets; users who may only view see the options as text."""
        note = _("Rates and approvals are set on the components that it makes.")
        fields = ["groups", "permissions", "scopes"]
        who = (_("Who may use it"), {"fields": fields, "description": note})
        what = ["target", "server", "is_enabled", "name"]
        if obj is not None and not self.has_change_permission(request, obj):
            return [(None, {"fields": [*what, "options_text"]}), who]
        first, *others = self.option_fieldsets(request, obj)
        return [(None, {"fields": [*what, *first]}), *others, who]

    @abstractmethod
    def option_fieldsets(self, request: HttpRequest, obj: Any) -> list[Any]:
        """Return the options in the first fieldset, and further fieldsets."""

    def lists_of(self, rows: Iterable[Any]) -> list[tuple[str, str]]:
        """Return the lists in which clients see the rows; all lists for an invalid row."""
        form: Any = self.form
        lists: list[tuple[str, str]] = []
        for row in rows:
            try:
                names = form.options_class.from_json(row.options).lists
            except (ImproperlyConfigured, AttributeError):
                names = self.lists
            lists += [(row.server, name) for name in names]
        return lists

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001
        """Save the row, and publish the change of its old and new lists."""
        before = self.get_queryset(request).filter(pk=obj.pk) if change else ()
        lists = self.lists_of(before)
        super().save_model(request, obj, form, change)
        self._publish_change(request, [*lists, *self.lists_of([obj])])

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete the row and publish the change."""
        lists = self.lists_of([obj])
        super().delete_model(request, obj)
        self._publish_change(request, lists)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete the rows and publish the change."""
        with transaction.atomic(using=router.db_for_write(self.model)):
            lists = self.lists_of(queryset)
            super().delete_queryset(request, queryset)
            self._publish_change(request, lists)

    @staticmethod
    def _publish_change(request: HttpRequest, lists: Iterable[tuple[str, str]]) -> None:
        """Publish the change, and update the component rows after the commit."""
        publish_change_once(request, lists)
        catalog_rows.write_after_commit()

    def enable_error(self, request: HttpRequest, row: Any) -> str:
        """Return why this user may not enable a row, or ``""``."""
        return ""

    def set_enabled(
        self, request: HttpRequest, queryset: QuerySet[Any], *, is_enabled: bool
    ) -> None:
        """Disable the rows, or enable those that the user has the permissions to expose."""
        rows: list[Any] = []
        for row in queryset:
            if is_enabled and (reason := self.enable_error(request, row)):
                self.message_user(request, f"{row}: {reason}", messages.ERROR)
            else:
                rows.append(row)
        alias = router.db_for_write(self.model)
        with transaction.atomic(using=alias):
            self.log_changed_fields(request, rows, {"is_enabled": is_enabled})
            for row in rows:
                row.is_enabled = is_enabled
                row.save(using=alias, update_fields=["is_enabled", "changed_at"])
            if rows:
                self._publish_change(request, self.lists_of(rows))
        count = len(rows)
        message_text = ngettext("%(count)d row was changed.", "%(count)d rows were changed.", count)
        self.message_user(request, message_text % {"count": count})


def _describe_states(rows: Iterable[Any]) -> dict[Any, str]:
    """Return the state of each row in words, by primary key; one query for any number of rows."""
    all_rows = list(rows)
    enabled = read_exposures() if any(row.is_enabled for row in all_rows) else {}
    names = {row.server for row in all_rows if row.is_enabled}
    built = {
        name: build_exposures(find_server(name), name, enabled.get(name, ())) for name in names
    }
    states = {}
    for row in all_rows:
        if find_server(row.server) is None:
            state = gettext("Not available: code has no server “%(name)s”.") % {"name": row.server}
        elif not row.is_enabled:
            state = gettext("Switched off")
        else:
            problems = built[row.server].problems_of(spec_of(row))
            state = gettext("Available")
            reasons = {"reasons": " ".join(problem.reason for problem in problems)}
            if any(problem.component is None for problem in problems):
                state = gettext("Not available: %(reasons)s") % reasons
            elif problems:
                state = gettext("Partly available: %(reasons)s") % reasons
        states[row.pk] = state
    return states


KINDS = {ModelExposure: Exposure.Kind.MODEL, ViewExposure: Exposure.Kind.VIEW}


def broken_exposures(model: type[Exposure]) -> Iterator[tuple[Any, str]]:
    """Yield the enabled rows of a kind that are not completely available, with their states."""
    rows = [*of_tenant(model).filter(kind=KINDS[model], is_enabled=True)]
    states = _describe_states(rows)
    for row in rows:
        if states[row.pk] != gettext("Available"):
            yield row, states[row.pk]


@admin.register(ModelExposure)
class ModelExposureAdmin(ExposureAdmin):
    """The admin of exposed models: tools and resources for a model, without code."""

    kind = "model"
    form = ModelExposureForm
    choosing_help = _("Next: choose the fields and preview what clients get.")
    lists = ("tools", "resources")

    def target_field(self, user: Any) -> forms.ChoiceField:
        """Return the field with the models that the user may view."""
        help_text = _(
            "Models that you may view, except sessions, tokens and the admin's own records."
        )
        apps: dict[str, list[tuple[str, str]]] = {}
        for model in exposable_models():
            if user.has_perm(codename(model, "view")):
                options = model._meta
                app = str(options.app_config.verbose_name)
                apps.setdefault(app, []).append((options.label, str(options.verbose_name)))
        return forms.ChoiceField(label=_("Model"), help_text=help_text, choices=[*apps.items()])

    def option_fieldsets(self, request: HttpRequest, obj: Any) -> list[Any]:
        """Return the fields and their uses, the operations, and the resources."""
        return [
            ["plural", "description"],
            (_("Fields"), {"fields": ["paths", "ordering"]}),
            (_("Tools"), {"fields": ["operations", "page_size"]}),
            (_("Resources"), {"fields": ["uri", "is_listed", "subscribe"]}),
        ]

    def enable_error(self, request: HttpRequest, row: Any) -> str:
        """Return a message with the permissions that the user lacks, or ``""``."""
        try:
            model = model_of(row.target)
            options = ModelOptions.from_json(row.options if isinstance(row.options, dict) else {})
            hops = [
                hop for path in options.fields for hop in resolve_path(model, path, label="").hops
            ]
        except ImproperlyConfigured as exc:
            return str(exc)
        needed = [codename(model, action) for action in options.actions]
        needed += [codename(hop.related_model, "view") for hop in hops]
        user: Any = request.user
        lacking = [
            permission for permission in dict.fromkeys(needed) if not user.has_perm(permission)
        ]
        if not lacking:
            return ""
        return gettext("you lack the permission %(names)s.") % {"names": ", ".join(lacking)}


@admin.register(ViewExposure)
class ViewExposureAdmin(ExposureAdmin):
    """The admin of exposed views: a tool, resource or prompt for a view, without code."""

    kind = "view"
    form = ViewExposureForm
    choosing_help = _("Each call runs the site's middleware and the view as the calling user.")
    lists = ("tools", "resources", "prompts")

    def target_field(self, user: Any) -> forms.ChoiceField:
        """Return the field with the named URLs of the site."""
        help_text = _("Admin pages and views that sign users in or grant access cannot be exposed.")
        choices = []
        for route in exposable_routes():
            view = getattr(route.view, "__qualname__", type(route.view).__qualname__)
            choices.append((route.full_name, f"{route.full_name} ({view})"))
        return forms.ChoiceField(label=_("Name of the URL"), help_text=help_text, choices=choices)

    def option_fieldsets(self, request: HttpRequest, obj: Any) -> list[Any]:
        """Return the texts, and the component that the view becomes."""
        target = obj.target if obj is not None else request.GET.get("target", "")
        ways = (
            ["methods"] if rest_methods_of(target) else ["becomes", "uri", "query", "is_readable"]
        )
        return [["title", "description"], (_("What it becomes"), {"fields": ways})]
