"""When the rows of servers and components are written: never by a page that is looked at.

``catalog_rows`` belongs to the process, and ``apps.SimpleMCPConfig.ready`` connects it. It writes

- when the site is migrated. No row is marked as missing then, since what only the URLconf declares
  is not imported;
- after the first request that this process answers, and later when the declared catalog changed,
  for which it is compared once a minute at most and without a query. The thread of the store does
  that, so that no request waits and a transaction of the request has no part in it. Under WSGI the
  server must run threads, as for the call log;
- after the commit of a form of the admin that changes the catalog, in the thread of that request.

The button *Update from code* writes by ``syncing.sync`` itself. Under a test runner only that does,
and tests that call ``sync``: a transaction of a test sees no row that it did not write.

A forked child starts with nothing known, as does ``reset``. A write that fails is logged once,
until one succeeds, and raises nothing; the next minute tries again. A site without a database, or
one that is not migrated, has nothing to write to.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

from django.apps import AppConfig
from django.core.signals import request_finished
from django.db import Error, connections, router, transaction
from django.db.models.signals import post_migrate

from mcp_django.exceptions import Busy
from mcp_django.execution.threads import BoundedPool
from mcp_django.managed import syncing
from mcp_django.managed.freshness import has_no_tables
from mcp_django.managed.syncing import Synced
from mcp_django.storage import databases
from mcp_django.storage.call_rows import call_log
from mcp_django.storage.databases import insist, tables

logger = logging.getLogger("mcp_django")

CHECK_SECONDS = 60.0


class CatalogRows:
    """When this process last wrote, and what; for any thread."""

    def __init__(self) -> None:
        self._find_servers: Callable[[], Iterable[Synced]] = tuple
        self.reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """Know nothing of what was written, so that the next request begins."""
        self._lock = threading.Lock()
        self._due_at = -math.inf
        self._written = ""
        self._has_failed = False

    def connect(self, config: AppConfig, servers: Callable[[], Iterable[Synced]]) -> None:
        """Write from now on; calling it again changes nothing."""
        self._find_servers = servers
        uid = "mcp_django.catalog_rows"
        post_migrate.connect(self._migrated, sender=config, dispatch_uid=uid)
        request_finished.connect(self._answered, dispatch_uid=uid)

    # When the site is migrated ------------------------------------------------------------------

    def _migrated(self, *, using: str, **kwargs: Any) -> None:
        is_ours = using == router.db_for_write(tables.Component)
        if is_ours and not call_log.is_under_test():
            self._write_or_log(partial(self._write_unless_unmigrated, can_miss=False))

    # When the process serves --------------------------------------------------------------------

    def _answered(self, *, sender: Any, **kwargs: Any) -> None:
        # The threads of tool calls send the signal as well, in commands too.
        if sender is not BoundedPool:
            self.check_soon()

    def check_soon(self) -> None:
        """Have the catalog compared by the thread of the store, if a minute is over."""
        if time.monotonic() < self._due_at or call_log.is_under_test():
            return
        with self._lock:
            if time.monotonic() < self._due_at:
                return
            self._due_at = math.inf
        # A process that ends takes no more work.
        with suppress(RuntimeError):
            databases.submit(self._check)

    def _check(self) -> None:
        try:
            self._write_or_log(self._write_if_changed)
        finally:
            self._due_at = time.monotonic() + CHECK_SECONDS

    def _write_if_changed(self) -> None:
        declared = syncing.read_declared(self._find_servers(), is_fresh=False)
        if declared.digest != self._written:
            self._write_unless_unmigrated()

    # When the admin changes the catalog ---------------------------------------------------------

    def write_after_commit(self) -> None:
        """Write once the transaction of this thread commits, or now where there is none."""
        if not call_log.is_under_test():
            write = partial(self._write_or_log, self._write_unless_unmigrated)
            alias = router.db_for_write(tables.Component)
            transaction.on_commit(write, using=alias, robust=True)

    # --------------------------------------------------------------------------------------------

    def _write_unless_unmigrated(self, *, can_miss: bool = True) -> None:
        alias = router.db_for_write(tables.Component)
        connection = connections[alias]
        is_dummy = connection.settings_dict["ENGINE"] == "django.db.backends.dummy"
        if is_dummy or has_no_tables():
            return
        # An error within a transaction of others must not end that; one of our own begins with its
        # first write, so that SQLite can wait.
        savepoint = transaction.atomic(using=alias) if connection.in_atomic_block else nullcontext()
        with savepoint:
            declared = syncing.read_declared(self._find_servers())
            insist(partial(syncing.write, declared, can_miss=can_miss))
        if can_miss:
            self._written = declared.digest

    def _write_or_log(self, write: Callable[[], None]) -> None:
        """Write; whoever migrates, asks or saves is not to fail because the lists are behind."""
        try:
            write()
        except Exception as exc:
            if not self._has_failed:
                self._has_failed = True
                is_known = isinstance(exc, (Error, Busy))
                logger.warning(
                    "The rows of servers and components in the admin could not be updated from "
                    "code (%s). Is the site migrated, and can this process write to its database?",
                    exc,
                    exc_info=None if is_known else exc,
                )
        else:
            self._has_failed = False


catalog_rows = CatalogRows()
