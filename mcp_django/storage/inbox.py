"""Messages between processes, for the one that serves a session, and how it shows that it is alive.

The inbox holds answers, cancellations and the messages that an HTTP+SSE client posted to another
process. A row is taken by deleting it, so that each is taken once.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count, Q, Sum
from django.db.models.functions import Length, Now

from mcp_django.conf import get_settings
from mcp_django.storage.databases import atomic, before, rows, tables


@dataclass(frozen=True, slots=True)
class Letter:
    """One entry."""

    session_pk: int
    kind: str
    ref: str
    payload: str


def put(session_pk: int, kind: str, ref: str, payload: str = "") -> None:
    """Put something down for whoever waits for it."""
    rows(tables.Inbox).bulk_create(
        [tables.Inbox(session_id=session_pk, kind=kind, ref=ref, payload=payload)]
    )


def put_newest(session_pk: int, kind: str, ref: str, *, keep: int) -> None:
    """Put something down that perhaps nobody waits for.

    It is there once, and of its kind the session has at most ``keep`` then; the oldest give way.
    """
    alike = rows(tables.Inbox).filter(session=session_pk, kind=kind)
    crowded = alike.order_by("-pk").values_list("pk", flat=True)[keep - 1 :]
    alike.filter(Q(ref=ref) | Q(pk__in=list(crowded))).delete()
    put(session_pk, kind, ref)


def refs(session_pk: int, wanted: Iterable[str], *, since: float | None = None) -> list[str]:
    """Those references for which something is there, put down at most ``since`` seconds ago."""
    found = rows(tables.Inbox).filter(session=session_pk, ref__in=list(wanted)).order_by("pk")
    if since is not None:
        found = found.filter(created_at__gte=before(since))
    return list(dict.fromkeys(found.values_list("ref", flat=True)))


def take(session_pk: int, refs: Iterable[str], *, limit: int | None = None) -> list[Letter]:
    """Take what has come for these references, the oldest first, each entry once."""
    found = rows(tables.Inbox).filter(session=session_pk, ref__in=list(refs)).order_by("pk")
    columns = ("pk", "session_id", "kind", "ref", "payload")
    taken = []
    for pk, session, kind, ref, payload in found.values_list(*columns)[:limit]:
        with atomic():
            deleted, _ = rows(tables.Inbox).filter(pk=pk).delete()
        if deleted:
            taken.append(Letter(session, kind, ref, payload))
    return taken


def has_room(session_pk: int, kind: str, *, size: int, keep: int) -> bool:
    """Whether one more entry of a kind may be put down, of so many characters.

    A session has at most ``keep`` of a kind, and of all together as many characters as two of the
    largest bodies.
    """
    mine = rows(tables.Inbox).filter(session=session_pk)
    held = mine.aggregate(
        count=Count("pk", filter=Q(kind=kind)), size=Sum(Length("payload"), default=0)
    )
    most: int = 2 * get_settings().max_body_bytes
    return bool(held["count"] < keep and held["size"] + size <= most)


def waiting(session_pks: Iterable[int]) -> set[int]:
    """The sessions for which something is there."""
    found = rows(tables.Inbox).filter(session__in=list(session_pks))
    return set(found.values_list("session_id", flat=True))


# Workers and their heartbeats ---------------------------------------------------------------------

# A process owns streams by its number, and its heartbeat says that it is alive. A heartbeat is
# good for ``LEASE_SECONDS`` by the database's clock. A process that was stopped for longer is taken
# for dead; when it wakes up, its own writes fail and so tell it.

LEASE_SECONDS = 30
BEAT_SECONDS = 10

_numbers: dict[int, int] = {}
_said: dict[int, float] = {}


def worker_id() -> int:
    """The number of this process; a forked child gets one of its own."""
    return _number(os.getpid())


def _number(pid: int) -> int:
    found = _numbers.get(pid)
    # Of threads that come first at the same time all get what one of them wrote.
    return _numbers.setdefault(pid, secrets.randbits(63)) if found is None else found


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
