"""Streams and their events in the database: one process writes each, any process reads it.

The module does not know about connections. Each function for a stream is one short transaction
that begins with its write, to be called in a thread. A process whose stream was closed as lost
meanwhile gets ``Fenced`` when it writes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Final

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from mcp_django.conf import get_settings
from mcp_django.protocol.jsonrpc import RequestId
from mcp_django.storage.databases import after, alias, atomic, insist, is_held, rows, tables
from mcp_django.storage.inbox import ensure_beat, is_alive, worker_id
from mcp_django.storage.pubsub import announce
from mcp_django.storage.versions import standing_of

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
    _close_all(rows(tables.Stream).filter(pk__in=numbers, owner=worker_id()))


def _close_all(found: QuerySet[tables.Stream]) -> None:
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


# Standing GET streams of a session ----------------------------------------------------------------

# A session may have several, on connections to any process. The newest whose owner is alive
# writes; the others keep silent until it closes (RSM-9).

# Open streams of one session; one more closes the oldest.
MAX_STANDING: Final = 3
# Streams that are closed in one transaction. A process that is told to stop ends all of them at
# once, and a transaction for each would take longer than it is given.
MAX_ENDS = 500


@dataclass(frozen=True, slots=True)
class Sight:
    """What a standing stream finds out about itself and its session."""

    is_initialized: bool
    uris: Sequence[str]
    """The resources that the session has subscribed to."""
    heard: int
    """The number of the last change that the client is taken to know of."""
    is_newest: bool
    """Whether no newer stream of the session is open."""
    writes: bool
    """Whether the owners of all newer ones are dead."""


@dataclass(frozen=True, slots=True)
class StandingEnd:
    """The end of one stream.

    ``heard`` is the number of the last change that the client is taken to know of, ``None`` if that
    is what its session knew of already.
    """

    number: int
    session_pk: int
    heard: int | None = None


def open_standing(session_pk: int, number: int, *, replaced: int | None = None) -> None:
    """Begin a standing stream, the newest of its session.

    The stream ``replaced`` ends, whose client has come back from it. As far as there are more than
    ``MAX_STANDING`` those of dead processes end, and then the oldest.
    """
    insist(ensure_beat)
    if insist(partial(_open_row, session_pk, number, replaced)):
        announce(standing_of(session_pk))


def _open_row(session_pk: int, number: int, replaced: int | None) -> bool:
    """Write the row of a stream; whether there are others that have to know."""
    with atomic():
        # Several that come at once wait for the session's row, and are put in order by that.
        if not rows(tables.Session).filter(pk=session_pk).update(seen_at=Now()):
            return False
        # An attempt whose answer was lost may come again.
        found = _standing([session_pk]).exclude(pk=number).order_by("last_seq")
        open_now = list(found.values_list("pk", "owner", "last_seq"))
        others = [(pk, owner) for pk, owner, _ in open_now if pk != replaced]
        if len(others) >= MAX_STANDING:
            others = [(pk, owner) for pk, owner in others if is_alive(owner)]
        kept = {pk for pk, _ in others[-(MAX_STANDING - 1) :]}
        if over := {pk for pk, _, _ in open_now} - kept:
            _close_all(rows(tables.Stream).filter(pk__in=over))
        newest = tables.Stream(
            pk=number,
            session_id=session_pk,
            kind=tables.Stream.Kind.GET,
            owner=worker_id(),
            last_seq=max((last_seq for _, _, last_seq in open_now), default=0) + 1,
        )
        rows(tables.Stream).bulk_create([newest], ignore_conflicts=True)
    return bool(open_now)


def look_at_standing(session_pk: int, number: int) -> Sight | None:
    """What a stream has to know, ``None`` when it or its session is over.

    The session is noted as seen: an open stream keeps it from idling.
    """
    live = rows(tables.Session).filter(pk=session_pk, expires_at__gt=Now())
    if not live.update(seen_at=Now()):
        return None
    found = _standing([session_pk]).order_by("-last_seq")
    members = found.values_list("pk", "owner", "session__is_initialized", "session__heard_seq")
    every = list(members)
    newer = list(takewhile(lambda one: one[0] != number, every))
    if len(newer) == len(every):
        return None
    _, _, is_initialized, heard = every[len(newer)]
    wanted = rows(tables.Subscription).filter(session=session_pk).order_by("pk")
    return Sight(
        is_initialized=is_initialized,
        uris=list(wanted.values_list("uri", flat=True)),
        heard=heard,
        is_newest=not newer,
        writes=not any(is_alive(owner) for _, owner, _, _ in newer),
    )


def look_again(session_pks: Iterable[int]) -> None:
    """Let the standing streams of sessions look at their rows again, in every process.

    To be called after the rows were changed, in their transaction at the latest.
    """
    transaction.on_commit(partial(_look_again, list(session_pks)), using=alias())


def _look_again(session_pks: Collection[int]) -> None:
    # A stream that is opened just now has its row first, and looks at the others then.
    announce(*map(standing_of, _standing(session_pks).values_list("session", flat=True).distinct()))


def end_standing(ends: Sequence[StandingEnd]) -> None:
    """Close these streams, note what their clients know, and let the others of theirs go on."""
    for first in range(0, len(ends), MAX_ENDS):
        _end(ends[first : first + MAX_ENDS])


def _end(ends: Sequence[StandingEnd]) -> None:
    session_pks = {end.session_pk for end in ends}
    with atomic():
        # Sessions before streams, and those in one order, or two would wait for each other.
        for end in sorted(ends, key=lambda one: one.session_pk):
            if end.heard is not None:
                told = rows(tables.Session).filter(pk=end.session_pk, heard_seq__lt=end.heard)
                told.update(heard_seq=end.heard)
        close(*(end.number for end in ends))
    _look_again(session_pks)


def _standing(session_pks: Collection[int]) -> QuerySet[tables.Stream]:
    return rows(tables.Stream).filter(
        session__in=session_pks, kind=tables.Stream.Kind.GET, state=tables.Stream.State.OPEN
    )
