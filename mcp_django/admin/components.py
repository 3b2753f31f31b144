"""The admin of components: tools, resources, resource templates and prompts, with overrides.

One change list shows the components of all servers.
"""

from __future__ import annotations

from typing import Any, Final

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth import get_user_model
from django.db import router, transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import get_text_list
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from mcp_django.admin.base import (
    CodeSyncAdmin,
    ConditionFilter,
    SwitchableAdmin,
    find_server,
    has_all_words,
    saved_row,
    with_details,
)
from mcp_django.admin.call_filters import calls_url, component_query
from mcp_django.admin.override_forms import (
    LIST_FIELDS,
    ComponentForm,
    ComponentRowForm,
    compare_component,
    find_component,
    is_valid_row,
    lists_of,
    names_in,
    publish_change_once,
)
from mcp_django.admin.servers import component_pages, servers_that_are_off
from mcp_django.admin.statistics import (
    NO_FIGURES,
    WINDOW,
    ComponentFigures,
    component_figures,
)
from mcp_django.auth.permissions import (
    AllowAny,
    filter_active,
    filter_allowed,
    parse_permissions,
)
from mcp_django.components.component import Component as CodeComponent
from mcp_django.components.tool import Tool
from mcp_django.models import Component, PromptText, Skill
from mcp_django.overrides.exposures import build_exposures
from mcp_django.overrides.override_values import read_exposures
from mcp_django.server import MCPServer, all_servers
from mcp_django.tenants import of_tenant

# The column values of a component without overrides, except for ``is_enabled``.
NO_OVERRIDE_VALUES: Final[dict[str, Any]] = {
    **dict.fromkeys(("title", "description", "rate", "approval"), ""),
    **{name: [] for name in ("groups", "permissions", "scopes")},
}


class _YesNoFilter(ConditionFilter):
    """A filter for the rows that meet a condition, or for those that do not."""

    condition: Q

    def conditions(self) -> dict[str, tuple[Any, Q]]:
        """Return yes and no."""
        return {"yes": (_("Yes"), self.condition), "no": (_("No"), ~self.condition)}


class OverriddenFilter(_YesNoFilter):
    """A filter for components with an override other than being disabled."""

    title = _("overridden")
    parameter_name = "overridden"
    condition = ~Q(**NO_OVERRIDE_VALUES)


class MissingFilter(_YesNoFilter):
    """A filter for components that the code no longer declares."""

    title = _("missing")
    parameter_name = "missing"
    condition = Q(missing_since__isnull=False)


class ReadOnlyFilter(_YesNoFilter):
    """A filter for components that only read; all others may write."""

    title = _("read-only")
    parameter_name = "read_only"
    condition = Q(is_read_only=True)


class DestructiveFilter(_YesNoFilter):
    """A filter for components that may destroy data."""

    title = _("destructive")
    parameter_name = "destructive"
    condition = Q(is_destructive=True)


class ComponentList(ChangeList):
    """The change list, with call figures for the rows of its page."""

    def get_results(self, request: HttpRequest) -> None:
        """Fetch the rows, then their figures from the call log."""
        super().get_results(request)
        # Evaluated once: the forms of the list use the same objects.
        figures = component_figures(list(self.result_list))
        off = servers_that_are_off()
        for row in self.result_list:
            row.figures = figures.get((row.server, row.kind, row.key), NO_FIGURES)
            row.is_server_off = row.server in off
            row.links_calls = request.user.has_perm("mcp_django.view_call")


