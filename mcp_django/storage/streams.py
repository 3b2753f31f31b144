"""Streams and their events in the database: one process writes a stream, any process reads it.

The module does not know about connections. A process writes its own streams through ``row_writer``,
which also writes other rows, as ``NEW_STREAMS``, ``EVENTS``, ``NEW_GET_STREAMS`` and
``GET_STREAM_ENDS``. Each function is one short transaction that begins with its write; call it in a
thread. A process whose stream was closed as lost gets ``LeaseLost`` when it writes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from itertools import takewhile
from typing import Any, Final

from django.db import transaction
from django.db.models import FilteredRelation, Q, QuerySet
from django.db.models.functions import Now

from mcp_django.conf import get_settings
from mcp_django.protocol.jsonrpc import RequestId
from mcp_django.storage.databases import (
    after_commit,
    atomic,
    in_batches,
    is_locked,
    rows,
    seconds_from_now,
    tables,
    write_alias,
)
from mcp_django.storage.inbox import ensure_heartbeat, is_alive, worker_id
from mcp_django.storage.pubsub import publish
from mcp_django.storage.statements import (
    CompiledInsert,
    CompiledQuery,
    CompiledUpdate,
    numbered,
    padded,
    placeholder,
    placeholders,
)
from mcp_django.storage.versions import topic_of_get_streams
from mcp_django.storage.writer import LOCK_SECONDS

# As ``Stream.Kind`` and ``Stream.State`` have them; models cannot be imported before the app
# registry is ready.
POST, GET = "post", "get"
OPEN, DONE, LOST = "open", "done", "lost"

# Higher than the number of any event that a lost owner can have sent without storing it.
LOST_SEQ = 1 << 40
PAGE_SIZE = 100

NumberedEvent = tuple[int, str]


class LeaseLost(Exception):
    """The process no longer owns the stream, which was closed or considered lost."""


class UnknownStream(Exception):
    """The session does not have the stream, or no longer has it."""


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


class _StreamRows:
    """The base class of the row kinds of streams."""

    lock_seconds = LOCK_SECONDS

    def alias(self) -> str:
        """Return the alias of the database of the streams."""
        return write_alias()


def new_stream(session_pk: int, *, request_id: str) -> tables.Stream:
    """Return the stream of a response, to be stored before its first event is sent."""
    ensure_heartbeat()
    return tables.Stream(
        pk=secrets.randbits(63),
        session_id=session_pk,
        kind=POST,
        request_id=request_id,
        owner=worker_id(),
    )


class _NewStreams(_StreamRows):
    """The ``RowKind`` of new streams of responses."""

    def write(self, new: Sequence[tables.Stream], *, again: bool) -> Sequence[None]:
        """Store streams."""
        _insert_stream.insert(self.alias(), [vars(stream) for stream in new], again=again)
        return [None] * len(new)


NEW_STREAMS = _NewStreams()
_insert_stream = CompiledInsert(lambda: tables.Stream, lambda: {"created_at": Now()})


def close_streams(*streams: int) -> None:
    """Close streams of this process without a last message."""
    padded_streams = padded(streams)
    closing = _closing(len(padded_streams), get_settings().session_idle)
    closing.update(write_alias(), {**numbered(padded_streams), "owner": worker_id()})


@lru_cache(maxsize=64)
def _closing(count: int, idle: float) -> CompiledUpdate:
    def build(alias: str) -> tuple[QuerySet[tables.Stream], Mapping[str, Any]]:
        streams = tables.Stream._default_manager.using(alias)
        mine = streams.filter(pk__in=placeholders(count), owner=placeholder("owner"), state=OPEN)
        # A client may send the id of the last event as long as its session may be idle.
        return mine, _done(idle)

    return CompiledUpdate(build)


def _done(retention: float) -> Mapping[str, Any]:
    """Return the changes of a stream that ends."""
    return {"state": DONE, "expires_at": seconds_from_now(retention)}


@dataclass(frozen=True, slots=True)
class NewEvents:
    """Events of a stream of this process; ``retention`` is used if the stream ends with them."""

    number: int
    events: Sequence[NumberedEvent]
    is_final: bool
    retention: float


class _Events(_StreamRows):
    """The ``RowKind`` of events; the outcome is ``LeaseLost`` if the stream is closed."""

    def write(self, new: Sequence[NewEvents], *, again: bool) -> Sequence[Exception | None]:
        """Store events with the counters of their streams; leave out those that are stored already.

        ``again`` is not needed: a counter shows whether an earlier attempt stored the events.
        """
        outcomes: list[LeaseLost | None] = []
        events: list[dict[str, Any]] = []
        for batch in new:
            last = batch.events[-1][0]
            counting = _counting(batch.retention if batch.is_final else None)
            values = {"stream": batch.number, "owner": worker_id(), "last": last}
            if counting.update(write_alias(), values):
                outcomes.append(None)
                events += (
                    {"stream_id": batch.number, "seq": seq, "payload": payload}
                    for seq, payload in batch.events
                )
                continue
            # The first attempt may have succeeded, and only the database's answer was lost.
            mine = rows(tables.Stream).filter(pk=batch.number, owner=worker_id())
            outcomes.append(None if mine.filter(last_seq=last).exists() else LeaseLost())
        _insert_event.insert(self.alias(), events)
        return outcomes


EVENTS = _Events()
_insert_event = CompiledInsert(lambda: tables.Event)


@lru_cache(maxsize=8)
def _counting(retention: float | None) -> CompiledUpdate:
    """Return the update of a stream's counter; a retention also ends the stream."""

    def build(alias: str) -> tuple[QuerySet[tables.Stream], Mapping[str, Any]]:
        changes: dict[str, Any] = {"last_seq": placeholder("last")}
        if retention is not None:
            changes |= _done(retention)
        streams = tables.Stream._default_manager.using(alias)
        mine = streams.filter(pk=placeholder("stream"), owner=placeholder("owner"), state=OPEN)
        return mine.filter(last_seq__lt=placeholder("last")), changes

    return CompiledUpdate(build)


