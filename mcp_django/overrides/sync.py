"""Writes rows for declared components, so that the admin can show and override them.

``compare_rows`` returns the differences without writing them; ``sync_rows`` writes them. A row
whose component is gone stays, with the time in ``missing_since``: otherwise its overrides would be
lost. ``catalog_rows`` determines when rows are written; viewing a page never writes them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from inspect import unwrap
from typing import Any, TypeAlias

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import request_finished
from django.db import Error, connections, router, transaction
from django.db.models.signals import post_migrate
from django.utils import timezone

from mcp_django.auth.permissions import parse_permissions
from mcp_django.components.catalog import Server
from mcp_django.components.component import Component
from mcp_django.components.tool import Tool
from mcp_django.exceptions import Busy
from mcp_django.execution.threads import BoundedPool
from mcp_django.integrations.views import ViewRunner
from mcp_django.overrides.state import MAX_TENANTS, has_no_tables, shares_skill_override
from mcp_django.process import at_fork
from mcp_django.storage import databases
from mcp_django.storage.databases import retry_on_conflict, tables
from mcp_django.tenants import (
    as_tenant,
    current_tenant,
    of_tenant,
    run_as_tenant,
    take_seen_tenants,
)

logger = logging.getLogger("mcp_django")

# The columns that describe a component, besides those that identify it.
DESCRIPTION_COLUMNS = ("name", "app", "origin", "is_read_only", "is_destructive", "guarded_by")
KEY = ("server", "kind", "key")
LONGEST_KEY = 500

Key: TypeAlias = tuple[str, str, str]
"""Server, kind and key of a component."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredCatalog:
    """The declared catalog: the names of the servers, and the facts of their components."""

    servers: tuple[str, ...]
    components: Mapping[Key, Mapping[str, Any]]

    @property
    def digest(self) -> str:
        """A hash of the catalog that does not depend on the order of registration."""
        lines = [self.servers, sorted((*key, *map(str, columns.values())) for key, columns in self)]
        return hashlib.sha256(json.dumps(lines).encode()).hexdigest()

    def __iter__(self) -> Iterator[tuple[Key, Mapping[str, Any]]]:
        yield from self.components.items()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The rows that differ from what code declares, with the new values, not saved.

    ``added`` are new rows; ``missing`` are rows whose component has disappeared since the last
    update.
    """

    servers: tuple[Any, ...] = ()
    added: tuple[Any, ...] = ()
    changed: tuple[Any, ...] = ()
    missing: tuple[Any, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.servers or self.added or self.changed or self.missing)


def sync_rows(servers: Iterable[Server], *, can_miss: bool = True) -> Difference:
    """Update the rows of servers and components from code, and return what changed.

    This takes two queries if nothing changed, and a few more per thousand changed rows. Without
    ``can_miss`` no row is marked as missing: another process may declare more than this one.

    Raises:
        Error: the database rejected the write.
        Busy: the admin's additions to the catalog cannot be loaded.
    """
    return write_rows(read_declared(servers), can_miss=can_miss)


def compare_rows(servers: Iterable[Server]) -> Difference:
    """Return what ``sync_rows`` would change, according to the database for reads.

    Raises:
        Busy: the admin's additions to the catalog cannot be loaded.
    """
    return _find_differences(read_declared(servers), router.db_for_read(tables.Component))


def read_declared(servers: Iterable[Server], *, is_fresh: bool = True) -> DeclaredCatalog:
    """Return the declared catalog; without ``is_fresh``, that of the last request, without a query.

    Raises:
        Busy: the admin's additions to the catalog cannot be loaded.
    """
    servers_by_name = {server.name: server for server in servers}
    if is_fresh:
        for number, server in enumerate(servers_by_name.values()):
            # One query is enough for all servers.
            server.refresh(is_list=number == 0)
    components = {
        (server.name, component.kind, component.key): describe_component(component)
        for server in servers_by_name.values()
        for component in components_with_rows(server)
    }
    return DeclaredCatalog(servers=tuple(sorted(servers_by_name)), components=components)


def write_rows(catalog: DeclaredCatalog, *, can_miss: bool = True) -> Difference:
    """Update the rows from a catalog, and return what changed.

    Raises:
        Error: the database rejected the write.
    """
    alias = router.db_for_write(tables.Component)
    difference = _find_differences(catalog, alias, can_miss=can_miss)
    if difference.servers:
        # Another process may insert the same rows.
        of_tenant(tables.Server, alias).bulk_create(difference.servers, ignore_conflicts=True)
    if difference.added or difference.changed or difference.missing:
        rows = of_tenant(tables.Component, alias)
        with transaction.atomic(using=alias):
            rows.bulk_create(difference.added, ignore_conflicts=True)
            rows.bulk_update(
                [*difference.changed, *difference.missing], [*DESCRIPTION_COLUMNS, "missing_since"]
            )
    return difference


def _find_differences(catalog: DeclaredCatalog, alias: str, *, can_miss: bool = True) -> Difference:
    server_names = set(of_tenant(tables.Server, alias).values_list("name", flat=True))
    rows_by_key = _existing_rows(alias)
    added = [
        tables.Component(server=server, kind=kind, key=key, **columns)
        for (server, kind, key), columns in catalog
        if (server, kind, key) not in rows_by_key
    ]
    changed, missing = [], []
    for key, row in rows_by_key.items():
        columns = catalog.components.get(key)
        if columns is not None and _update_row(row, columns):
            changed.append(row)
        elif columns is None and can_miss and row.missing_since is None:
            row.missing_since = timezone.now()
            missing.append(row)
    return Difference(
        servers=tuple(
            tables.Server(name=name) for name in catalog.servers if name not in server_names
        ),
        added=tuple(added),
        changed=tuple(changed),
        missing=tuple(missing),
    )


def _existing_rows(alias: str) -> dict[Key, Any]:
    rows = of_tenant(tables.Component, alias).only(
        "pk", *KEY, *DESCRIPTION_COLUMNS, "missing_since"
    )
    return {(row.server, row.kind, row.key): row for row in rows}


def _update_row(row: Any, columns: Mapping[str, Any]) -> bool:
    """Set the columns of a row; return whether any of them changed."""
    values = {**columns, "missing_since": None}
    if all(getattr(row, name) == value for name, value in values.items()):
        return False
    for name, value in values.items():
        setattr(row, name, value)
    return True


def components_with_rows(server: Server) -> Iterator[Component]:
    """Return the components that have their own rows.

    These are all except those with a key too long for an index, and files of a skill other than
    its ``SKILL.md``.
    """
    return (
        component
        for component in server.declared_catalog
        if len(component.key) <= LONGEST_KEY and not shares_skill_override(component)
    )


def describe_component(component: Component) -> dict[str, Any]:
    """Return the columns that describe a component."""
    guards = " and ".join(map(str, parse_permissions(component.permission)))
    return {
        "name": component.name[:500],
        "app": app_of(component)[:100],
        "origin": origin_of(component)[:500],
        "is_read_only": component.read_only,
        "is_destructive": component.destructive if isinstance(component, Tool) else None,
        "guarded_by": guards[:500],
    }


# The app and the origin of a component ------------------------------------------------------------


def app_of(component: Component) -> str:
    """Return the label of the app that the component's model, view or module belongs to."""
    model = getattr(getattr(component.callable, "declared_by", None), "model", None)
    if model is not None:
        return str(model._meta.app_label)
    module = str(getattr(_declaring_object(component.callable), "__module__", ""))
    config = apps.get_containing_app_config(module)
    return config.label if config is not None else module.partition(".")[0]


