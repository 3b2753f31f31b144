"""Models and views that are exposed as components from the admin: the screens.

``ExposureAdmin`` has the steps of both kinds: choose the server and the model or view, try the
result as a preview, save it, and notify other processes and clients of the change.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import router, transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_lazy as _, ngettext, override

from mcp_django.admin.exposure_forms import (
    PREVIEW,
    ModelExposureForm,
    Preview,
    ViewExposureForm,
    methods_of,
    preview_of,
)
from mcp_django.admin.override_forms import decided_once
from mcp_django.admin.servers import server_of
from mcp_django.admin_base import Base
from mcp_django.integrations.models.columns import resolve
from mcp_django.integrations.models.row_access import codename
from mcp_django.models import ModelExposure, ViewExposure
from mcp_django.overrides.exposure_rules import ModelOptions, ViewOptions, models_to_expose
from mcp_django.overrides.exposures import build, model_of, routes_to_expose
from mcp_django.overrides.override_values import read_exposures, spec_of
from mcp_django.overrides.sync import catalog_rows
from mcp_django.server import all_servers

# The first step: server and target ----------------------------------------------------------------


class ChoosingForm(forms.Form):
    """A server, and what is to be exposed on it."""

    server = forms.ChoiceField(label=_("Server"))
    target = forms.ChoiceField()

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = [server.name for server in all_servers()]
        self._field("server").choices = [(name, name) for name in names]
        self._field("target").choices = self.targets(user)
        for field in self.fields.values():
            field.label = capfirst(field.label)

    @abstractmethod
    def targets(self, user: Any) -> list[Any]:
        """The choices for this user."""

    def _field(self, name: str) -> Any:
        return self.fields[name]


class ModelChoosingForm(ChoosingForm):
    """Models that the user may view."""

    target = forms.ChoiceField(
        label=_("Model"),
        help_text=_(
            "Those that you may view; sessions, tokens and records of the admin are never offered."
        ),
    )

    def targets(self, user: Any) -> list[Any]:
        """The models by their app."""
        apps: dict[str, list[tuple[str, str]]] = {}
        for model in models_to_expose():
            if user.has_perm(codename(model, "view")):
                options = model._meta
                name = str(options.app_config.verbose_name)
                apps.setdefault(name, []).append((options.label, str(options.verbose_name)))
        return [*apps.items()]


class ViewChoosingForm(ChoosingForm):
    """Named URLs of the site."""

    target = forms.ChoiceField(
        label=_("Name of the URL"),
        help_text=_(
            "Pages of the admin, and those that sign somebody in or grant access, are never "
            "offered."
        ),
    )

    def targets(self, user: Any) -> list[Any]:
        """The names with their views."""
        return [
            (route.full_name, f"{route.full_name} ({_name_of(route.view)})")
            for route in routes_to_expose()
        ]


def _name_of(view: Any) -> str:
    return str(getattr(view, "__qualname__", type(view).__qualname__))


# Exposures ----------------------------------------------------------------------------------------


class _Slot:
    """Where a form puts the preview that it was asked for."""

    preview: Preview | None = None

    def take(self, preview: Preview) -> None:
        """Keep it for the page."""
        self.preview = preview


class ExposureList(ChangeList):
    """The list, with whether each is offered."""

    def get_results(self, request: HttpRequest) -> None:
        """Find the rows, then what becomes of them."""
        super().get_results(request)
        rows = list(self.result_list)
        states = _states_of(rows)
        for row in rows:
            row.mcp_state = states[row.pk]
        self.result_list = rows


class ExposureAdmin(Base):
    """The rows of one kind."""

    kind: ClassVar[str]
    choosing_form: ClassVar[type[ChoosingForm]]
    choosing_help: ClassVar[Any] = ""

    list_display = ["target", "server", "name", "is_enabled", "state", "changed_at"]
    list_filter = ["server", "is_enabled"]
    search_fields = ["target", "name"]
    actions = ["enable", "disable"]
    change_form_template = "admin/mcp_django/exposures/change_form.html"
    # The first step would be left out.
    save_as = False

    # The rows of this kind --------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Those of this kind: proxies share a table."""
        return super().get_queryset(request).filter(kind=self.kind)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """The list with states."""
        return ExposureList

    @admin.display(description=_("state"))
    def state(self, row: Any) -> str:
        """Whether it is offered, and why not."""
        return getattr(row, "mcp_state", "") or _states_of([row])[row.pk]

    @admin.display(description=_("what it says"))
    def said(self, row: Any) -> str:
        """The options, for whoever may look and not change."""
        options = row.options if isinstance(row.options, dict) else {}
        return ", ".join(f"{name}: {value}" for name, value in options.items())

    # Two steps --------------------------------------------------------------------------------

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> Any:
        """First on which server and what, then everything else."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        asked = request.GET if "target" in request.GET else None
        form = self.choosing_form(asked, user=request.user)
        if form.is_valid():
            return super().add_view(request, form_url, extra_context)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": gettext("Add %(name)s") % {"name": self.opts.verbose_name},
            "form": form,
            "media": self.media,
            "explanation": self.choosing_help,
        }
        template = "admin/mcp_django/exposures/choose.html"
        return TemplateResponse(request, template, context)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """It stays what it is: another model or view is another exposure."""
        return ["server", "target", "said"]

    def get_form(self, request: Any, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001, FBT002
        """The form, which knows who fills it in, and what was chosen."""
        base: Any = super().get_form(request, obj, change, **kwargs)
        chosen = (
            {} if obj is not None else {n: request.GET.get(n, "") for n in ("server", "target")}
        )
        slot = getattr(request, "mcp_slot", None)
        said = {"user": request.user, "choice": chosen}
        if slot is not None:
            said["show"] = slot.take
        return type(base.__name__, (base,), said)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: Any = None,
    ) -> Any:
        """The form; with a preview of what is in it, if that is asked for."""
        context = dict(extra_context or {})
        if request.method == "POST" and PREVIEW in request.POST:
            context["mcp_slot"] = _Slot()
            request.mcp_slot = context["mcp_slot"]  # type: ignore[attr-defined]
        elif request.method == "GET" and object_id is not None:
            context["mcp_slot"] = self._saved(request, object_id)
        return super().changeform_view(request, object_id, form_url, context)

    def _saved(self, request: HttpRequest, object_id: str) -> _Slot | None:
        """The preview of a row as it is."""
        row = self.get_object(request, unquote(object_id))
        if row is None or not self.has_view_or_change_permission(request, row):
            return None
        slot = _Slot()
        slot.take(preview_of(spec_of(row), request.user))
        return slot

    # Keeping ----------------------------------------------------------------------------------

    @abstractmethod
    def lists_of(self, rows: Iterable[Any]) -> list[tuple[str, str]]:
        """The lists in which clients see rows; all of them where a row cannot be read."""

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001
        """Keep it, and tell everybody, of the lists it was in as well."""
        before = self.get_queryset(request).filter(pk=obj.pk) if change else ()
        lists = self.lists_of(before)
        super().save_model(request, obj, form, change)
        self._tell(request, [*lists, *self.lists_of([obj])])

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete it, and tell everybody."""
        lists = self.lists_of([obj])
        super().delete_model(request, obj)
        self._tell(request, lists)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete several, and tell everybody."""
        with transaction.atomic(using=router.db_for_write(self.model)):
            lists = self.lists_of(queryset)
            super().delete_queryset(request, queryset)
            self._tell(request, lists)

    @staticmethod
    def _tell(request: HttpRequest, lists: Iterable[tuple[str, str]]) -> None:
        """Serve the change from now on, and let the rows of components follow it."""
        decided_once(request, lists)
        catalog_rows.write_after_commit()

    # Several at once --------------------------------------------------------------------------

    def refusal(self, request: HttpRequest, row: Any) -> str:
        """Why this user may not switch a row on; empty if he may."""
        return ""

    @admin.action(description=_("Enable selected exposures"), permissions=["change"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Switch on what the user could have exposed himself."""
        allowed: list[Any] = []
        for row in queryset.filter(is_enabled=False):
            reason = self.refusal(request, row)
            if reason:
                self.message_user(request, f"{row}: {reason}", messages.ERROR)
            else:
                allowed.append(row)
        self._switch(request, allowed, is_enabled=True)

    @admin.action(description=_("Disable selected exposures"), permissions=["change"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Switch off."""
        self._switch(request, list(queryset.filter(is_enabled=True)), is_enabled=False)

    def _switch(self, request: HttpRequest, rows: list[Any], *, is_enabled: bool) -> None:
        alias = router.db_for_write(self.model)
        with transaction.atomic(using=alias):
            for row in rows:
                row.is_enabled = is_enabled
                row.save(using=alias, update_fields=["is_enabled", "changed_at"])
            if rows:
                # Kept in English, and translated for whoever reads it.
                with override(None):
                    label = str(self.model._meta.get_field("is_enabled").verbose_name)
                user: Any = request.user
                LogEntry.objects.log_actions(
                    user_id=user.pk,
                    queryset=rows,
                    action_flag=CHANGE,
                    change_message=[{"changed": {"fields": [label]}}],
                )
                self._tell(request, self.lists_of(rows))
        count = len(rows)
        told = ngettext(
            "%(count)d exposure was changed.", "%(count)d exposures were changed.", count
        )
        self.message_user(request, told % {"count": count})


# Whether rows are offered, and why not ------------------------------------------------------------


def _states_of(rows: Iterable[Any]) -> dict[Any, str]:
    """A sentence on each row by its key; one query for any number of rows."""
    known = list(rows)
    enabled = read_exposures() if any(row.is_enabled for row in known) else {}
    names = {row.server for row in known if row.is_enabled}
    built = {name: build(server_of(name), name, enabled.get(name, ())) for name in names}
    return {row.pk: _state(row, built) for row in known}


def _state(row: Any, built: Any) -> str:
    if server_of(row.server) is None:
        return gettext("Not offered: there is no server “%(name)s” in code.") % {"name": row.server}
    if not row.is_enabled:
        return gettext("Switched off")
    found = built[row.server].wrong_with(spec_of(row))
    reasons = " ".join(one.reason for one in found)
    if any(one.is_whole for one in found):
        return gettext("Not offered: %(reasons)s") % {"reasons": reasons}
    if found:
        return gettext("Offered in part: %(reasons)s") % {"reasons": reasons}
    return gettext("Offered")


# Model exposures ----------------------------------------------------------------------------------


@admin.register(ModelExposure)
class ModelExposureAdmin(ExposureAdmin):
    """A model as tools and resources, without code."""

    kind = "model"
    form = ModelExposureForm
    choosing_form = ModelChoosingForm
    choosing_help = _("Then you choose its fields, and see what clients will get.")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """What, how, and who; for whoever may only look, what the row says."""
        what = ["target", "server", "is_enabled", "name", "plural", "description"]
        who = (_("Who may use it"), {"fields": ["groups", "permissions", "scopes"]})
        if obj is not None and not self.has_change_permission(request, obj):
            return [(None, {"fields": ["target", "server", "is_enabled", "name", "said"]}), who]
        return [
            (None, {"fields": what}),
            (_("Fields"), {"fields": ["paths", "ordering"]}),
            (_("Tools"), {"fields": ["operations", "page_size"]}),
            (_("Resources"), {"fields": ["uri", "is_listed", "subscribe"]}),
            who,
        ]

    def lists_of(self, rows: Iterable[Any]) -> list[tuple[str, str]]:
        """Tools, resources or both."""
        return [(row.server, one) for row in rows for one in _model_lists(row)]

    def refusal(self, request: HttpRequest, row: Any) -> str:
        """Whoever may not view or change the model himself may not expose it."""
        try:
            model = model_of(row.target)
            options = ModelOptions.read(row.options if isinstance(row.options, dict) else {})
            hops = [hop for one in options.fields for hop in resolve(model, one, what="").hops]
        except ImproperlyConfigured as exc:
            return str(exc)
        needed = [codename(model, action) for action in options.actions]
        needed += [codename(hop.related_model, "view") for hop in hops]
        user: Any = request.user
        lacking = [one for one in dict.fromkeys(needed) if not user.has_perm(one)]
        if not lacking:
            return ""
        return gettext("you lack the permission %(names)s.") % {"names": ", ".join(lacking)}


def _model_lists(row: Any) -> tuple[str, ...]:
    try:
        return ModelOptions.read(row.options).lists
    except (ImproperlyConfigured, AttributeError):
        return ("tools", "resources")


# View exposures -----------------------------------------------------------------------------------


@admin.register(ViewExposure)
class ViewExposureAdmin(ExposureAdmin):
    """A view as a tool, a resource or a prompt, without code."""

    kind = "view"
    form = ViewExposureForm
    choosing_form = ViewChoosingForm
    choosing_help = _("The site's own middleware and view answer each call, as the user who calls.")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """What the view becomes, and who may use it."""
        who = (_("Who may use it"), {"fields": ["groups", "permissions", "scopes"]})
        what = ["target", "server", "is_enabled", "name"]
        if obj is not None and not self.has_change_permission(request, obj):
            return [(None, {"fields": [*what, "said"]}), who]
        target = obj.target if obj is not None else request.GET.get("target", "")
        ways = ["methods"] if methods_of(target) else ["becomes", "uri", "query", "is_readable"]
        return [
            (None, {"fields": [*what, "title", "description"]}),
            (_("What it becomes"), {"fields": ways}),
            who,
        ]

    def lists_of(self, rows: Iterable[Any]) -> list[tuple[str, str]]:
        """The one list that it is in."""
        return [(row.server, one) for row in rows for one in _view_lists(row)]


def _view_lists(row: Any) -> tuple[str, ...]:
    try:
        return ViewOptions.read(row.options).lists
    except (ImproperlyConfigured, AttributeError):
        return ("tools", "resources", "prompts")