def read_stream(session_pk: int, number: int, *, after_seq: int) -> StreamSnapshot:
    """Return a snapshot of a stream with its events after the one that the reader has.

    Raises:
        UnknownStream: the session has no such stream.
    """
    streams = rows(tables.Stream).filter(pk=number, session=session_pk)
    # The state is read first, so that the events up to its number exist when they are read.
    row = streams.values_list("state", "last_seq", "owner", "request_id").first()
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
    streams = rows(tables.Stream).filter(session=session_pk, kind=POST, state=OPEN)
    for owner, encoded in streams.values_list("owner", "request_id"):
        answered = json.loads(encoded)
        ids = answered if isinstance(answered, list) else [answered]
        # 1 and "1" differ, and so do 1 and true.
        if any(other == request_id and type(other) is type(request_id) for other in ids):
            return owner
    return None


def find_owner(session_pk: int, number: int) -> int | None:
    """Return the process that runs the call of a stream, ``None`` if it is closed or unknown."""
    streams = rows(tables.Stream).filter(pk=number, session=session_pk, state=OPEN)
    return streams.values_list("owner", flat=True).first()


def find_stream_kind(session_pk: int, number: int) -> str | None:
    """Return the kind of a stream of a session, ``None`` if the stream does not exist."""
    streams = rows(tables.Stream).filter(pk=number, session=session_pk)
    return streams.values_list("kind", flat=True).first()


# GET streams of a session -------------------------------------------------------------------------

# A session may have several, on connections to any process. The newest whose owner is alive sends
# the messages, since a message must not be sent on several streams; the others wait until it
# closes.

# The maximum number of open GET streams of a session; one more closes the oldest.
MAX_GET_STREAMS: Final = 3
# The maximum number of sessions whose streams one query returns; it limits the parameters.
NOTIFIED_SESSIONS: Final = 500


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


