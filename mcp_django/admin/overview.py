"""The front page of this app in the admin: what is exposed, what happened, what needs attention.

The template of the app's index shows it above the models, which are in groups. Each part needs the
permission to view what it is about. The cost is bounded, whatever the size of the call log.
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

from mcp_django.admin.base import SERVER_PAGES
from mcp_django.admin.call_filters import calls_url
from mcp_django.admin.components import NO_OVERRIDE_VALUES
from mcp_django.admin.exposures import broken_exposures
from mcp_django.admin.override_forms import is_valid_row
from mcp_django.admin.prompts import PROMPTS, SKILLS
from mcp_django.admin.servers import find_server
from mcp_django.admin.statistics import FAILURES, MAX_CALLS, REFUSALS
from mcp_django.admin_base import describe_entry
from mcp_django.core.catalog import Catalog
from mcp_django.core.tool import Tool
from mcp_django.exceptions import Busy
from mcp_django.execution.approval_guard import PERMISSION
from mcp_django.management.lookups import server_urls
from mcp_django.models import (
    Approval,
    Call,
    Component,
    ModelExposure,
    PromptText,
    Server,
    Skill,
    ViewExposure,
)
from mcp_django.server import MCPServer

APPS = ("mcp_django", "mcp_oauth")
HOURS = 24
MAX_CHANGES = 5
# With ``?changes=1`` the page shows this many, and with higher numbers the ones before.
CHANGES_PER_PAGE = 50
MAX_PROBLEMS = 10
# The models of the index; those that are not named are below, among the rarely used ones.
GROUPS: Mapping[str, tuple[Any, Sequence[str]]] = {
    "exposed": (
        _("What is exposed"),
        ("Server", "Component", "ModelExposure", "ViewExposure", "PromptText", "Skill"),
    ),
    "access": (_("Who has access"), ("AccessToken", "Consent", "Session")),
    "happened": (_("What happened"), ("Call", "Approval", "Task", "AuthEvent")),
    "others": (_("Rarely used"), ()),
}
BUTTONS = ("connect", "try", "seen")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSummary:
    """A server on the front page: its addresses, what it offers, and its pages."""

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
        return sum(one.calls for one in self.hours)

    @property
    def errors(self) -> int:
        """The number of failed calls."""
        return sum(one.errors for one in self.hours)

    @property
    def refused(self) -> int:
        """The number of refused calls."""
        return sum(one.refused for one in self.hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentChange:
    """An entry of the admin history of one of these models."""

    at: datetime
    user: str
    kind: str
    name: str
    url: str
    text: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What the front page shows; a part is empty if its reader may not view it."""

    servers: Sequence[ServerSummary] = ()
    day: DaySummary | None = None
    waiting: int = 0
    waiting_url: str = ""
    problems: Sequence[tuple[str, str, str]] = ()
    """What is broken: its name, why, and its URL."""
    changes: Sequence[RecentChange] = ()
    changes_page: int = 0
    """The page of changes that was asked for, 0 if only the last ones are shown."""
    has_more_changes: bool = False
    groups: Sequence[tuple[str, Any, list[Any]]] = field(default_factory=list)


def build_overview(request: HttpRequest) -> Overview:
    """Return what this user may see of the front page."""
    user: Any = request.user
    asked = request.GET.get("changes", "")
    number = int(asked) if asked.isdecimal() and len(asked) < 6 else 0
    changes, has_more = _changes(user, number)
    may_decide = user.has_perm(PERMISSION) or user.has_perm("mcp_django.view_approval")
    pending = reverse("admin:mcp_django_approval_changelist")
    return Overview(
        servers=[*_servers(user)] if user.has_perm("mcp_django.view_server") else [],
        day=_day() if user.has_perm("mcp_django.view_call") else None,
        waiting=_count_waiting() if may_decide else 0,
        waiting_url=f"{pending}?state__exact={Approval.State.PENDING.value}",
        problems=[*_problems(user)][:MAX_PROBLEMS],
        changes=changes,
        changes_page=number,
        has_more_changes=has_more,
        groups=_groups(request),
    )


# Servers ------------------------------------------------------------------------------------------


def _servers(user: Any) -> Iterator[ServerSummary]:
    for row in Server._default_manager.order_by("name"):
        server = find_server(row.name)
        if server is not None:
            yield _summary(row, server, user)


def _summary(row: Server, server: MCPServer, user: Any) -> ServerSummary:
    try:
        server.refresh()
        counts = _count_tools(row.name, server.catalog)
    except Busy:
        counts = []
    pages = [
        (reverse(f"admin:mcp_django_server_{slug}", args=[row.pk]), SERVER_PAGES[slug].title)
        for slug in BUTTONS
        if user.has_perm(f"mcp_django.{SERVER_PAGES[slug].permission}")
    ]
    return ServerSummary(
        name=row.name,
        title=row.title or server.title_in_code,
        url=reverse("admin:mcp_django_server_change", args=[row.pk]),
        is_enabled=row.is_enabled,
        addresses=server_urls(server),
        counts=counts,
        pages=pages,
    )


def _count_tools(server: str, catalog: Catalog) -> list[tuple[str, int, Any]]:
    tools = [one for one in catalog if isinstance(one, Tool)]
    reading = [one for one in tools if one.read_only]
    is_open = [one for one in catalog if one.permission is None and not one.scopes]
    page = reverse("admin:mcp_django_component_changelist")

    def url(**query: str) -> str:
        return f"{page}?{urlencode({'server': server, **query})}"

    return [
        (url(kind="tool", read_only="yes"), len(reading), _("tools that read")),
        (url(kind="tool", read_only="no"), len(tools) - len(reading), _("that write")),
        (url(), len([*catalog]) - len(tools), _("resources and prompts")),
        (url(), len(is_open), _("open to everybody who may connect")),
    ]


