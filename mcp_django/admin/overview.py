"""The front page of this app in the admin: what is exposed, what happened, what needs attention.

The template of the app's index shows it above the models, which are in groups. Each part requires
the permission to view its rows. The cost is bounded, whatever the size of the call log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Count, IntegerField, Model, QuerySet, Value
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy as _

from mcp_django.admin.base import KIND_TITLES, SERVER_PAGES, find_server
from mcp_django.admin.call_filters import calls_url
from mcp_django.admin.components import NO_OVERRIDE_VALUES
from mcp_django.admin.exposures import broken_exposures
from mcp_django.admin.override_forms import is_valid_row
from mcp_django.admin.prompts import PROMPTS, SKILLS
from mcp_django.admin.statistics import FAILURES, MAX_CALLS, REFUSALS
from mcp_django.admin.tasks import ANONYMOUS
from mcp_django.admin_base import describe_entry
from mcp_django.components.catalog import Catalog
from mcp_django.components.tool import Tool
from mcp_django.exceptions import Busy
from mcp_django.hosts.configuration import server_urls
from mcp_django.models import (
    Approval,
    Call,
    Component,
    ModelExposure,
    PromptText,
    Server,
    Skill,
    Task,
    ViewExposure,
)
from mcp_django.tenants import of_tenant, thread_context

APPS = ("mcp_django", "mcp_oauth")
DAY = timedelta(hours=24)
MAX_CHANGES = 5
MAX_VALUE = 200
"""The maximum length of a value in the last changes; the history of a row has all of it."""
# With ``?changes=1`` the page shows this many changes; higher numbers show older ones.
CHANGES_PER_PAGE = 50
MAX_PROBLEMS = 10
# The models of the index by group; the group ``others`` has all models that are not named here.
GROUPS: Mapping[str, tuple[Any, Sequence[str]]] = {
    "exposed": (
        _("What is exposed"),
        ("Server", "Component", "ModelExposure", "ViewExposure", "PromptText", "Skill"),
    ),
    "access": (_("Who has access"), ("AccessToken", "Consent", "Session")),
    "happened": (_("What happened"), ("Call", "Approval", "Task", "AuthEvent")),
    "others": (_("Rarely used"), ()),
}
BUTTONS = ("connect", "playground", "client_view")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSummary:
    """A server on the front page: its addresses, its components, and its pages."""

    name: str
    title: str
    url: str
    is_enabled: bool
    addresses: Sequence[str]
    counts: Sequence[tuple[str, int, Any]]
    """The URL of a list, the number of its components, and what they are."""
    pages: Sequence[tuple[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """The calls of one hour."""

    at: datetime
    calls: int
    errors: int
    refused: int

    @property
    def ok(self) -> int:
        """The number of calls that neither failed nor were refused."""
        return self.calls - self.errors - self.refused


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySummary:
    """The calls of the last 24 hours."""

    hours: Sequence[Hour]
    users: int
    urls: Mapping[str, str]

    @property
    def calls(self) -> int:
        """The number of calls."""
        return sum(hour.calls for hour in self.hours)

    @property
    def errors(self) -> int:
        """The number of failed calls."""
        return sum(hour.errors for hour in self.hours)

    @property
    def refused(self) -> int:
        """The number of refused calls."""
        return sum(hour.refused for hour in self.hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentChange:
    """An entry of the admin history, for a model of ``APPS``."""

    at: datetime
    user: str
    kind: str
    name: str
    url: str
    text: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What the front page shows; a part is empty if the user may not view it."""

    servers: Sequence[ServerSummary] = ()
    day: DaySummary | None = None
    waiting: int = 0
    waiting_url: str = ""
    problems: Sequence[tuple[str, str, str]] = ()
    """What is broken: its name, why, and its URL."""
    changes: Sequence[RecentChange] = ()
    changes_page: int = 0
    """The requested page of changes, 0 if only the last ones are shown."""
    has_more_changes: bool = False
    groups: Sequence[tuple[str, Any, list[Any]]] = field(default_factory=list)