@dataclass(frozen=True, slots=True)
class NewGetStream:
    """A GET stream of this process, to be the newest of its session.

    ``replaced`` is the number of the stream from which the client has reconnected.
    """

    session_pk: int
    number: int
    replaced: int | None = None


class _NewGetStreams(_StreamRows):
    """The ``RowKind`` of GET streams; the outcome is what ``read_get_stream`` returns.

    The stream that is replaced is closed. If a session has more than ``MAX_GET_STREAMS``, streams
    of dead processes are closed, and then the oldest.
    """

    def write(self, new: Sequence[NewGetStream], *, again: bool) -> Sequence[GetStreamState | None]:
        """Store GET streams, and notify the others of their sessions after the commit.

        The writer or the caller may repeat an attempt.
        """
        # The locks of the sessions' rows put concurrent streams in order.
        sessions = _seen_sessions({stream.session_pk for stream in new})
        before = {pk: session.numbers for pk, session in sessions.items()}
        live = [stream for stream in new if stream.session_pk in sessions]
        added = [sessions[stream.session_pk].add(stream) for stream in live]
        _insert_stream.insert(self.alias(), [vars(row) for row in added], again=True)
        after = {pk: session.numbers for pk, session in sessions.items()}
        numbers = {stream.number for stream in live}.union(*before.values())
        if over := numbers.difference(*after.values()):
            closed = rows(tables.Stream).filter(pk__in=over, state=OPEN)
            closed.update(**_done(get_settings().session_idle))
        notified = [
            pk for pk, session in sessions.items() if before[pk] or len(session.numbers) > 1
        ]
        if notified:
            topics = map(topic_of_get_streams, notified)
            transaction.on_commit(partial(publish, *topics), using=self.alias())
        states = [sessions.get(stream.session_pk) for stream in new]
        return [
            None if session is None else session.state_of(stream.number)
            for stream, session in zip(new, states, strict=True)
        ]


NEW_GET_STREAMS = _NewGetStreams()


def read_get_stream(session_pk: int, number: int) -> GetStreamState | None:
    """Return the state of a GET stream, ``None`` if it is closed or its session has ended.

    Marks the session as seen: an open stream keeps it from idling.
    """
    session = _seen_sessions([session_pk]).get(session_pk)
    return None if session is None else session.state_of(number)


@dataclass(slots=True)
class _LiveSession:
    """A session with its open GET streams: number and owner of each, the oldest first."""

    pk: int
    is_initialized: bool
    seen_number: int
    streams: list[tuple[int, int]] = field(default_factory=list)
    last_seq: int = 0
    uris: list[str] = field(default_factory=list)

    @property
    def numbers(self) -> set[int]:
        """The numbers of the streams."""
        return {number for number, _ in self.streams}

    def add(self, new: NewGetStream) -> tables.Stream:
        """Add a stream and leave out those that it closes; return its row."""
        self.last_seq += 1
        if new.number not in self.numbers:
            others = [stream for stream in self.streams if stream[0] != new.replaced]
            if len(others) >= MAX_GET_STREAMS:
                others = [stream for stream in others if is_alive(stream[1])]
            self.streams = [*others[-(MAX_GET_STREAMS - 1) :], (new.number, worker_id())]
        return tables.Stream(
            pk=new.number, session_id=self.pk, kind=GET, owner=worker_id(), last_seq=self.last_seq
        )

    def state_of(self, number: int) -> GetStreamState | None:
        """Return the state of a stream, ``None`` if it is not open."""
        if number not in self.numbers:
            return None
        newer = list(takewhile(lambda stream: stream[0] != number, reversed(self.streams)))
        return GetStreamState(
            is_initialized=self.is_initialized,
            uris=self.uris,
            seen_number=self.seen_number,
            is_newest=not newer,
            is_writer=not any(is_alive(owner) for _, owner in newer),
        )


