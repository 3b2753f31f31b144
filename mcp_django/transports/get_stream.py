"""GET streams of a session, which the revisions before 2026-07-28 have.

They carry notifications of changed lists and resources. Every event has an id with the stream's
position: the number (``storage.versions``) up to which it has reported every change. A client
that reconnects with an id gets the changes with larger numbers, so it misses nothing that was
written to its dead connection. A client that reconnects without an id is assumed to have
received what was reported up to ten seconds before its last stream ended.

A session may have several GET streams. The newest sends the notifications; the others send none
and queue what they would have sent.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from operator import itemgetter
from secrets import randbits

from django.db import Error

from mcp_django.auth.limits import share_of
from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Server
from mcp_django.conf import get_settings
from mcp_django.exceptions import Busy
from mcp_django.execution.call import Channel
from mcp_django.execution.handlers.listing import capabilities
from mcp_django.execution.handlers.subscribed_resources import SubscribedResources, Subscription
from mcp_django.execution.threads import retry_while_busy, run_in_short_thread, write_row
from mcp_django.protocol import jsonrpc, sse
from mcp_django.storage import versions
from mcp_django.storage.cache import list_delay
from mcp_django.storage.pubsub import get_hub
from mcp_django.storage.sessions import StoredSession
from mcp_django.storage.streams import (
    GET_STREAM_ENDS,
    NEW_GET_STREAMS,
    GetStreamEnd,
    GetStreamState,
    NewGetStream,
    read_get_stream,
)
from mcp_django.storage.versions import TopicKey, topic_of_get_streams
from mcp_django.transports import drain, durable_streams
from mcp_django.transports.durable_streams import EventId
from mcp_django.transports.stream_access import seconds_until_recheck
from mcp_django.transports.stream_slots import StreamSlot
from mcp_django.transports.subscriptions import (
    BUSY_SECONDS,
    RETRY_SECONDS,
    SessionSubscription,
    lists_in_doubt,
)

logger = logging.getLogger("mcp_django")

# Events written longer ago are assumed to have arrived, if the client sends no event id.
ARRIVAL_SECONDS = 10

_ending: set[asyncio.Task[None]] = set()


async def get_stream_events(
    session: StoredSession,
    slot: StreamSlot,
    *,
    server: Server,
    principal: Principal,
    channel: Channel,
    resumed: EventId | None = None,
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a GET stream until the client disconnects or the session ends.

    ``resumed`` is the id of the last event that the client received, on a GET stream of the
    session.
    """
    get_stream = _GetStream(session, slot, server, principal, channel, resumed)
    try:
        yield await get_stream.begin()
        await get_stream.catch_up()
        with drain.idle_stream(get_stream.wake) as draining:
            # `catch_up` may already have ended it.
            while not (draining.is_set() or get_stream.is_over):
                for event in await get_stream.next_events():
                    yield event
                get_stream.mark_sent()
    finally:
        get_stream.close()
        slot.release()
        # It is completed even if the waiting for it is cancelled.
        ending = asyncio.create_task(get_stream.end())
        _ending.add(ending)
        ending.add_done_callback(_ending.discard)
        await asyncio.shield(ending)


