"""Streams and their events in the database: one process writes a stream, any process reads it.

The module does not know about connections. Each function for a stream is one short transaction
that begins with its write; call it in a thread. A process whose stream was closed as lost gets
``LeaseLost`` when it writes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Final

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from mcp_django.conf import get_settings
from mcp_django.protocol.jsonrpc import RequestId
from mcp_django.storage.databases import (
    atomic,
    in_batches,
    is_locked,
    retry_on_conflict,
    rows,
    seconds_from_now,
    tables,
    write_alias,
)
from mcp_django.storage.inbox import ensure_heartbeat, is_alive, worker_id
from mcp_django.storage.pubsub import publish
from mcp_django.storage.versions import topic_of_get_streams

# As ``Stream.Kind`` and ``Stream.State`` have them; models cannot be imported before the app
# registry is ready.
POST, GET = "post", "get"
OPEN, DONE, LOST = "open", "done", "lost"

# Higher than the number of any event that a lost owner can have sent without storing it.
LOST_SEQ = 1 << 40
PAGE_SIZE = 100

NumberedEvent = tuple[int, str]


class LeaseLost(Exception):
    """The process does not own the stream any more: it was closed, or considered lost."""


class UnknownStream(Exception):
    """The session has no such stream, or not any more."""


@dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """A snapshot of a stream, with the events that a reader lacks."""

    state: str
    last_seq: int
    owner: int
    request_id: str
    events: Sequence[NumberedEvent]

    @property
    def is_open(self) -> bool:
        """Whether more events may follow."""
        return self.state == OPEN


def open_stream(session_pk: int, *, request_id: str) -> int:
    """Create the stream of a response, before its first event is sent; return its number."""
    ensure_heartbeat()
    number = secrets.randbits(63)
    row = tables.Stream(
        pk=number, session_id=session_pk, kind=POST, request_id=request_id, owner=worker_id()
    )
    rows(tables.Stream).bulk_create([row])
    return number


def close_streams(*numbers: int) -> None:
    """Close streams of this process that have no last message."""
    _mark_closed(rows(tables.Stream).filter(pk__in=numbers, owner=worker_id()))


def _mark_closed(found: QuerySet[tables.Stream]) -> None:
    """Close these streams, whichever process owns them."""
    # A client may send the id of the last event as long as its session may be idle.
    found.filter(state=OPEN).update(
        state=DONE, expires_at=seconds_from_now(get_settings().session_idle)
    )


def append_events(
    number: int, events: Sequence[NumberedEvent], *, final: bool, retention: float
) -> None:
    """Store events of a stream that this process owns; a retry after success does nothing.

    Raises:
        LeaseLost: the stream is closed, perhaps as lost; nothing was stored.
    """
    last = events[-1][0]
    changes: dict[str, Any] = {"last_seq": last}
    if final:
        changes |= {"state": DONE, "expires_at": seconds_from_now(retention)}
    with atomic():
        mine = rows(tables.Stream).filter(pk=number, owner=worker_id())
        new = mine.filter(state=OPEN, last_seq__lt=last)
        if not new.update(**changes):
            if mine.filter(last_seq=last).exists():
                # The first attempt succeeded, only the database's response was lost.
                return
            raise LeaseLost
        rows(tables.Event).bulk_create(
            [tables.Event(stream_id=number, seq=seq, payload=payload) for seq, payload in events]
        )


def read_stream(session_pk: int, number: int, *, after_seq: int) -> StreamSnapshot:
    """Return a snapshot of a stream with its events after the one that the reader has.

    Raises:
        UnknownStream: the session has no such stream.
    """
    found = rows(tables.Stream).filter(pk=number, session=session_pk)
    # The state first: the events that it promises exist when they are read.
    row = found.values_list("state", "last_seq", "owner", "request_id").first()
    if row is None:
        raise UnknownStream
    events = rows(tables.Event).filter(stream=number, seq__gt=after_seq).order_by("seq")
    return StreamSnapshot(*row, events=tuple(events.values_list("seq", "payload")[:PAGE_SIZE]))


def mark_lost(number: int, owner: int, *, payload: str, retention: float) -> bool:
    """Close a stream of a dead process with a last message; return whether this call did it.

    Does not wait for an owner that hangs in the middle of a transaction.
    """
    if is_alive(owner):
        return False
    with atomic():
        open_still = rows(tables.Stream).filter(pk=number, owner=owner, state=OPEN)
        if is_locked(open_still):
            return False
        ended = open_still.update(
            state=LOST, last_seq=LOST_SEQ, expires_at=seconds_from_now(retention)
        )
        if ended:
            rows(tables.Event).bulk_create(
                [tables.Event(stream_id=number, seq=LOST_SEQ, payload=payload)]
            )
    return bool(ended)


def find_request_owner(session_pk: int, request_id: RequestId) -> int | None:
    """Return the process that runs a request of a session, if its response is a stream.

    The stream of a batch has the responses to several requests.
    """
    found = rows(tables.Stream).filter(session=session_pk, kind=POST, state=OPEN)
    for owner, answered in found.values_list("owner", "request_id"):
        ids = json.loads(answered)
        if _contains_id(request_id, ids if isinstance(ids, list) else [ids]):
            return owner
    return None


def _contains_id(request_id: RequestId, ids: Sequence[RequestId]) -> bool:
    # 1 and "1" differ, and so do 1 and true.
    return any(one == request_id and type(one) is type(request_id) for one in ids)


def find_owner(session_pk: int, number: int) -> int | None:
    """Return the process that runs the call of a stream, ``None`` if it is closed or unknown."""
    found = rows(tables.Stream).filter(pk=number, session=session_pk, state=OPEN)
    return found.values_list("owner", flat=True).first()


def find_stream_kind(session_pk: int, number: int) -> str | None:
    """Return the kind of a stream of a session, ``None`` if the stream does not exist."""
    found = rows(tables.Stream).filter(pk=number, session=session_pk)
    return found.values_list("kind", flat=True).first()


# GET streams of a session -------------------------------------------------------------------------

# A session may have several, on connections to any process. The newest whose owner is alive sends
# the messages, since a message must not be sent on several streams; the others wait until it
# closes.

# The maximum number of open GET streams of a session; one more closes the oldest.
MAX_GET_STREAMS: Final = 3
# How many streams are closed in one transaction. A process that stops closes all of them, and a
# transaction for each would exceed the time that it has.
CLOSE_BATCH_SIZE = 500


@dataclass(frozen=True, slots=True)
class GetStreamState:
    """The state of a GET stream and its session."""

    is_initialized: bool
    uris: Sequence[str]
    """The resources that the session has subscribed to."""
    seen_number: int
    """The number of the last change that the client is assumed to know."""
    is_newest: bool
    """Whether no newer stream of the session is open."""
    is_writer: bool
    """Whether it sends the messages: the owners of all newer streams are dead."""


@dataclass(frozen=True, slots=True)
class GetStreamEnd:
    """The end of one GET stream.

    ``seen_number`` is the number of the last change that the client is assumed to know, ``None`` if
    the session's row has it already.
    """

    number: int
    session_pk: int
    seen_number: int | None = None


def open_get_stream(session_pk: int, number: int, *, replaced: int | None = None) -> None:
    """Create a GET stream, the newest of its session.

    The stream ``replaced``, from which the client has reconnected, is closed. If there are more
    than ``MAX_GET_STREAMS``, those of dead processes are closed, and then the oldest.
    """
    retry_on_conflict(ensure_heartbeat)
    if retry_on_conflict(partial(_insert_get_stream, session_pk, number, replaced)):
        publish(topic_of_get_streams(session_pk))


def _insert_get_stream(session_pk: int, number: int, replaced: int | None) -> bool:
    """Write the row of a GET stream; return whether there are others to notify."""
    with atomic():
        # The lock of the session's row puts concurrent streams in order.
        if not rows(tables.Session).filter(pk=session_pk).update(seen_at=Now()):
            return False
        # An attempt whose response was lost may be repeated.
        found = _open_get_streams([session_pk]).exclude(pk=number).order_by("last_seq")
        open_now = list(found.values_list("pk", "owner", "last_seq"))
        others = [(pk, owner) for pk, owner, _ in open_now if pk != replaced]
        if len(others) >= MAX_GET_STREAMS:
            others = [(pk, owner) for pk, owner in others if is_alive(owner)]
        kept = {pk for pk, _ in others[-(MAX_GET_STREAMS - 1) :]}
        if over := {pk for pk, _, _ in open_now} - kept:
            _mark_closed(rows(tables.Stream).filter(pk__in=over))
        last = max((last_seq for _, _, last_seq in open_now), default=0)
        newest = tables.Stream(
            pk=number, session_id=session_pk, kind=GET, owner=worker_id(), last_seq=last + 1
        )
        rows(tables.Stream).bulk_create([newest], ignore_conflicts=True)
    return bool(open_now)


def read_get_stream(session_pk: int, number: int) -> GetStreamState | None:
    """Return the state of a GET stream, ``None`` if it is closed or its session has ended.

    Marks the session as seen: an open stream keeps it from idling.
    """
    live = rows(tables.Session).filter(pk=session_pk, expires_at__gt=Now())
    if not live.update(seen_at=Now()):
        return None
    found = _open_get_streams([session_pk]).order_by("-last_seq")
    members = found.values_list("pk", "owner", "session__is_initialized", "session__heard_seq")
    every = list(members)
    newer = list(takewhile(lambda one: one[0] != number, every))
    if len(newer) == len(every):
        return None
    _, _, is_initialized, heard = every[len(newer)]
    wanted = rows(tables.Subscription).filter(session=session_pk).order_by("pk")
    return GetStreamState(
        is_initialized=is_initialized,
        uris=list(wanted.values_list("uri", flat=True)),
        seen_number=heard,
        is_newest=not newer,
        is_writer=not any(is_alive(owner) for _, owner, _, _ in newer),
    )


def notify_get_streams(session_pks: Iterable[int]) -> None:
    """Notify the GET streams of sessions in every process, so that they read their rows again.

    Call it after the rows were changed, in the same transaction or later.
    """
    transaction.on_commit(partial(_notify_get_streams, list(session_pks)), using=write_alias())


def _notify_get_streams(session_pks: Collection[int]) -> None:
    # A stream that is being opened writes its row first, and reads the others then.
    found = _open_get_streams(session_pks).values_list("session", flat=True).distinct()
    publish(*map(topic_of_get_streams, found))


def close_get_streams(ends: Sequence[GetStreamEnd]) -> None:
    """Close these GET streams, store what their clients know, and notify the sessions' others."""
    for some in in_batches(ends, CLOSE_BATCH_SIZE):
        _close_get_streams(some)


def _close_get_streams(ends: Sequence[GetStreamEnd]) -> None:
    session_pks = {end.session_pk for end in ends}
    with atomic():
        # Sessions before streams, and those in one order, to avoid deadlocks.
        for end in sorted(ends, key=lambda one: one.session_pk):
            if end.seen_number is not None:
                told = rows(tables.Session).filter(pk=end.session_pk, heard_seq__lt=end.seen_number)
                told.update(heard_seq=end.seen_number)
        close_streams(*(end.number for end in ends))
    _notify_get_streams(session_pks)


def _open_get_streams(session_pks: Collection[int]) -> QuerySet[tables.Stream]:
    return rows(tables.Stream).filter(session__in=session_pks, kind=GET, state=OPEN)
