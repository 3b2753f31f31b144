"""Messages to the process that serves a session, and the heartbeats of processes.

The inbox contains responses, cancellations and the messages that an HTTP+SSE client posted to
another process. A row is taken by deleting it, so that each is taken once.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db import Error
from django.db.models import Count, Q, Sum
from django.db.models.functions import Length, Now

from mcp_django.conf import get_settings
from mcp_django.storage.databases import atomic, rows, seconds_ago, tables, write_alias
from mcp_django.storage.writer import row_writer


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """A message of the inbox."""

    session_pk: int
    kind: str
    ref: str
    payload: str


def put_message(session_pk: int, kind: str, ref: str, payload: str = "") -> None:
    """Store a message for the process that waits for it."""
    rows(tables.Inbox).bulk_create(
        [tables.Inbox(session_id=session_pk, kind=kind, ref=ref, payload=payload)]
    )


def put_bounded(session_pk: int, kind: str, ref: str, *, keep: int) -> None:
    """Store a message that perhaps no process waits for.

    It replaces a message with the same reference, and the session keeps at most ``keep``
    messages of the kind; the oldest are deleted.
    """
    alike = rows(tables.Inbox).filter(session=session_pk, kind=kind)
    crowded = alike.order_by("-pk").values_list("pk", flat=True)[keep - 1 :]
    alike.filter(Q(ref=ref) | Q(pk__in=list(crowded))).delete()
    put_message(session_pk, kind, ref)


def refs_with_messages(
    session_pk: int, refs: Iterable[str], *, since: float | None = None
) -> list[str]:
    """Return those references that have a message, stored at most ``since`` seconds ago."""
    messages = rows(tables.Inbox).filter(session=session_pk, ref__in=list(refs)).order_by("pk")
    if since is not None:
        messages = messages.filter(created_at__gte=seconds_ago(since))
    return list(dict.fromkeys(messages.values_list("ref", flat=True)))


def take_messages(
    session_pk: int, refs: Iterable[str], *, limit: int | None = None
) -> list[InboxMessage]:
    """Delete and return the messages of these references, the oldest first, each once."""
    messages = rows(tables.Inbox).filter(session=session_pk, ref__in=list(refs)).order_by("pk")
    columns = ("pk", "session_id", "kind", "ref", "payload")
    taken = []
    for pk, session, kind, ref, payload in messages.values_list(*columns)[:limit]:
        with atomic():
            deleted, _ = rows(tables.Inbox).filter(pk=pk).delete()
        if deleted:
            taken.append(InboxMessage(session, kind, ref, payload))
    return taken


def has_room(session_pk: int, kind: str, *, size: int, keep: int) -> bool:
    """Return whether a session may store one more message of a kind, of ``size`` characters.

    A session has at most ``keep`` messages of a kind, and all its messages together have at most as
    many characters as two bodies of the maximum size.
    """
    mine = rows(tables.Inbox).filter(session=session_pk)
    held = mine.aggregate(
        count=Count("pk", filter=Q(kind=kind)), size=Sum(Length("payload"), default=0)
    )
    most: int = 2 * get_settings().max_body_bytes
    return bool(held["count"] < keep and held["size"] + size <= most)


def sessions_with_messages(session_pks: Iterable[int]) -> set[int]:
    """Return the sessions that have a message."""
    messages = rows(tables.Inbox).filter(session__in=list(session_pks))
    return set(messages.values_list("session_id", flat=True))


# A process owns streams by its number, and its heartbeat shows that it is alive. A heartbeat is
# valid for ``LEASE_SECONDS`` by the database's clock. A process that was suspended for longer is
# considered dead; when it resumes, it learns that from its own writes, which fail.

LEASE_SECONDS = 30
HEARTBEAT_SECONDS = 10
# How long after its last heartbeat a process still caches values, each for at most 10 seconds more
# (``CONFIRM_SECONDS``).
REGISTERED_SECONDS = 15

_numbers: dict[int, int] = {}
_last_heartbeats: dict[int, float] = {}


def worker_id() -> int:
    """Return the number of this process; a forked child gets one of its own."""
    return _worker_id_of(os.getpid())


def _worker_id_of(pid: int) -> int:
    number = _numbers.get(pid)
    # ``setdefault``, so that concurrent first calls return the same number.
    return _numbers.setdefault(pid, secrets.randbits(63)) if number is None else number


def write_heartbeat() -> None:
    """Write a heartbeat of this process."""
    began = time.monotonic()
    workers = rows(tables.Worker)
    if not workers.filter(pk=worker_id()).update(beat_at=Now()):
        workers.bulk_create([tables.Worker(pk=worker_id(), beat_at=Now())], ignore_conflicts=True)
    _last_heartbeats[worker_id()] = began


def ensure_heartbeat() -> None:
    """Write a heartbeat of this process, unless the last one is recent."""
    now = time.monotonic()
    if now - _last_heartbeats.get(worker_id(), -HEARTBEAT_SECONDS) >= HEARTBEAT_SECONDS:
        write_heartbeat()


def is_registered() -> bool:
    """Return whether other processes see that this one is alive, for the next seconds at least.

    If the last heartbeat is not recent, another one is written soon.
    """
    age = time.monotonic() - _last_heartbeats.get(worker_id(), -math.inf)
    if age >= HEARTBEAT_SECONDS:
        try:
            # Until the first heartbeat nothing is cached, so each request queries the database.
            row_writer.store(HEARTBEATS, None, soon=age == math.inf)
        except Error:
            return False
        age = time.monotonic() - _last_heartbeats.get(worker_id(), -math.inf)
    return age < REGISTERED_SECONDS


class _Heartbeats:
    """The ``RowKind`` of the heartbeats of this process."""

    lock_seconds = None

    def alias(self) -> str:
        """Return the alias of the database of the workers."""
        return write_alias()

    def write(self, rows: Sequence[None], *, again: bool) -> Sequence[None]:
        """Write one heartbeat, however many were queued."""
        ensure_heartbeat()
        return rows


HEARTBEATS = _Heartbeats()


def has_other_workers() -> bool:
    """Return whether another process is alive."""
    others = rows(tables.Worker).exclude(pk=worker_id())
    return others.filter(beat_at__gte=seconds_ago(LEASE_SECONDS)).exists()


def is_alive(number: int) -> bool:
    """Return whether the heartbeat of a process is still valid."""
    if number == worker_id():
        return True
    workers = rows(tables.Worker).filter(pk=number, beat_at__gte=seconds_ago(LEASE_SECONDS))
    return workers.exists()
