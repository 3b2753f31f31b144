"""One thread of a process that holds the leases of all tasks that run here.

It also writes what they report, since their own threads may be inside a transaction, and finds out
which of them were cancelled. It begins with the first task and ends with the last.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from django.db import DatabaseError, connections

from mcp_django.store import tasks

logger = logging.getLogger("mcp_django")

RENEW_SECONDS = 10
# How often is looked whether a task was cancelled, and how often its message is written at most.
LOOK_SECONDS = 1

# What SQLite says to everybody while one task goes on in a transaction.
LOCKED = " If a task runs in a transaction, declare its tool with atomic=False."


class Held(Protocol):
    """A run whose lease is held."""

    pk: str
    run: int

    def stop(self) -> None:
        """Nobody wants it any more; in the thread of the keeper."""

    def tell(self) -> None:
        """Write down what it reported; in the thread of the keeper."""


class Keeper:
    """The leases of one process."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], Held] = {}
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, held: Held) -> None:
        """Keep the lease of a run, which has just been taken."""
        with self._lock:
            self._held[held.pk, held.run] = held
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="mcp-leases", daemon=True)
                self._thread.start()

    def let_go(self, held: Held) -> None:
        """Keep it no more; harmless where nobody does."""
        with self._lock:
            self._held.pop((held.pk, held.run), None)
            if not self._held:
                self._changed.set()

    def _keep(self) -> None:
        renewed = time.monotonic()
        try:
            while self._goes_on():
                now = time.monotonic()
                is_due = now - renewed >= RENEW_SECONDS
                if self._look(renew=is_due) and is_due:
                    renewed = now
        finally:
            connections.close_all()

    def _goes_on(self) -> bool:
        self._changed.wait(LOOK_SECONDS)
        with self._lock:
            self._changed.clear()
            if not self._held:
                self._thread = None
            return bool(self._held)

    def _look(self, *, renew: bool) -> bool:
        """Whether the database could be asked; if not, it is again, at once and with patience."""
        with self._lock:
            held = list(self._held.values())
        try:
            wanted = tasks.still_wanted({one.pk: one.run for one in held})
            for one in held:
                if one.pk not in wanted or (renew and not tasks.renew(one.pk, one.run)):
                    self.let_go(one)
                    one.stop()
                else:
                    one.tell()
        except DatabaseError as exc:
            way_out = LOCKED if "database is locked" in str(exc) else ""
            logger.warning(
                "Leases of tasks could not be renewed (%s); trying again.%s", exc, way_out
            )
            connections.close_all()
            return False
        except Exception:
            # Without it every task here would be taken for lost.
            logger.exception("The keeper of leases stumbled; it goes on.")
            return False
        return True


keeper = Keeper()
