"""This process as an owner of streams: its number, and the beat that says it lives.

A beat is good for ``LEASE_SECONDS`` by the database's clock. A process that was stopped for longer
is taken for dead; when it wakes up, its own writes tell it so.
"""

from __future__ import annotations

import os
import secrets
import time

from django.db.models.functions import Now

from mcp_django.store.databases import before, rows, tables

LEASE_SECONDS = 30
BEAT_SECONDS = 10


def worker_id() -> int:
    """The number of this process; a forked child gets one of its own."""
    return _number(os.getpid())


_numbers: dict[int, int] = {}


def _number(pid: int) -> int:
    found = _numbers.get(pid)
    # Of threads that come first at the same time all get what one of them wrote.
    return _numbers.setdefault(pid, secrets.randbits(63)) if found is None else found


_said: dict[int, float] = {}


def beat() -> None:
    """Say that this process lives."""
    began = time.monotonic()
    workers = rows(tables.Worker)
    if not workers.filter(pk=worker_id()).update(beat_at=Now()):
        workers.bulk_create([tables.Worker(pk=worker_id(), beat_at=Now())], ignore_conflicts=True)
    _said[worker_id()] = began


def ensure_beat() -> None:
    """Say that this process lives, unless it was said a moment ago."""
    now = time.monotonic()
    if now - _said.get(worker_id(), -BEAT_SECONDS) >= BEAT_SECONDS:
        beat()


def is_alive(number: int) -> bool:
    """Whether a process has beaten within its lease."""
    if number == worker_id():
        return True
    found = rows(tables.Worker).filter(pk=number, beat_at__gte=before(LEASE_SECONDS))
    return found.exists()