# Calls --------------------------------------------------------------------------------------------


def _day() -> DaySummary:
    now = timezone.now()
    first = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)
    starts = [first + timedelta(hours=number) for number in range(HOURS)]
    every = Call._default_manager.order_by()
    calls = _count_hours(every, starts)
    errors = _count_hours(every.filter(outcome__in=FAILURES), starts)
    refused = _count_hours(every.filter(outcome__in=REFUSALS), starts)
    # Counted here: for DISTINCT, SQLite would read the index of users, with every call of the log.
    users = every.filter(at__gte=first).order_by("-at").values_list("user_key", flat=True)
    return DaySummary(
        hours=[
            Hour(at=at, calls=calls[number], errors=errors[number], refused=refused[number])
            for number, at in enumerate(starts)
        ],
        users=len({*users[:MAX_CALLS].iterator()}),
        urls={
            "calls": calls_url(since=first),
            "errors": calls_url(since=first, outcome="failures"),
            "refused": calls_url(since=first, outcome="refusals"),
            "charts": reverse("admin:mcp_django_call_charts"),
        },
    )


def _count_hours(calls: QuerySet[Call], starts: Sequence[datetime]) -> dict[int, int]:
    """Return the number of calls in each hour, counted in the indexes in one query."""
    parts = [
        calls.filter(at__gte=at, at__lt=at + timedelta(hours=1))
        .values(hour=Value(number, output_field=IntegerField()))
        .annotate(n=Count("*"))
        .values_list("hour", "n")
        for number, at in enumerate(starts)
    ]
    first, *others = parts
    return dict(first.union(*others, all=True))


# What needs attention -----------------------------------------------------------------------------


def _count_waiting() -> int:
    pending = Approval._default_manager.filter(state=Approval.State.PENDING)
    return pending.filter(expires_at__gt=timezone.now()).count()


def _problems(user: Any) -> Iterator[tuple[str, str, str]]:
    """Yield what is enabled and yet not offered."""
    for model, find in SOURCES_OF_PROBLEMS.items():
        if user.has_perm(f"mcp_django.view_{model._meta.model_name}"):
            for row, reason in find():
                yield str(row), reason, _change_url(row)


def _invalid_components() -> Iterator[tuple[Component, str]]:
    rows = Component._default_manager.filter(is_enabled=True, missing_since=None)
    for row in rows.exclude(**NO_OVERRIDE_VALUES):
        if not is_valid_row(row):
            yield row, gettext("invalid data, so disabled")


SOURCES_OF_PROBLEMS: Mapping[type[Model], Callable[[], Iterable[tuple[Any, str]]]] = {
    ModelExposure: partial(broken_exposures, ModelExposure),
    ViewExposure: partial(broken_exposures, ViewExposure),
    PromptText: PROMPTS.broken_rows,
    Skill: SKILLS.broken_rows,
    Component: _invalid_components,
}


def _change_url(row: Any) -> str:
    options = row._meta
    return reverse(f"admin:{options.app_label}_{options.model_name}_change", args=[row.pk])


# The last changes ---------------------------------------------------------------------------------


def _changes(user: Any, page: int) -> tuple[list[RecentChange], bool]:
    """Return a page of changes, the newest first, and whether there are older ones."""
    models = [
        model
        for app in apps.get_app_configs()
        if app.label in APPS
        for model in app.get_models()
        if user.has_perm(f"{app.label}.view_{model._meta.model_name}")
    ]
    types = ContentType.objects.get_for_models(*models, for_concrete_models=False)
    found = LogEntry.objects.filter(content_type__in=types.values())
    newest = found.select_related("user", "content_type").order_by("-action_time", "-pk")
    size = CHANGES_PER_PAGE if page else MAX_CHANGES
    start = max(page - 1, 0) * size
    shown = [*newest[start : start + size + 1]]
    return [_change(entry) for entry in shown[:size]], len(shown) > size


def _change(entry: LogEntry) -> RecentChange:
    url = ""
    if not entry.is_deletion():
        try:
            url = entry.get_admin_url() or ""
        except NoReverseMatch:
            url = ""
    model = entry.content_type.model_class() if entry.content_type else None
    return RecentChange(
        at=entry.action_time,
        user=entry.user.get_username(),
        kind=str(model._meta.verbose_name) if model else "",
        name=entry.object_repr,
        url=url,
        text=gettext("Deleted.") if entry.is_deletion() else describe_entry(entry),
    )


# Models -------------------------------------------------------------------------------------------


def _groups(request: HttpRequest) -> list[tuple[str, Any, list[Any]]]:
    found = [
        one
        for app in admin.site.get_app_list(request)
        if app["app_label"] in APPS
        for one in app["models"]
    ]
    models = {one["object_name"]: one for one in found}
    known = {name for _title, names in GROUPS.values() for name in names}
    others = [one for name, one in models.items() if name not in known]
    groups = [
        (slug, title, others if slug == "others" else _named(models, names))
        for slug, (title, names) in GROUPS.items()
    ]
    return [group for group in groups if group[2]]


def _named(models: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    return [models[name] for name in names if name in models]