class _GetStream:
    """One GET stream: its subscribed topics, which the session may change, and its position."""

    def __init__(
        self,
        session: StoredSession,
        slot: StreamSlot,
        server: Server,
        principal: Principal,
        channel: Channel,
        resumed: EventId | None,
    ) -> None:
        self._server = server
        self._slot = slot
        self._is_over_limit = False
        self._session = session
        self._hub = get_hub()
        self._resumed = resumed
        self._pk = session.record.pk
        self._number = randbits(63)
        self._opening: asyncio.Task[GetStreamState | None] | None = None
        self._snapshot: GetStreamState | None = None

        self._position = _Position()
        self._restores = self._hub.restores
        self._waiting: dict[TopicKey, int] = {}
        """The changed topics to report, with the number of the last change of each."""
        self._held: Counter[int] = Counter()
        """The numbers of changed lists that are held back, see ``list_delay``."""
        self._woken = asyncio.Event()
        self._must_reload = self._must_refresh = False
        self._unchecked: dict[TopicKey, int] = {}
        """The changes to report whose rows are not checked yet, with their numbers."""
        self.is_over = False

        self._topic = topic_of_get_streams(self._pk)
        self._wanted: frozenset[TopicKey] = frozenset()
        self._principal = principal
        self._channel = channel
        self._subscription = self._subscribed(None)
        about_itself = [self._topic, *self._subscription.revocation_topics]
        self._about_itself = about_itself
        self._unsubscribe = self._hub.subscribe(about_itself, self._on_notification)
        self._leave_changes = self._hub.subscribe((), self._on_notification)
        loop = asyncio.get_running_loop()
        self._recheck = loop.time() + seconds_until_recheck()
        self._ends = loop.time() + self._subscription.lifetime()
        self._spoke = loop.time()

    async def begin(self) -> bytes:
        """Create the stream's row and return the stream's first bytes."""
        await self._hub.prepare(self._about_itself)
        # `end` waits for this task: a row that is never closed would silence the other streams.
        new = NewGetStream(self._pk, self._number, self._resumed and self._resumed.stream)
        self._opening = asyncio.create_task(write_row(NEW_GET_STREAMS, new))
        self._snapshot = await asyncio.shield(self._opening)
        if self._resumed is not None:
            self._position.number = self._resumed.position
        elif self._snapshot is not None:
            self._position.number = self._snapshot.seen_number
        self._position.mark_received(self._seen)
        first = self._position.event_id(self._number)
        return durable_streams.priming_event(first, self._session.revision)

    async def catch_up(self) -> None:
        """Subscribe to the session's topics and find changes that happened before."""
        # Check access here too: a revocation before the subscription is not published again.
        with self._retry_on_error(anew=True):
            await self._apply_snapshot(self._snapshot, anew=True)

    def close(self) -> None:
        """Unsubscribe from all topics."""
        self._unsubscribe()
        self._leave_changes()

    async def end(self) -> None:
        """Close the row, so that another stream of the session may send."""
        if self._opening is None:
            return
        await asyncio.wait([self._opening])
        # The last change that the client is assumed to have received, if it is newer.
        seen_number = -1 if self._snapshot is None else self._snapshot.seen_number
        received = self._position.last_received()
        if received is not None and received <= seen_number:
            received = None
        await write_row(GET_STREAM_ENDS, GetStreamEnd(self._number, self._pk, received))

    def wake(self) -> None:
        """Make ``next_events`` return."""
        self._woken.set()

    def _on_notification(self, topic: TopicKey) -> None:
        """Record a notification of the pub/sub hub; called on the event loop."""
        if topic.is_revocation:
            self._must_refresh = True
        elif topic.kind == self._topic.kind:
            self._must_reload = True
        else:
            number = self._hub.number_of(topic)
            if self._hub.restores != self._restores:
                self._restores = self._hub.restores
                self._position.is_ahead = self._position.number > self._seen
            if self._position.is_before(number):
                self._queue(topic, number)
        self._woken.set()

    def _queue(self, topic: TopicKey, number: int, *, may_hold: bool = True) -> None:
        """Queue a change to report; a list after ``list_delay``, as ``put_in_time`` does."""
        delay = list_delay() if topic.is_list and may_hold else 0
        if not delay:
            self._waiting[topic] = number
            return
        self._held[number] += 1
        asyncio.get_running_loop().call_later(delay, self._release, topic, number)

    def _release(self, topic: TopicKey, number: int) -> None:
        self._held -= Counter([number])
        self._waiting[topic] = number
        self._woken.set()

    @property
    def _seen(self) -> int:
        """The number up to which this process knows every change."""
        return self._hub.seen_number or 0

    def _subscribed(self, state: GetStreamState | None) -> SessionSubscription:
        select = partial(
            SessionSubscription, self._server, self._session, self._principal, self._channel
        )
        if state is None or not state.is_initialized:
            # Before `notifications/initialized` the client must not be notified of changes.
            return select(Subscription(kinds=frozenset(), resources=SubscribedResources(())))
        available = capabilities(self._server, can_stream=True)
        kinds = frozenset(kind for kind in ("tools", "resources", "prompts") if kind in available)
        # The resources for which the caller's limit has room, the oldest first. The others are
        # tried again at every check, since nothing notifies the session of new room.
        fitting = self._slot.hold_what_fits(state.uris)
        if len(fitting) < len(state.uris) and not self._is_over_limit:
            logger.warning(
                "The open streams of %s hold too many URIs (a limit that STREAMS_PER_PRINCIPAL "
                "raises): a GET stream leaves out %d of %d subscriptions of its session.",
                *(self._principal.key, len(state.uris) - len(fitting), len(state.uris)),
            )
        self._is_over_limit = len(fitting) < len(state.uris)
        resources = SubscribedResources(fitting, self._subscription.resources)
        return select(Subscription(kinds=kinds, resources=resources))

    async def _reload(self) -> None:
        """Reload the rows: the stream may have ended, been superseded, or have new topics.

        While the database is unavailable nothing is sent, and this is retried.
        """
        loop = asyncio.get_running_loop()
        anew = self._must_refresh or loop.time() >= self._recheck
        self._must_reload = self._must_refresh = False
        with self._retry_on_error(anew=anew):
            state = await run_in_short_thread(partial(read_get_stream, self._pk, self._number))
            await self._apply_snapshot(state, anew=anew)

    @contextmanager
    def _retry_on_error(self, *, anew: bool) -> Iterator[None]:
        """Catch database errors and schedule another attempt."""
        try:
            yield
        except Error as exc:
            logger.warning("A GET stream could not check its session (%s); retrying.", exc)
            self._must_reload, self._must_refresh = True, anew
            soon = asyncio.get_running_loop().time() + RETRY_SECONDS
            self._recheck = max(self._recheck, soon)

    async def _apply_snapshot(self, state: GetStreamState | None, *, anew: bool) -> None:
        """Apply the loaded rows; with ``anew``, authorize the caller again."""
        self._snapshot = state
        if state is None or not await self._is_authorized(state, anew=anew):
            self.is_over = True
            return
        topics = frozenset(self._subscription.topics)
        leave = self._hub.subscribe(topics, self._on_notification)
        self._leave_changes()
        self._leave_changes = leave
        await self._hub.prepare(topics)
        if new := topics - self._wanted:
            # Queue topics that changed before they were subscribed to.
            last, changed_topics = await run_in_short_thread(
                partial(versions.read_changed_topics, new, self._position.number)
            )
            self._position.is_ahead = self._position.is_ahead or self._position.number > last
            share_key = share_of(self._principal, self._channel.find_source)
            recent = await lists_in_doubt(changed_topics, share_key)
            for topic, number in changed_topics.items():
                latest = max(number, self._waiting.get(topic, 0))
                self._queue(topic, latest, may_hold=topic in recent)
            if changed_topics:
                # A change is reported only after all changes with smaller numbers are known.
                await self._hub.poll_numbered()
                self._woken.set()
        self._wanted = topics
        self._waiting = {
            topic: number for topic, number in self._waiting.items() if topic in topics
        }

    async def _is_authorized(self, state: GetStreamState, *, anew: bool) -> bool:
        """Check which resources the caller may see; with ``anew``, authorize the caller again."""
        subscription = self._subscribed(state)
        if anew:
            is_authorized = await retry_while_busy(subscription.refresh)
            self._recheck = asyncio.get_running_loop().time() + seconds_until_recheck()
            self._principal = subscription.principal
        else:
            is_authorized = True
            await retry_while_busy(subscription.authorize)
        self._subscription = subscription
        return is_authorized

    async def next_events(self) -> list[bytes]:
        """Wait for changes; return the events to send, or a keep-alive if one is due."""
        loop = asyncio.get_running_loop()
        keepalive = self._spoke + get_settings().keepalive_seconds
        patience = min(keepalive, self._recheck, self._ends) - loop.time()
        if self._must_reload:
            patience = min(patience, RETRY_SECONDS)
        if self._unchecked:
            patience = min(patience, BUSY_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(patience, 0)):
                await self._woken.wait()
        self._woken.clear()
        is_silent_for_long = loop.time() >= keepalive
        # The newer stream may have died without closing its row.
        may_write_now = (
            is_silent_for_long and self._snapshot is not None and not self._snapshot.is_newest
        )
        is_reload_due = self._must_reload or self._must_refresh or loop.time() >= self._recheck
        if is_reload_due or may_write_now:
            await self._reload()
        if loop.time() >= self._ends:
            self.is_over = True
        if self.is_over:
            return []
        self._unchecked = await self._check_rows() if self._may_send else {}
        # Meanwhile the session may have ended, or access may have been revoked.
        events = self._take_events() if self._may_send and not self._must_refresh else []
        if events or is_silent_for_long:
            self._spoke = loop.time()
        return events or [sse.KEEPALIVE_COMMENT] * is_silent_for_long

    @property
    def _may_send(self) -> bool:
        return self._snapshot is not None and self._snapshot.is_writer and not self._must_reload

    async def _check_rows(self) -> dict[TopicKey, int]:
        """Check the rows of the first changes, if a thread is free; return what is left."""
        changed = sorted(self._waiting, key=self._waiting.__getitem__)
        unchecked = self._subscription.unchecked(changed)
        is_busy = False
        if unchecked:
            try:
                await self._subscription.check_first_rows([topic.uri for topic in unchecked])
            except Busy:
                is_busy = True
        remaining = self._subscription.unchecked(self._waiting)
        if remaining and not is_busy:
            self._woken.set()
        return {topic: self._waiting[topic] for topic in remaining}

    def _take_events(self) -> list[bytes]:
        """Remove the queued changes that may be sent now; return their events in order."""
        seen = self._seen
        # An unreadable resource stays queued until it is readable or no longer subscribed to.
        covers = self._subscription.covers
        changes = [
            change for change in self._waiting.items() if change[1] <= seen and covers(change[0])
        ]
        for topic, _ in changes:
            del self._waiting[topic]
        changes.sort(key=itemgetter(1))
        following = [*(number for _, number in changes[1:]), 0]
        return [
            self._event(topic, number, is_last=number != next_number)
            for (topic, number), next_number in zip(changes, following, strict=False)
        ]

    def _event(self, topic: TopicKey, number: int, *, is_last: bool) -> bytes:
        """Return an event; the last one of a number advances the position, earlier ones do not.

        The position does not advance beyond a change that is held back, or whose row is not checked
        yet: a client that reconnects has to get this change.
        """
        is_last = is_last and number < min([*self._held, *self._unchecked.values(), math.inf])
        self._position.count_event(number, is_last=is_last)
        event_id = self._position.event_id(self._number)
        return sse.encode_event(jsonrpc.encode(self._subscription.notice(topic)), id=event_id)

    def mark_sent(self) -> None:
        """Record that all events returned by ``next_events`` have been written."""
        self._position.mark_sent(self._seen)


