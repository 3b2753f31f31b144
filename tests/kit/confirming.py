"""Fixtures to import: a clock of the caches that a test moves, and a record of SQL statements."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError
from django.db.backends.utils import CursorWrapper

from mcp_django.storage import cache, inbox
from mcp_django.transports.cancellation import cancellation_poller
from tests.kit.drivers import PATIENCE


class Clock:
    """The clocks of the caches; they stand still until a test moves them."""

    def __init__(self) -> None:
        self.monotonic = 1000.0
        self.time = 1_800_000_000.0

    def move(self, seconds: float) -> None:
        """Advance both clocks."""
        self.monotonic += seconds
        self.time += seconds

    def suspend(self, seconds: float) -> None:
        """Suspend the machine: only the wall clock advances, as on Linux."""
        self.time += seconds


@pytest.fixture(name="clock")
def _clock(settings, monkeypatch):
    """The clocks of the caches, which are enabled: `CONFIRM_SECONDS` is 1."""
    settings.MCP_DJANGO = {**getattr(settings, "MCP_DJANGO", {}), "CONFIRM_SECONDS": 1}
    clock = Clock()
    monkeypatch.setattr(cache, "monotonic", lambda: clock.monotonic)
    fake_time = SimpleNamespace(time=lambda: clock.time, sleep=time.sleep)
    monkeypatch.setattr(cache, "time", fake_time)
    # After its first heartbeat, this process writes no further heartbeat during a test.
    now = time.monotonic()
    monkeypatch.setattr(inbox, "time", SimpleNamespace(monotonic=lambda: now))
    return clock


@pytest.fixture(name="serving")
def _serving(monkeypatch):
    """Let a thread read the values, as in a process that serves requests."""
    monkeypatch.setattr(cache, "is_inline", lambda: False)
    monkeypatch.setattr(cache, "ASK_SECONDS", PATIENCE)
    yield
    cache.clear_caches()


class Database:
    """Records the SQL statements of all threads; raises an error for each if `is_away` is set."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.is_away = False
        self._lock = threading.Lock()

    def note(self, sql: str) -> None:
        """Record a statement.

        Raises:
            OperationalError: `is_away` is set.
        """
        with self._lock:
            self.statements.append(sql)
        if self.is_away:
            raise OperationalError("the database is away")

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Fail if a statement is executed in the block."""
        self.statements.clear()
        yield
        assert not self.statements, self.statements


@pytest.fixture(name="database")
def _database(monkeypatch):
    """The record of the statements of all threads."""
    database = Database()
    execute = CursorWrapper._execute_with_wrappers

    def noted(self: Any, sql: str, *args: Any, **kwargs: Any) -> Any:
        database.note(sql)
        return execute(self, sql, *args, **kwargs)

    monkeypatch.setattr(CursorWrapper, "_execute_with_wrappers", noted)
    # On a busy machine, a call may take a second; the poller would then query its cancellation.
    monkeypatch.setattr(cancellation_poller, "poll_now", lambda sessions: None)
    yield database
    database.is_away = False
