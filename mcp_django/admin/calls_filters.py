"""What narrows the call log: filters that ask the database for no list of what there is."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db import connections
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.models import Call
from mcp_django.server import all_servers

if TYPE_CHECKING:
    Pages = Paginator[Call]
else:
    Pages = Paginator

MAX_COUNTED = 10_000
LAST_CHARACTER = "\U0010ffff"
TRACE_ID = re.compile(r"[0-9a-f]{32}")
KINDS = {
    "tool": _("tool"),
    "resource": _("resource"),
    "resource template": _("resource template"),
    "prompt": _("prompt"),
}
RANGES = {
    "hour": (_("Past hour"), timedelta(hours=1)),
    "day": (_("Past 24 hours"), timedelta(days=1)),
    "week": (_("Past 7 days"), timedelta(days=7)),
    "month": (_("Past 30 days"), timedelta(days=30)),
}


class CappedPaginator(Pages):
    """Pages of the newest rows; a million of them is not counted."""

    @cached_property
    def count(self) -> int:
        """How many there are, or that there are too many."""
        newest: Any = self.object_list
        return min(int(newest.order_by()[: MAX_COUNTED + 1].count()), MAX_COUNTED)

    @property
    def is_capped(self) -> bool:
        """Whether there may be more rows than are counted."""
        return self.count == MAX_COUNTED


class _ExactFilter(admin.SimpleListFilter):
    """One value of a column, of those that are known without asking for them."""

    parameter_name = ""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows with this value."""
        value = self.value()
        return queryset if value is None else queryset.filter(**{self.parameter_name: value})


class ServerFilter(_ExactFilter):
    """One server of the site."""

    title = _("server")
    parameter_name = "server__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Those that there are; the one that is asked for may be gone."""
        names = [one.name for one in all_servers()]
        asked = request.GET.get(self.parameter_name)
        return [(name, name) for name in dict.fromkeys([*names, *([asked] if asked else [])])]


class KindFilter(_ExactFilter):
    """One kind of component."""

    title = _("kind")
    parameter_name = "kind__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Every kind."""
        return list(KINDS.items())


class TimeFilter(admin.SimpleListFilter):
    """The last while."""

    title = _("time")
    parameter_name = "since"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """How long that may be."""
        return [(name, title) for name, (title, _length) in RANGES.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows that are not older."""
        found = RANGES.get(self.value() or "")
        return queryset if found is None else queryset.filter(at__gte=timezone.now() - found[1])


def searched(queryset: QuerySet[Call], text: str) -> QuerySet[Call]:
    """The rows that name this, or begin with it if a star follows; each way by an index.

    A word may be a component, a user, a client or a trace. Which of them it is is asked first, in
    queries that end at one row: alternatives over several columns would be sorted as a whole.
    """
    text = text.strip()
    if not text:
        return queryset
    if TRACE_ID.fullmatch(text.lower()):
        return queryset.filter(trace_id=text.lower())
    if text.endswith("*") and text != "*":
        wanted = [_begins(queryset.db, name, text[:-1]) for name in PREFIXED]
    else:
        wanted = [Q(**{name: text}) for name in (*PREFIXED, "client_id", "user_key")]
    every = Call._default_manager.using(queryset.db)
    found = [one for one in wanted if every.filter(one).order_by().exists()]
    if not found:
        return queryset.none()
    first, *others = found
    for one in others:
        first |= one
    return queryset.filter(first)


PREFIXED = ("component", "user_name", "client")


def _begins(using: str, name: str, beginning: str) -> Q:
    if connections[using].vendor == "sqlite":
        # LIKE uses no index there.
        return Q(**{f"{name}__gte": beginning, f"{name}__lt": beginning + LAST_CHARACTER})
    return Q(**{f"{name}__startswith": beginning})
