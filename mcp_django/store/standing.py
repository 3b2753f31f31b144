"""Standing streams in the database: which a session has, who writes, and what its client knows.

A session may have several, on connections to any process. The newest whose owner is alive writes;
the others keep silent until it closes (RSM-9).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Final

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from mcp_django.store import streams
from mcp_django.store.announcer import announce
from mcp_django.store.databases import alias, atomic, insist, rows, tables
from mcp_django.store.topics import standing_of
from mcp_django.store.workers import ensure_beat, is_alive, worker_id

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
        found = _open([session_pk]).exclude(pk=number).order_by("last_seq")
        open_now = list(found.values_list("pk", "owner", "last_seq"))
        others = [(pk, owner) for pk, owner, _ in open_now if pk != replaced]
        if len(others) >= MAX_STANDING:
            others = [(pk, owner) for pk, owner in others if is_alive(owner)]
        kept = {pk for pk, _ in others[-(MAX_STANDING - 1) :]}
        if over := {pk for pk, _, _ in open_now} - kept:
            streams.close_all(rows(tables.Stream).filter(pk__in=over))
        newest = tables.Stream(
            pk=number,
            session_id=session_pk,
            kind=tables.Stream.Kind.GET,
            owner=worker_id(),
            last_seq=max((last_seq for _, _, last_seq in open_now), default=0) + 1,
        )
        rows(tables.Stream).bulk_create([newest], ignore_conflicts=True)
    return bool(open_now)


def look(session_pk: int, number: int) -> Sight | None:
    """What a stream has to know, ``None`` when it or its session is over.

    The session is noted as seen: an open stream keeps it from idling.
    """
    live = rows(tables.Session).filter(pk=session_pk, expires_at__gt=Now())
    if not live.update(seen_at=Now()):
        return None
    found = _open([session_pk]).order_by("-last_seq")
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
    announce(*map(standing_of, _open(session_pks).values_list("session", flat=True).distinct()))


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
        streams.close(*(end.number for end in ends))
    _look_again(session_pks)


def _open(session_pks: Collection[int]) -> QuerySet[tables.Stream]:
    return rows(tables.Stream).filter(
        session__in=session_pks, kind=tables.Stream.Kind.GET, state=tables.Stream.State.OPEN
    )
