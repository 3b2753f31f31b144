"""Telling of what was decided on a screen: once for each request, however many rows it changed."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import router, transaction
from django.http import HttpRequest

from mcp_django.models import Component
from mcp_django.overrides.state import LISTS, decided

# What callers find in the lists; rates and approvals they notice when they call.
LISTED = frozenset(
    {"is_enabled", "title", "description", "groups", "permissions", "scopes"},
)
ATTRIBUTE = "_mcp_decided"


def decided_once(request: HttpRequest, lists: Iterable[tuple[str, str]]) -> None:
    """Tell of these lists once the transaction of the request commits, with those told before."""
    alias = router.db_for_write(Component)
    if not transaction.get_connection(alias).in_atomic_block:
        decided(lists)
        return
    pending: dict[tuple[str, str], None] | None = getattr(request, ATTRIBUTE, None)
    if pending is None:
        pending = {}
        setattr(request, ATTRIBUTE, pending)
        decided(pending)
    pending.update(dict.fromkeys(lists))


def lists_of(rows: Iterable[Component]) -> list[tuple[str, str]]:
    """The lists that components are in; a kind that there is not is in none."""
    return list(dict.fromkeys((row.server, LISTS[row.kind]) for row in rows if row.kind in LISTS))
