"""Rows for what code declares, so that the admin has something to show and to override.

``compare`` says what the rows lack and writes nothing; ``sync`` writes it. When that happens is
decided in ``catalog_rows``. A row whose component is gone stays, and says since when: otherwise its
overrides would be lost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from django.db import router, transaction
from django.utils import timezone

from mcp_django.auth.permissions import permissions
from mcp_django.core.catalog import Offered
from mcp_django.core.component import Component
from mcp_django.core.tool import Tool
from mcp_django.managed.origins import app_of, origin_of
from mcp_django.managed.skill_narrowing import is_decided_with_another
from mcp_django.storage.databases import tables

# What a row keeps of its component, beside what tells it apart.
FACTS = ("name", "app", "origin", "is_read_only", "is_destructive", "guarded_by")
KEY = ("server", "kind", "key")
LONGEST_KEY = 500

Key: TypeAlias = tuple[str, str, str]
"""Server, kind and key of a component."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The declared catalog: the names of the servers, and the facts of their components."""

    servers: tuple[str, ...]
    components: Mapping[Key, Mapping[str, Any]]

    @property
    def digest(self) -> str:
        """The same for the same catalog, in whatever order it was registered."""
        lines = [self.servers, sorted((*key, *map(str, found.values())) for key, found in self)]
        return hashlib.sha256(json.dumps(lines).encode()).hexdigest()

    def __iter__(self) -> Iterator[tuple[Key, Mapping[str, Any]]]:
        yield from self.components.items()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The rows that do not say what code declares: as they would have to be, not saved.

    ``added`` have no row yet; ``missing`` are those whose component is gone since the last time.
    """

    servers: tuple[Any, ...] = ()
    added: tuple[Any, ...] = ()
    changed: tuple[Any, ...] = ()
    missing: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.servers or self.added or self.changed or self.missing)


def sync(servers: Iterable[Synced], *, can_miss: bool = True) -> Difference:
    """Make the rows of servers and components what code declares now, and return what changed.

    Two queries where nothing changed, and a few more for each thousand rows that did. Without
    ``can_miss`` no row is marked as missing: another process may declare more than this one.

    Raises:
        Error: the database did not take it.
        Busy: what the admin adds to the catalog cannot be read.
    """
    return write(read_declared(servers), can_miss=can_miss)


def compare(servers: Iterable[Synced]) -> Difference:
    """What ``sync`` would change, as far as the database says that pages are read from.

    Raises:
        Busy: what the admin adds to the catalog cannot be read.
    """
    return _compared(read_declared(servers), router.db_for_read(tables.Component))


def read_declared(servers: Iterable[Synced], *, is_fresh: bool = True) -> Declared:
    """The declared catalog; unless it has to be fresh, as of the last request and without a query.

    Raises:
        Busy: what the admin adds to it cannot be read.
    """
    found = {server.name: server for server in servers}
    if is_fresh:
        for number, server in enumerate(found.values()):
            # One look at the database is enough for all of them.
            server.refresh(is_list=number == 0)
    components = {
        (server.name, one.kind, one.key): facts(one)
        for server in found.values()
        for one in manageable(server)
    }
    return Declared(servers=tuple(sorted(found)), components=components)


def write(declared: Declared, *, can_miss: bool = True) -> Difference:
    """Make the rows what a catalog says, and return what changed.

    Raises:
        Error: the database did not take it.
    """
    alias = router.db_for_write(tables.Component)
    found = _compared(declared, alias, can_miss=can_miss)
    if found.servers:
        # Another process may be at it, too.
        _rows(tables.Server, alias).bulk_create(found.servers, ignore_conflicts=True)
    if found.added or found.changed or found.missing:
        rows = _rows(tables.Component, alias)
        with transaction.atomic(using=alias):
            rows.bulk_create(found.added, ignore_conflicts=True)
            rows.bulk_update([*found.changed, *found.missing], [*FACTS, "missing_since"])
    return found


def _compared(declared: Declared, alias: str, *, can_miss: bool = True) -> Difference:
    named = set(_rows(tables.Server, alias).values_list("name", flat=True))
    known = _known(alias)
    added = [
        tables.Component(server=server, kind=kind, key=key, **said)
        for (server, kind, key), said in declared
        if (server, kind, key) not in known
    ]
    changed, missing = [], []
    for key, row in known.items():
        said = declared.components.get(key)
        if said is not None and _follows(row, said):
            changed.append(row)
        elif said is None and can_miss and row.missing_since is None:
            row.missing_since = timezone.now()
            missing.append(row)
    return Difference(
        servers=tuple(tables.Server(name=name) for name in declared.servers if name not in named),
        added=tuple(added),
        changed=tuple(changed),
        missing=tuple(missing),
    )


def _known(alias: str) -> dict[Key, Any]:
    rows = _rows(tables.Component, alias).only("pk", *KEY, *FACTS, "missing_since")
    return {(row.server, row.kind, row.key): row for row in rows}


def _follows(row: Any, said: Mapping[str, Any]) -> bool:
    """Make a row say what is so now; whether it said anything else."""
    now = {**said, "missing_since": None}
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


def _rows(model: Any, alias: str) -> Any:
    return model._default_manager.using(alias)
