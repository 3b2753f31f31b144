"""What is put down for the process that serves a session: answers and cancellations.

A row is taken by deleting it, so that each is taken once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count, Q, Sum
from django.db.models.functions import Length

from mcp_django.conf import get_settings
from mcp_django.store.databases import atomic, before, rows, tables


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
