"""Rows for what code declares, so that the admin has something to show and to narrow.

They are made and brought up to date when somebody looks, never while a request is served. A row
whose component is gone stays, and says since when: what was decided about it would be lost else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from django.db import router, transaction
from django.utils import timezone

from mcp_django.auth.permissions import permissions
from mcp_django.components.component import Component
from mcp_django.components.tool import Tool
from mcp_django.managed.origins import app_of, origin_of
from mcp_django.managed.skill_narrowing import is_decided_with_another
from mcp_django.offered import Offered
from mcp_django.store.databases import tables

# What a row keeps of its component, beside what tells it apart.
FACTS = ("name", "app", "origin", "is_read_only", "is_destructive", "guarded_by")
KEY = ("server", "kind", "key")
LONGEST_KEY = 500


class Synced(Protocol):
    """A server, as far as rows are made of it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def available(self) -> Offered:
        """What there is before it is narrowed."""

    def refresh(self, *, is_list: bool = False) -> None:
        """See that what the admin adds is not older than now."""


def sync(servers: Iterable[Synced]) -> None:
    """Make the rows of servers and components what code declares now.

    Two queries where nothing changed, and a few more for each thousand rows that did.
    """
    found = {server.name: server for server in servers}
    for number, server in enumerate(found.values()):
        # One look at the database is enough for all of them.
        server.refresh(is_list=number == 0)
    _sync_servers(found)
    _sync_components(found.values())


def _sync_servers(names: Iterable[str]) -> None:
    rows = _rows(tables.Server)
    known = set(rows.values_list("name", flat=True))
    new = [tables.Server(name=name) for name in names if name not in known]
    if new:
        # Another process may be at it, too.
        rows.bulk_create(new, ignore_conflicts=True)


def _sync_components(servers: Iterable[Synced]) -> None:
    declared = {
        (server.name, one.kind, one.key): one for server in servers for one in manageable(server)
    }
    rows = _rows(tables.Component)
    known = _known()
    new = [
        tables.Component(server=server, kind=kind, key=key, **facts(one))
        for (server, kind, key), one in declared.items()
        if (server, kind, key) not in known
    ]
    changed = [row for key, row in known.items() if _brought_up_to_date(row, declared.get(key))]
    if not new and not changed:
        return
    with transaction.atomic(using=rows.db):
        rows.bulk_create(new, ignore_conflicts=True)
        rows.bulk_update(changed, [*FACTS, "missing_since"])


def _known() -> dict[tuple[str, str, str], Any]:
    rows = _rows(tables.Component).only("pk", *KEY, *FACTS, "missing_since")
    return {(row.server, row.kind, row.key): row for row in rows}


def _brought_up_to_date(row: Any, component: Component | None) -> bool:
    """Make a row say what is so now; whether it said anything else."""
    if component is None:
        is_news = row.missing_since is None
        row.missing_since = row.missing_since or timezone.now()
        return is_news
    now = {**facts(component), "missing_since": None}
    if all(getattr(row, name) == value for name, value in now.items()):
        return False
    for name, value in now.items():
        setattr(row, name, value)
    return True


def manageable(server: Synced) -> Iterator[Component]:
    """The components that have rows of their own.

    All but those of a URI that is longer than any index, and files that belong to a skill.
    """
    return (
        one
        for one in server.available
        if len(one.key) <= LONGEST_KEY and not is_decided_with_another(one)
    )


def facts(component: Component) -> dict[str, Any]:
    """What a row keeps of a component."""
    guards = " and ".join(map(str, permissions(component.permission)))
    return {
        "name": component.name[:500],
        "app": app_of(component)[:100],
        "origin": origin_of(component)[:500],
        "is_read_only": component.read_only,
        "is_destructive": component.destructive if isinstance(component, Tool) else None,
        "guarded_by": guards[:500],
    }


def _rows(model: Any) -> Any:
    return model._default_manager.using(router.db_for_write(model))
