"""Streams in the database: one process writes each, any process reads it.

Nothing here knows a connection. Each function is one short transaction that begins with its write,
for a thread.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from mcp_django.conf import get_settings
from mcp_django.protocol.jsonrpc import RequestId
from mcp_django.store.databases import after, atomic, is_held, rows, tables
from mcp_django.store.workers import ensure_beat, is_alive, worker_id

# Above everything that a lost owner can have sent without storing it.
LOST_SEQ = 1 << 40
PAGE = 100

Numbered = tuple[int, str]


class Fenced(Exception):
    """The stream is not this process's any more: it was closed, or taken for lost."""


class UnknownStream(Exception):
    """There is no such stream, not in this session, or not any more."""


@dataclass(frozen=True, slots=True)
class Glimpse:
    """A stream as it was at one moment, with the events that a reader lacks."""

    state: str
    last_seq: int
    owner: int
    request_id: str
    events: Sequence[Numbered]

    @property
    def is_open(self) -> bool:
        """Whether more may come."""
        return self.state == tables.Stream.State.OPEN


def open_stream(session_pk: int, *, request_id: str) -> int:
    """Begin the stream of an answer; it is there before its first event leaves."""
    ensure_beat()
    number = secrets.randbits(63)
    rows(tables.Stream).bulk_create(
        [
            tables.Stream(
                pk=number,
                session_id=session_pk,
                kind=tables.Stream.Kind.POST,
                request_id=request_id,
                owner=worker_id(),
            )
        ]
    )
    return number


def close(*numbers: int) -> None:
    """End streams of this process that have no last message."""
    close_all(rows(tables.Stream).filter(pk__in=numbers, owner=worker_id()))


def close_all(found: QuerySet[tables.Stream]) -> None:
    """End these streams, whoever owns them."""
    # A client may name the last event of such a stream for as long as its session may be idle.
    found.filter(state=tables.Stream.State.OPEN).update(
        state=tables.Stream.State.DONE, expires_at=after(get_settings().session_idle)
    )


def append(number: int, events: Sequence[Numbered], *, final: bool, retention: float) -> None:
    """Store events of a stream that this process owns; what is stored already may come again.

    Raises:
        Fenced: the stream is closed or was given up for lost; nothing was stored.
    """
    last = events[-1][0]
    changes = {"last_seq": last}
    ending = {"state": tables.Stream.State.DONE, "expires_at": after(retention)} if final else {}
    with atomic():
        mine = rows(tables.Stream).filter(pk=number, owner=worker_id())
        new = mine.filter(state=tables.Stream.State.OPEN, last_seq__lt=last)
        if not new.update(**changes, **ending):
            if mine.filter(last_seq=last).exists():
                # The answer to the first attempt was lost, and nothing else.
                return
            raise Fenced
        rows(tables.Event).bulk_create(
            [tables.Event(stream_id=number, seq=seq, payload=payload) for seq, payload in events]
        )


def look(session_pk: int, number: int, *, after_seq: int) -> Glimpse:
    """A stream of a session, and its events after the one that the reader has.

    Raises:
        UnknownStream: there is none.
    """
    # The state first: what it promises is there when the events are read.
    row = (
        rows(tables.Stream)
        .filter(pk=number, session=session_pk)
        .values_list("state", "last_seq", "owner", "request_id")
        .first()
    )
    if row is None:
        raise UnknownStream
    events = (
        rows(tables.Event)
        .filter(stream=number, seq__gt=after_seq)
        .order_by("seq")
        .values_list("seq", "payload")[:PAGE]
    )
    state, last_seq, owner, request_id = row
    return Glimpse(state, last_seq, owner, request_id, tuple(events))


def mark_lost(number: int, owner: int, *, payload: str, retention: float) -> bool:
    """Close a stream whose owner is dead with its last message; whether this call did it.

    An owner that hangs in the middle of a transaction is not waited for.
    """
    if is_alive(owner):
        return False
    with atomic():
        open_still = rows(tables.Stream).filter(
            pk=number, owner=owner, state=tables.Stream.State.OPEN
        )
        if is_held(open_still):
            return False
        ended = open_still.update(
            state=tables.Stream.State.LOST, last_seq=LOST_SEQ, expires_at=after(retention)
        )
        if ended:
            rows(tables.Event).bulk_create(
                [tables.Event(stream_id=number, seq=LOST_SEQ, payload=payload)]
            )
    return bool(ended)


def owner_of_request(session_pk: int, request_id: RequestId) -> int | None:
    """The process that runs a request of a session, if its answer is a stream.

    The stream of a batch answers several requests.
    """
    found = rows(tables.Stream).filter(
        session=session_pk, kind=tables.Stream.Kind.POST, state=tables.Stream.State.OPEN
    )
    for owner, answered in found.values_list("owner", "request_id"):
        ids = json.loads(answered)
        if _is_among(request_id, ids if isinstance(ids, list) else [ids]):
            return owner
    return None


def _is_among(request_id: RequestId, ids: Sequence[RequestId]) -> bool:
    # 1 and "1" differ, and so do 1 and true.
    return any(one == request_id and type(one) is type(request_id) for one in ids)


def owner_of(session_pk: int, number: int) -> int | None:
    """The process that runs the call of a stream, ``None`` when it is over or unknown."""
    found = rows(tables.Stream).filter(
        pk=number, session=session_pk, state=tables.Stream.State.OPEN
    )
    return found.values_list("owner", flat=True).first()


def kind_of(session_pk: int, number: int) -> str | None:
    """The kind of a stream of a session, ``None`` when there is no such stream."""
    found = rows(tables.Stream).filter(pk=number, session=session_pk)
    return found.values_list("kind", flat=True).first()