def build_overview(request: HttpRequest, app_list: Iterable[Any]) -> Overview:
    """Return what this user may see of the front page, and the models of ``app_list`` in groups."""
    if getattr(request, "current_app", "admin") != "admin":
        # The URLs of this package's pages are reversed for the default admin site only.
        return Overview(groups=_groups(app_list))
    page = request.GET.get("changes", "")
    number = int(page) if page.isdecimal() and len(page) < 6 else 0
    changes, has_more = _changes(request, number)
    approvals_url = reverse("admin:mcp_django_approval_changelist")
    others = [app for app in admin.site.get_app_list(request) if app["app_label"] == "mcp_oauth"]
    return Overview(
        servers=[*_servers(request)] if _may_view(request, Server) else [],
        day=_day() if _may_view(request, Call) else None,
        waiting=_count_waiting() if _may_view(request, Approval) else 0,
        waiting_url=f"{approvals_url}?state=waiting&by__exact={Approval.By.STAFF.value}",
        problems=[*_problems(request)][:MAX_PROBLEMS],
        changes=changes,
        changes_page=number,
        has_more_changes=has_more,
        groups=_groups([*app_list, *others]),
    )


def _may_view(request: HttpRequest, model: type[Model]) -> bool:
    """Return whether the user may open the list of a model."""
    if not admin.site.is_registered(model):
        return False
    return bool(admin.site.get_model_admin(model).has_view_or_change_permission(request))


def _servers(request: HttpRequest) -> Iterator[ServerSummary]:
    user: Any = request.user
    for row in of_tenant(Server).order_by("name"):
        server = find_server(row.name)
        if server is None:
            continue
        try:
            server.refresh()
            counts = _count_components(row.name, server.catalog)
        except Busy:
            counts = []
        if not _may_view(request, Component):
            counts = [("", number, what) for _url, number, what in counts]
        pages = [
            (reverse(f"admin:mcp_django_server_{name}", args=[row.pk]), SERVER_PAGES[name].title)
            for name in BUTTONS
            if user.has_perm(f"mcp_django.{SERVER_PAGES[name].permission}")
        ]
        yield ServerSummary(
            name=row.name,
            title=row.title or server.title_in_code,
            url=reverse("admin:mcp_django_server_change", args=[row.pk]),
            is_enabled=row.is_enabled,
            addresses=server_urls(server),
            counts=counts,
            pages=pages,
        )


def _count_components(server: str, catalog: Catalog) -> list[tuple[str, int, Any]]:
    tools = [component for component in catalog if isinstance(component, Tool)]
    reading = [tool for tool in tools if tool.read_only]
    open_to_all = [
        component for component in catalog if component.permission is None and not component.scopes
    ]
    page = reverse("admin:mcp_django_component_changelist")

    def counted(number: int, what: Any, **query: str) -> tuple[str, int, Any]:
        offered = {"server": server, "is_enabled__exact": "1", "missing": "no"}
        return f"{page}?{urlencode({**offered, **query})}", number, what

    counts = [
        counted(len(reading), _("tools that read"), kind="tool", read_only="yes"),
        counted(len(tools) - len(reading), _("that write"), kind="tool", read_only="no"),
    ]
    others = {kind: len(catalog.by_kind[kind]) for kind in KIND_TITLES if kind != "tool"}
    counts += [counted(n, KIND_TITLES[kind], kind=kind) for kind, n in others.items() if n]
    return [*counts, ("", len(open_to_all), _("open to everybody who may connect"))]


def _day() -> DaySummary:
    # Starts at a full minute, as the links to these calls do.
    since = (timezone.now() - DAY).replace(second=0, microsecond=0)
    first = since.replace(minute=0)
    starts = [since, *(first + timedelta(hours=number) for number in range(1, 25))]
    queryset = of_tenant(Call).order_by()
    calls = _count_hours(queryset, starts)
    errors = _count_hours(queryset.filter(outcome__in=FAILURES), starts)
    refused = _count_hours(queryset.filter(outcome__in=REFUSALS), starts)
    # Counted here: for DISTINCT, SQLite would read the index of users, with every call of the log.
    users = queryset.filter(at__gte=since).order_by("-at").values_list("user_key", flat=True)
    return DaySummary(
        hours=[
            Hour(at=at, calls=calls[number], errors=errors[number], refused=refused[number])
            for number, at in enumerate(starts)
        ],
        users=len({*users[:MAX_CALLS].iterator()} - {ANONYMOUS}),
        urls={
            "calls": calls_url(since=since),
            "errors": calls_url(since=since, outcome="failures"),
            "refused": calls_url(since=since, outcome="refusals"),
            "charts": reverse("admin:mcp_django_call_charts"),
        },
    )


def _count_hours(calls: QuerySet[Call], starts: Sequence[datetime]) -> dict[int, int]:
    """Return the number of calls from each start to the next, from indexes, in one query."""
    ends = [*starts[1:], starts[-1] + timedelta(hours=1)]
    parts = [
        calls.filter(at__gte=at, at__lt=ends[number])
        .values(hour=Value(number, output_field=IntegerField()))
        .annotate(n=Count("*"))
        .values_list("hour", "n")
        for number, at in enumerate(starts)
    ]
    first, *others = parts
    # Django 6.1 gives the union the ordering of the model.
    return dict(first.union(*others, all=True).order_by())