@admin.register(Component)
class ComponentAdmin(SwitchableAdmin, CodeSyncAdmin):
    """The admin of components: one row for each component in code, none added by hand."""

    form = ComponentForm
    list_display = [
        *("key", "is_enabled", "state", "about", "calls", "errors", "median_ms"),
    ]
    list_editable = ["is_enabled"]
    # A row with a form takes three milliseconds.
    list_per_page = 50
    list_filter = [
        *("kind", "server", "app", "is_enabled", OverriddenFilter, MissingFilter),
        *(ReadOnlyFilter, DestructiveFilter),
    ]
    search_fields = ["key", "name", "title", "description", "origin"]
    search_help_text = _(
        "Calls and errors are those of the last 24 hours; ms is the median of the latest 100."
    )
    # "Show all" works up to this number: a thousand rows are a few hundred kilobytes.
    list_max_show_all = 1000
    actions = ["enable", "disable", "clear_overrides"]
    readonly_fields = ["shown_kind", "server", "key", "app", "origin", "hints", "missing_since"]
    change_form_template = "admin/mcp_django/component_change_form.html"
    fieldsets = [
        (None, {"fields": [*readonly_fields, "is_enabled"]}),
        (_("Texts for models"), {"fields": ["title", "description"]}),
        (
            _("Who may use it"),
            {"fields": ["groups", "permissions", "scopes", "rate", "approval"]},
        ),
    ]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return false: components are declared in code."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow deletion, with all overrides, only of components that are missing from code."""
        may = super().has_delete_permission(request, obj)
        return may and (obj is None or obj.missing_since is not None)

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """Return the actions; deletion only in the list of missing components, which allow it."""
        # Django 6.1 passes a location; it deprecates overrides that do not pass it on.
        where = {} if action_location is None else {"action_location": action_location}
        actions: dict[str, Any] = super().get_actions(request, **where)
        if request.GET.get(MissingFilter.parameter_name) != "yes":
            actions.pop("delete_selected", None)
        return actions

    def get_changelist_form(self, request: HttpRequest, **kwargs: Any) -> Any:
        """Return the form of one row."""
        return super().get_changelist_form(request, **{"form": ComponentRowForm, **kwargs})

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the change list with call figures."""
        return ComponentList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search the rows, and the titles and descriptions in code."""
        rows, may_have_duplicates = super().get_search_results(request, queryset, search_term)
        words = search_term.lower().split()
        keys = {
            (server.name, component.kind, component.key)
            for server in all_servers()
            for component in server.declared_catalog
            if words and has_all_words(words, f"{component.title} {component.description}")
        }
        described = of_tenant(Component).filter(key__in={key for _server, _kind, key in keys})
        values = described.values_list("server", "kind", "key", "pk")
        in_code = [pk for server, kind, key, pk in values if (server, kind, key) in keys]
        if in_code:
            rows |= queryset.filter(pk__in=in_code)
        return rows, may_have_duplicates

    @admin.display(description=_("kind"))
    def shown_kind(self, row: Component) -> str:
        """Return the label of the component's kind."""
        return str(dict(Component.Kind.choices).get(row.kind, row.kind))

    @admin.display(description=_("kind"), ordering="kind")
    def about(self, row: Component) -> SafeString:
        """Return the kind, the server, the hints and the permission."""
        details = [row.server, self.hints(row), self.guards(row)]
        quiet = format_html_join(" · ", "{}", ((detail,) for detail in details if detail))
        return with_details(self.shown_kind(row), quiet)

    @admin.display(description=_("hints"))
    def hints(self, row: Component) -> str:
        """Return whether the component is read-only or destructive, in words."""
        hints = {gettext("read-only"): row.is_read_only, gettext("destructive"): row.is_destructive}
        return ", ".join(word for word, holds in hints.items() if holds)

    @admin.display(description=_("permission"))
    def guards(self, row: Component) -> str:
        """Return the permissions and groups that code and the admin require."""
        names = names_in(row.groups)
        groups = (
            [gettext("group %(names)s") % {"names": gettext(" or ").join(names)}] if names else []
        )
        code_guards = [row.guarded_by] if row.guarded_by else []
        return gettext(" and ").join([*code_guards, *groups, *names_in(row.permissions)])

    @admin.display(description=_("calls"))
    def calls(self, row: Component) -> SafeString | str:
        """Return the number of calls in the last 24 hours, linked to them."""
        return _link_calls(row, _figures(row).calls)

    @admin.display(description=_("errors"))
    def errors(self, row: Component) -> SafeString | str:
        """Return how many of those calls failed, linked to them."""
        return _link_calls(row, _figures(row).errors, outcome="failures")

    @admin.display(description=_("ms"))
    def median_ms(self, row: Component) -> str:
        """Return the median duration of the latest calls."""
        ms = _figures(row).ms
        return "" if ms is None else number_format(ms, decimal_pos=1)

    @admin.display(description=_("state"))
    def state(self, row: Component) -> str:
        """Return why clients cannot use the component, or whether it is overridden."""
        if row.missing_since is not None:
            return gettext("missing")
        if getattr(row, "is_server_off", False):
            return gettext("server is off")
        if not is_valid_row(row):
            return gettext("invalid data, so disabled")
        overrides = (row.title, row.description, row.groups, row.permissions, row.scopes, row.rate)
        return gettext("overridden") if any(overrides) or row.approval else ""

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fieldsets, with ``approval`` only for tools."""
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None or obj.kind == Component.Kind.TOOL:
            return fieldsets
        return [
            (
                title,
                {**options, "fields": [name for name in options["fields"] if name != "approval"]},
            )
            for title, options in fieldsets
        ]

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Render the form with a comparison of code and overrides."""
        row = saved_row(request, context, kwargs.get("obj"))
        server = find_server(row.server) if row is not None else None
        if server is not None:
            server.refresh()
        declared = find_component(server, row) if row is not None else None
        if row is not None:
            context["mcp_pages"] = [
                *component_pages(request, row),
                *_source_pages(request, server, row),
            ]
            context["mcp_server_is_off"] = row.server in servers_that_are_off()
        lines = compare_component(declared, row) if declared is not None and row is not None else []
        audience, current_name = [], ""
        if server is not None:
            offered = server.catalog.by_kind.get(row.kind, {}).get(row.key)
            audience = [] if offered is None else describe_audience(server, offered)
            # Code may have renamed the component.
            current = server.registry.find_by_name(row.kind, row.key)
            current_name = current.key if current is not None and current.key != row.key else ""
        context.update(
            mcp_lines=lines,
            mcp_audience=audience,
            mcp_is_missing=declared is None,
            mcp_aliases=", ".join(declared.aliases) if declared is not None else "",
            mcp_problem=declared.problem if declared is not None else "",
            mcp_client_changes=declared.client_changes if isinstance(declared, Tool) else [],
            mcp_now_called=current_name,
        )
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        """Save the row and publish the change."""
        super().save_model(request, obj, form, change)
        publish_change_once(
            request, lists_of([obj]) if LIST_FIELDS.intersection(form.changed_data) else []
        )

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete the row and publish the change: other processes may still have the component."""
        super().delete_model(request, obj)
        publish_change_once(request, lists_of([obj]))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete the rows that are missing from code, and publish the change."""
        missing = queryset.exclude(missing_since=None)
        with transaction.atomic(using=router.db_for_write(Component)):
            lists = lists_of(missing)
            super().delete_queryset(request, missing)
            publish_change_once(request, lists)

    def set_enabled(
        self, request: HttpRequest, queryset: QuerySet[Any], *, is_enabled: bool
    ) -> None:
        """Enable or disable the components, and publish the change."""
        self._change(request, queryset, {"is_enabled": is_enabled})

    @admin.action(
        description=_("Clear all overrides of selected components"), permissions=["change"]
    )
    def clear_overrides(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Clear all overrides; a disabled component stays disabled."""
        self._change(request, queryset.exclude(**NO_OVERRIDE_VALUES), NO_OVERRIDE_VALUES)

    def _change(
        self, request: HttpRequest, queryset: QuerySet[Any], values: dict[str, Any]
    ) -> None:
        alias = router.db_for_write(Component)
        with transaction.atomic(using=alias):
            rows = list(queryset.using(alias))
            components = of_tenant(Component).using(alias)
            components.filter(pk__in=[row.pk for row in rows]).update(**values)
            if rows:
                self.log_changed_fields(request, rows, values)
                publish_change_once(request, lists_of(rows))
        count = len(rows)
        message_text = ngettext(
            "%(count)d component was changed.", "%(count)d components were changed.", count
        )
        self.message_user(request, message_text % {"count": count})


def _figures(row: Any) -> ComponentFigures:
    return getattr(row, "figures", None) or NO_FIGURES


def _link_calls(row: Component, count: int, **query: str) -> SafeString | str:
    if not count or not getattr(row, "links_calls", False):
        return number_format(count)
    url = calls_url(since=timezone.now() - WINDOW, **component_query(row), **query)
    return format_html('<a href="{}">{}</a>', url, number_format(count))


def _source_pages(
    request: HttpRequest, server: MCPServer | None, row: Component
) -> list[tuple[str, Any]]:
    """Return the page of the exposure, prompt or skill that the component is built from."""
    user: Any = request.user
    name = row.key.removeprefix("skill://").partition("/")[0]
    sources = [
        ("prompttext", of_tenant(PromptText).filter(server=row.server, name=row.key)),
        ("skill", of_tenant(Skill).filter(server=row.server, name=name)),
    ]
    kinds = {"prompttext": "prompt", "skill": "resource"}
    for model, rows in sources:
        pk = rows.values_list("pk", flat=True).first() if kinds[model] == row.kind else None
        if pk is not None and user.has_perm(f"mcp_django.view_{model}"):
            return [(reverse(f"admin:mcp_django_{model}_change", args=[pk]), SOURCES[model])]
    specs = read_exposures().get(row.server, ())
    build_result = build_exposures(server, row.server, specs)
    for spec in specs:
        model = f"{spec.kind}exposure"
        keys = {(component.kind, component.key) for component in build_result.components_of(spec)}
        if (row.kind, row.key) in keys and user.has_perm(f"mcp_django.view_{model}"):
            return [(reverse(f"admin:mcp_django_{model}_change", args=[spec.pk]), SOURCES[model])]
    return []


def describe_audience(server: MCPServer, component: CodeComponent) -> list[str]:
    """Return sentences on how many active users can use a component, and what it requires."""
    connecting = (*parse_permissions(server.permission), *server.catalog.extra_permissions)
    needed = dict.fromkeys([*connecting, *parse_permissions(component.permission)])
    open_to_all = [permission for permission in needed if type(permission) is AllowAny]
    permissions = [permission for permission in needed if permission not in open_to_all]
    if not permissions:
        sentences = [gettext("Everybody can use it, also without an account.")]
    else:
        active = filter_active(get_user_model()._default_manager.all())
        allowed_users, unknown, lacking = active, [], []
        for permission in permissions:
            users = filter_allowed(permission, allowed_users)
            if users is None:
                unknown.append(str(permission))
                continue
            if not filter_allowed(permission, active).exists():  # type: ignore[union-attr]  # not None
                lacking.append(str(permission))
            allowed_users = users
        numbers = {
            "count": number_format(allowed_users.count()),
            "all": number_format(active.count()),
        }
        if unknown:
            text = gettext("At most %(count)s of %(all)s active users can use it.")
            own = gettext("Whether they can is also decided by %(names)s.")
            sentences = [text % numbers, own % {"names": get_text_list(unknown, gettext("and"))}]
        else:
            sentences = [gettext("%(count)s of %(all)s active users can use it.") % numbers]
        if lacking:
            text = gettext("No active user has %(names)s.")
            sentences.append(text % {"names": get_text_list(lacking, gettext("or"))})
    if component.scopes:
        scopes = ", ".join(component.scopes)
        sentences.append(gettext("OAuth tokens need the scopes %(scopes)s.") % {"scopes": scopes})
    return sentences


SOURCES = {
    "prompttext": _("Edit the prompt"),
    "skill": _("Edit the skill"),
    "modelexposure": _("Edit the exposure"),
    "viewexposure": _("Edit the exposure"),
}