class _Position:
    """The number up to which a GET stream has reported every change, and what has arrived of it."""

    def __init__(self) -> None:
        self.number = 0
        self.is_ahead = False
        """Whether ``number`` exceeds the number of every change: a backup was restored."""
        self._beyond = 0
        """The number of events sent since the one that reached the position."""
        self._sent: deque[tuple[float, int]] = deque()
        """Times and positions of the last ``ARRIVAL_SECONDS``, to know what has arrived."""

    def is_before(self, number: int) -> bool:
        """Return whether a change with this number has still to be reported."""
        return number > self.number or self.is_ahead

    def count_event(self, number: int, *, is_last: bool) -> None:
        """Count the event of a change; ``is_last`` if all changes up to its number are reported."""
        if is_last and self.is_before(number):
            self.number, self._beyond, self.is_ahead = number, 0, False
        else:
            self._beyond += 1

    def event_id(self, stream: int) -> str:
        """Return the id of the event that was counted last."""
        return durable_streams.encode_event_id(stream, self.number, self._beyond)

    def mark_received(self, seen: int) -> None:
        """Record that the client has this position; not if it exceeds ``seen``, the last change."""
        if self.number <= seen:
            self._sent.append((-math.inf, self.number))

    def mark_sent(self, seen: int) -> None:
        """Record that the events up to this position have been written."""
        now = asyncio.get_running_loop().time()
        is_news = not self._sent or self._sent[-1][1] != self.number
        if is_news and self.number <= seen:
            self._sent.append((now, self.number))
        while len(self._sent) > 1 and self._sent[1][0] <= now - ARRIVAL_SECONDS:
            self._sent.popleft()

    def last_received(self) -> int | None:
        """Return the last position that the client is assumed to have received."""
        arrived = asyncio.get_running_loop().time() - ARRIVAL_SECONDS
        positions = [position for at, position in self._sent if at <= arrived]
        return positions[-1] if positions else None