def _count_waiting() -> int:
    pending = of_tenant(Approval).filter(state=Approval.State.PENDING)
    return pending.filter(expires_at__gt=timezone.now(), by=Approval.By.STAFF).count()


def _problems(request: HttpRequest) -> Iterator[tuple[str, str, str]]:
    """Yield the enabled rows that are not in the catalog, as names, reasons and URLs."""
    for model, find in SOURCES_OF_PROBLEMS.items():
        if _may_view(request, model):
            for row, reason in find():
                page = f"admin:{row._meta.app_label}_{row._meta.model_name}_change"
                yield str(row), reason, reverse(page, args=[row.pk])


SOURCES_OF_PROBLEMS: Mapping[type[Model], Callable[[], Iterable[tuple[Any, str]]]] = {
    ModelExposure: partial(broken_exposures, ModelExposure),
    ViewExposure: partial(broken_exposures, ViewExposure),
    PromptText: PROMPTS.broken_rows,
    Skill: SKILLS.broken_rows,
    Component: lambda: (
        (row, gettext("invalid data, so disabled"))
        for row in of_tenant(Component)
        .filter(is_enabled=True, missing_since=None)
        .exclude(**NO_OVERRIDE_VALUES)
        if not is_valid_row(row)
    ),
}


def _changes(request: HttpRequest, page: int) -> tuple[list[RecentChange], bool]:
    """Return a page of changes, the newest first, and whether there are older ones.

    Changes of rows that are not in the lists of the user are left out; those of deleted rows are
    shown. The id of a task gives access to it, so the list of tasks omits some tasks, and the page
    omits their changes.
    """
    models = [
        model
        for app in apps.get_app_configs()
        if app.label in APPS
        for model in app.get_models()
        if _may_view(request, model)
    ]
    types = ContentType.objects.get_for_models(*models, for_concrete_models=False)
    queryset = LogEntry.objects.filter(content_type__in=types.values())
    newest = queryset.select_related("user", "content_type").order_by("-action_time", "-pk")
    size = CHANGES_PER_PAGE if page else MAX_CHANGES
    start = max(page - 1, 0) * size
    rows = [*newest[start : start + size + 1]]
    entries = rows[:size]
    hidden: set[int] = set()
    # All tenants share the history, and an entry does not contain the tenant of a deleted row.
    is_strict = thread_context() is not None
    for model, content_type in types.items():
        model_entries = [
            log_entry for log_entry in entries if log_entry.content_type_id == content_type.pk
        ]
        if not model_entries:
            continue
        keys = {log_entry.object_id for log_entry in model_entries if log_entry.object_id}
        listed = admin.site.get_model_admin(model).get_queryset(request).filter(pk__in=keys)
        seen = {str(pk) for pk in listed.values_list("pk", flat=True)}
        hidden |= {
            log_entry.pk
            for log_entry in model_entries
            if log_entry.object_id not in seen
            and (is_strict or model is Task or not log_entry.is_deletion())
        }
    shown = [_change(log_entry) for log_entry in entries if log_entry.pk not in hidden]
    return shown, len(rows) > size


def _change(log_entry: LogEntry) -> RecentChange:
    url = ""
    if not log_entry.is_deletion():
        try:
            url = log_entry.get_admin_url() or ""
        except NoReverseMatch:
            url = ""
    model = log_entry.content_type.model_class() if log_entry.content_type else None
    return RecentChange(
        at=log_entry.action_time,
        user=log_entry.user.get_username(),
        kind=str(model._meta.verbose_name) if model else "",
        name=log_entry.object_repr,
        url=url,
        text=gettext("Deleted.")
        if log_entry.is_deletion()
        else describe_entry(log_entry, limit=MAX_VALUE),
    )


def _groups(app_list: Iterable[Any]) -> list[tuple[str, Any, list[Any]]]:
    models = {model["object_name"]: model for app in app_list for model in app["models"]}
    grouped_names = {name for _title, names in GROUPS.values() for name in names}
    others = [model for name, model in models.items() if name not in grouped_names]
    groups = [
        (slug, title, others if slug == "others" else _named(models, names))
        for slug, (title, names) in GROUPS.items()
    ]
    return [group for group in groups if group[2]]


def _named(models: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    return [models[name] for name in names if name in models]