def _seen_sessions(pks: Collection[int]) -> dict[int, _LiveSession]:
    """Mark sessions as seen, and return those that have not ended."""
    alias, padded_pks = write_alias(), padded([*pks])
    values = numbered(padded_pks)
    if not _seeing(len(padded_pks)).update(alias, values):
        return {}
    sessions: dict[int, _LiveSession] = {}
    for pk, is_initialized, heard, stream, owner, last_seq in _streams_of(len(padded_pks)).rows(
        alias, values
    ):
        session = sessions.setdefault(pk, _LiveSession(pk, is_initialized, heard))
        if stream is not None:
            session.streams.append((stream, owner))
            session.last_seq = last_seq
    for pk, uri in _uris_of(len(padded_pks)).rows(alias, values):
        if pk in sessions:
            sessions[pk].uris.append(uri)
    return sessions


def _live(alias: str, count: int) -> QuerySet[tables.Session]:
    sessions = tables.Session._default_manager.using(alias)
    return sessions.filter(pk__in=placeholders(count), expires_at__gt=Now())


@cache
def _seeing(count: int) -> CompiledUpdate:
    return CompiledUpdate(lambda alias: (_live(alias, count), {"seen_at": Now()}))


@cache
def _streams_of(count: int) -> CompiledQuery[Any]:
    """Return the query for sessions and their open GET streams, the oldest first."""

    def build(alias: str) -> Any:
        is_open = Q(streams__kind=GET, streams__state=OPEN)
        joined = _live(alias, count).annotate(open=FilteredRelation("streams", condition=is_open))
        columns = ("pk", "is_initialized", "heard_seq", "open__pk", "open__owner", "open__last_seq")
        return joined.order_by("open__last_seq").values_list(*columns)

    return CompiledQuery(build)


@cache
def _uris_of(count: int) -> CompiledQuery[Any]:
    """Return the query for the subscriptions of sessions, the oldest first."""
    return CompiledQuery(
        lambda alias: (
            tables.Subscription._default_manager.using(alias)
            .filter(session__pk__in=placeholders(count))
            .order_by("pk")
            .values_list("session", "uri")
        )
    )


def notify_get_streams(session_pks: Iterable[int]) -> None:
    """Notify the GET streams of sessions in every process, so that they read their rows again.

    Call it after the rows were changed, in the same transaction or later.
    """
    after_commit(partial(_notify_get_streams, list(session_pks)), using=write_alias())


def _notify_get_streams(session_pks: Collection[int]) -> None:
    # A stream that is being opened reads these rows in the transaction that stores its own row.
    for some in in_batches([*session_pks], NOTIFIED_SESSIONS):
        padded_pks = padded(some)
        session_rows = _sessions_with_streams(len(padded_pks)).rows(
            write_alias(), numbered(padded_pks)
        )
        publish(*map(topic_of_get_streams, [pk for (pk,) in session_rows]))


@cache
def _sessions_with_streams(count: int) -> CompiledQuery[Any]:
    """Return the query for the sessions that have open GET streams."""
    return CompiledQuery(
        lambda alias: (
            tables.Stream._default_manager.using(alias)
            .filter(session__pk__in=placeholders(count), kind=GET, state=OPEN)
            .order_by()
            .values_list("session")
            .distinct()
        )
    )


class _GetStreamEnds(_StreamRows):
    """The ``RowKind`` of ended GET streams of this process, with what their clients know."""

    def write(self, ends: Sequence[GetStreamEnd], *, again: bool) -> Sequence[None]:
        """Close GET streams, and notify the others of their sessions after the commit."""
        # Sessions are updated before streams, and in one order, to avoid deadlocks.
        for end in sorted(ends, key=lambda end: end.session_pk):
            if end.seen_number is not None:
                sessions = rows(tables.Session).filter(
                    pk=end.session_pk, heard_seq__lt=end.seen_number
                )
                sessions.update(heard_seq=end.seen_number)
        close_streams(*(end.number for end in ends))
        notify_get_streams({end.session_pk for end in ends})
        return [None] * len(ends)


GET_STREAM_ENDS = _GetStreamEnds()