def origin_of(component: Component) -> str:
    """Return the path of the module, class or view that declares the component."""
    home = _declaring_object(component.callable)
    if home is component.callable or hasattr(component.callable, "declared_by"):
        return component.origin
    return f"{home.__module__}.{getattr(home, '__qualname__', type(home).__qualname__)}"


def _declaring_object(function: Callable[..., Any]) -> Any:
    """Return the site's own code behind a function; for the component of a view, the view."""
    if not isinstance(function, ViewRunner):
        return function
    try:
        view: Any = function.arguments.layout.route.view
    except ImproperlyConfigured:
        # The URLconf no longer has this view; a system check reports that.
        return function
    while isinstance(view, partial):
        view = view.func
    view = unwrap(view)
    return getattr(view, "view_class", None) or getattr(view, "cls", None) or view


CHECK_SECONDS = 60.0


class CatalogRows:
    """Writes the rows when the declared catalog has changed; thread-safe.

    There is one ``catalog_rows`` per process; ``apps.SimpleMCPConfig.ready`` connects it. It writes

    - after migrations. Then no row is marked as missing, since components that only the URLconf
      declares are not imported;
    - after the first request that this process answers, and later when the declared catalog has
      changed, which is compared at most once a minute and without a query. The database thread of
      ``storage.databases`` does this, so that no request waits and the request's transaction is not
      involved. Under WSGI the server must support threads, as for the call log;
    - after the commit of an admin form that changes the catalog, in the thread of that request.

    The button *Update from code* calls ``sync_rows`` directly. Under a test runner only the button
    and tests that call ``sync_rows`` write rows, so that a test finds only the rows that it wrote.

    A forked child and ``reset`` forget what was written. A write that fails raises no exception; it
    is logged once until a write succeeds, and tried again a minute later. Nothing is written for a
    site without a database or without the migrated tables.
    """

    def __init__(self) -> None:
        self._find_servers: Callable[[], Iterable[Server]] = tuple
        self.reset()
        at_fork(self.reset)

    def reset(self) -> None:
        """Forget what was written, so that the next request starts a check."""
        self._lock = threading.Lock()
        # By tenant: when the next check is due, and the digest of what was written.
        self._due_at: dict[str, float] = {}
        self._written: dict[str, str] = {}
        self._has_failed = False

    def connect(self, config: AppConfig, servers: Callable[[], Iterable[Server]]) -> None:
        """Connect the signals that trigger writes; idempotent."""
        self._find_servers = servers
        uid = "mcp_django.catalog_rows"
        post_migrate.connect(self._on_post_migrate, sender=config, dispatch_uid=uid)
        request_finished.connect(self._on_request_finished, dispatch_uid=uid)

    def _on_post_migrate(self, *, using: str, **kwargs: Any) -> None:
        is_ours = using == router.db_for_write(tables.Component)
        # Test runners migrate and empty their databases again and again.
        if is_ours and not databases.is_under_test():
            self._write_or_log(partial(self._write_unless_unmigrated, can_miss=False))

    def _on_request_finished(self, *, sender: Any, **kwargs: Any) -> None:
        # Tool threads send this signal too, also in management commands.
        if sender is not BoundedPool:
            self.schedule_check()

    def schedule_check(self) -> None:
        """Compare the catalog in the database thread, unless this was done within a minute.

        On a site with tenants, compare the catalog of each tenant whose admin was used since then.
        """
        if databases.is_inline():
            return
        for tenant in take_seen_tenants():
            if time.monotonic() < self._due_at.get(tenant, 0):
                continue
            with self._lock:
                # Another thread may have scheduled the check meanwhile.
                if time.monotonic() < self._due_at.get(tenant, 0):
                    continue
                if len(self._due_at) >= MAX_TENANTS:
                    self._due_at.clear()
                    self._written.clear()
                self._due_at[tenant] = math.inf
            # A process that is shutting down accepts no more work.
            with suppress(RuntimeError):
                databases.submit_to_db_thread(partial(self._check, tenant))

    def _check(self, tenant: str) -> None:
        try:
            with as_tenant(tenant):
                self._write_or_log(partial(run_as_tenant, self._write_if_changed))
        finally:
            self._due_at[tenant] = time.monotonic() + CHECK_SECONDS

    def _write_if_changed(self) -> None:
        catalog = read_declared(self._find_servers(), is_fresh=False)
        tenant = current_tenant()
        # A tenant may have been deleted and created again.
        if tenant or catalog.digest != self._written.get(tenant):
            self._write_unless_unmigrated()

    def write_after_commit(self) -> None:
        """Write after the current transaction commits, or immediately without one."""
        if not databases.is_under_test():
            write = partial(self._write_or_log, self._write_unless_unmigrated)
            alias = router.db_for_write(tables.Component)
            transaction.on_commit(write, using=alias, robust=True)

    def _write_unless_unmigrated(self, *, can_miss: bool = True) -> None:
        alias = router.db_for_write(tables.Component)
        connection = connections[alias]
        is_dummy = connection.settings_dict["ENGINE"] == "django.db.backends.dummy"
        if is_dummy or has_no_tables():
            return
        # An error must not break an outer transaction. Without an outer one, the transaction begins
        # with the first write, so that SQLite can wait for its lock.
        savepoint = transaction.atomic(using=alias) if connection.in_atomic_block else nullcontext()
        with savepoint:
            catalog = read_declared(self._find_servers())
            retry_on_conflict(partial(write_rows, catalog, can_miss=can_miss))
        if can_miss:
            self._written[current_tenant()] = catalog.digest

    def _write_or_log(self, write: Callable[[], None]) -> None:
        """Write, and log an error: a migration, request or form must not fail because of it."""
        try:
            write()
        except Exception as exc:
            if not self._has_failed:
                self._has_failed = True
                is_known = isinstance(exc, (Error, Busy))
                logger.warning(
                    "Cannot update the admin's rows of servers and components from code (%s). Run "
                    "manage.py migrate, and check that this process can write to the database.",
                    exc,
                    exc_info=None if is_known else exc,
                )
        else:
            self._has_failed = False


catalog_rows = CatalogRows()
