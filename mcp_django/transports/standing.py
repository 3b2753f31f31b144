"""The standing GET streams of a session: changes of lists and resources (SUB-1…SUB-5).

Every message bears an id with the stream's position: the number (``store.topics``) up to which it
has told of every change. A client that comes back with the id is told of what has a larger number,
so it misses nothing, whatever was written to its dead connection (RSM-12). One that comes without
is taken to know of what was told ten seconds before its last stream ended.

A session may have several streams; the newest writes, the others keep silent and remember what they
would have told (RSM-9).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from operator import itemgetter
from secrets import randbits
from typing import TYPE_CHECKING, Any

from django.db import Error

from mcp_django.conf import get_settings
from mcp_django.protocol import jsonrpc, shapes, sse
from mcp_django.protocol.jsonrpc import Request
from mcp_django.runtime.handlers.discover import capabilities
from mcp_django.runtime.handshake import envelope_of
from mcp_django.runtime.incoming import Incoming, Listening
from mcp_django.store import topics
from mcp_django.store.hub import hub
from mcp_django.store.sessions import StoredSession
from mcp_django.store.standing import Sight, StandingEnd, end_standing, look, open_standing
from mcp_django.store.topics import Topic, standing_of
from mcp_django.transports import drain, durable, event_ids
from mcp_django.transports.desk import asked_until_free, at_desk, insist_at_desk
from mcp_django.transports.event_ids import EventId
from mcp_django.transports.listen import Place, Subscription, until_recheck
from mcp_django.transports.together import Together

if TYPE_CHECKING:
    from mcp_django.transports.handshake import Call

logger = logging.getLogger("mcp_django")

# What was written so long ago has arrived, as far as a client does not say what it has.
ARRIVAL_SECONDS = 10
# How soon a database that was away is asked again.
RETRY_SECONDS = 1.0

_ends = Together(end_standing)
_ending: set[asyncio.Task[None]] = set()


class SessionSubscription(Subscription):
    """What the standing stream may carry; its notifications bear no subscription's id."""

    def inherit(self, older: Subscription) -> None:
        """Leave out what the older one left out, of what both were asked for."""
        self._uris -= older.left_out

    def _tagged(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        projected = shapes.project_notification(method, params, self._incoming.revision)
        return jsonrpc.notification(method, projected or None)


Admission = Callable[[SessionSubscription], Awaitable[bool]]


async def events(
    call: Call, session: StoredSession, place: Place, *, resumed: EventId | None = None
) -> AsyncGenerator[bytes, None]:
    """Notifications for as long as the client stays and the session lives.

    ``resumed`` is the last event that the client has, of a standing stream of the session.
    """
    standing = Standing(call, session, resumed)
    try:
        yield await standing.begin()
        await standing.catch_up()
        with drain.idle(standing.wake) as draining:
            # It may be over before it has waited for anything.
            while not (draining.is_set() or standing.is_over):
                for event in await standing.due():
                    yield event
                standing.note_told()
    finally:
        standing.close()
        place.give_back()
        await _see_through(standing.end())


async def _see_through(work: Coroutine[Any, Any, None]) -> None:
    """Wait for what is done even if the waiting is cancelled."""
    task = asyncio.create_task(work)
    _ending.add(task)
    task.add_done_callback(_ending.discard)
    await asyncio.shield(task)


class Standing:
    """One standing stream: what it listens to, which the session may change, and its position."""

    def __init__(self, call: Call, session: StoredSession, resumed: EventId | None) -> None:
        self._call = call
        self._session = session
        self._hub = hub()
        self._resumed = resumed
        self._pk = session.row.pk
        self._number = randbits(63)
        self._opening: asyncio.Task[Sight | None] | None = None
        self._sight: Sight | None = None

        self._position = 0
        self._beyond = 0
        """How many events were sent since the last one that bears the position."""
        self._is_ahead = False
        """Whether the position was never reached: the database was restored to an earlier state."""
        self._restores = self._hub.restores
        self._waiting: dict[Topic, int] = {}
        """What is to be told, with the number of its last change: each topic once."""
        self._told: deque[tuple[float, int]] = deque()
        """When which position was reached, those of the last ``ARRIVAL_SECONDS``."""
        self._woken = asyncio.Event()
        self._must_look = self._must_refresh = False
        self.is_over = False

        self._topic = standing_of(self._pk)
        self._wanted: frozenset[Topic] = frozenset()
        self._principal = call.principal
        self._subscription = self._subscribed(None)
        about_itself = [self._topic, *self._subscription.departures]
        self._about_itself = about_itself
        self._unsubscribe = self._hub.subscribe(about_itself, self._note)
        self._leave_changes = self._hub.subscribe((), self._note)
        loop = asyncio.get_running_loop()
        self._recheck = loop.time() + until_recheck()
        self._ends = loop.time() + self._subscription.lifetime()
        self._spoke = loop.time()

    # Beginning and end ------------------------------------------------------------------------

    async def begin(self) -> bytes:
        """Have a row from now on; returns the first bytes."""
        await self._hub.ready(self._about_itself)
        # Its end waits for it: a row that nobody closes would keep the session's others silent.
        self._opening = asyncio.create_task(insist_at_desk(self._open))
        self._sight = await asyncio.shield(self._opening)
        if self._resumed is not None:
            self._position = self._resumed.place
        elif self._sight is not None:
            self._position = self._sight.heard
        if self._position <= self._seen:
            self._told.append((-math.inf, self._position))
        first = event_ids.write(self._number, self._position, 0)
        return durable.opening(first, self._session.revision)

    def _open(self) -> Sight | None:
        replaced = self._resumed.stream if self._resumed else None
        open_standing(self._pk, self._number, replaced=replaced)
        return look(self._pk, self._number)

    async def catch_up(self) -> None:
        """Listen to what the session wants, and find out what has changed before."""
        # Who was sent away before anybody listened for it is not rung for again.
        with self._tried_again(anew=True):
            await self._take_in(self._sight, ask=SessionSubscription.begin)

    def close(self) -> None:
        """Listen no more."""
        self._unsubscribe()
        self._leave_changes()

    async def end(self) -> None:
        """Close the row, and let the other streams of the session go on."""
        if self._opening is None:
            return
        await asyncio.wait([self._opening])
        await _ends.add(StandingEnd(self._number, self._pk, self._heard()))

    def wake(self) -> None:
        """Let ``due`` return."""
        self._woken.set()

    # What it listens to -----------------------------------------------------------------------

    def _note(self, topic: Topic) -> None:
        """Take note of what the hub tells; on the loop."""
        if topic.is_of_caller:
            self._must_refresh = True
        elif topic.kind == self._topic.kind:
            self._must_look = True
        else:
            number = self._hub.number_of(topic)
            if self._hub.restores != self._restores:
                self._restores = self._hub.restores
                self._is_ahead = self._position > self._seen
            if number > self._position or self._is_ahead:
                self._waiting[topic] = number
        self._woken.set()

    @property
    def _seen(self) -> int:
        """The number up to which every change is known."""
        return self._hub.seen or 0

    def _subscribed(self, sight: Sight | None) -> SessionSubscription:
        call = self._call
        request = Request(0, "subscriptions/listen")
        incoming = Incoming(
            server=call.server,
            request=request,
            envelope=envelope_of(self._session, request),
            principal=self._principal,
            session=self._session,
        )
        if sight is None or not sight.is_initialized:
            # Nothing is said to a client that is not ready (VER-16).
            return SessionSubscription(Listening(incoming=incoming, kinds=frozenset(), uris=()))
        offered = capabilities(call.server, can_stream=True)
        kinds = frozenset(kind for kind in ("tools", "resources", "prompts") if kind in offered)
        uris = tuple(sight.uris)
        return SessionSubscription(Listening(incoming=incoming, kinds=kinds, uris=uris))

    async def _look_again(self) -> None:
        """Read the rows anew: it may be over, write no more, or be asked for something else.

        As long as the database is away nothing is told, and it is tried again.
        """
        loop = asyncio.get_running_loop()
        anew = self._must_refresh or loop.time() >= self._recheck
        self._must_look = self._must_refresh = False
        with self._tried_again(anew=anew):
            sight = await at_desk(partial(look, self._pk, self._number))
            await self._take_in(sight, ask=SessionSubscription.refresh if anew else None)

    @contextmanager
    def _tried_again(self, *, anew: bool) -> Iterator[None]:
        """Look again soon if the database is away."""
        try:
            yield
        except Error as exc:
            logger.warning("A standing stream could not look at its session (%s).", exc)
            self._must_look, self._must_refresh = True, anew
            soon = asyncio.get_running_loop().time() + RETRY_SECONDS
            self._recheck = max(self._recheck, soon)

    async def _take_in(self, sight: Sight | None, *, ask: Admission | None) -> None:
        """Take note of the rows; with ``ask`` the caller is looked at as well."""
        self._sight = sight
        if sight is None or not await self._is_admitted(sight, ask):
            self.is_over = True
            return
        wanted = frozenset(self._subscription.topics)
        leave = self._hub.subscribe(wanted, self._note)
        self._leave_changes()
        self._leave_changes = leave
        await self._hub.ready(wanted)
        if new := wanted - self._wanted:
            await self._find_changed(new)
        self._wanted = wanted
        self._waiting = {one: number for one, number in self._waiting.items() if one in wanted}

    async def _find_changed(self, new: Iterable[Topic]) -> None:
        """Let wait what changed before it was listened to."""
        last, found = await at_desk(partial(topics.changed_after, new, self._position))
        self._is_ahead = self._is_ahead or self._position > last
        for topic, number in found.items():
            self._waiting[topic] = max(number, self._waiting.get(topic, 0))
        if found:
            # Nothing is told before all that has a smaller number is known.
            await self._hub.look()
            self._woken.set()

    async def _is_admitted(self, sight: Sight, ask: Admission | None) -> bool:
        """Find out what the caller may hear of, and if asked whether it would be let in again."""
        subscription = self._subscribed(sight)
        if ask is not None:
            is_admitted = await asked_until_free(partial(ask, subscription))
            self._recheck = asyncio.get_running_loop().time() + until_recheck()
            self._principal = subscription.principal
        else:
            is_admitted = True
            subscription.inherit(self._subscription)
            await asked_until_free(partial(subscription.open, self._subscription.uris))
        self._subscription = subscription
        return is_admitted

    # What it tells ----------------------------------------------------------------------------

    async def due(self) -> list[bytes]:
        """Wait; the events that are to be sent then, or a sign of life."""
        loop = asyncio.get_running_loop()
        keepalive = self._spoke + get_settings().keepalive_seconds
        patience = min(keepalive, self._recheck, self._ends) - loop.time()
        if self._must_look:
            patience = min(patience, RETRY_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(patience, 0)):
                await self._woken.wait()
        self._woken.clear()
        is_silent_for_long = loop.time() >= keepalive
        # Whoever is newer may have died without a word.
        may_write_now = is_silent_for_long and self._sight is not None and not self._sight.is_newest
        is_sent_for = self._must_look or self._must_refresh or loop.time() >= self._recheck
        if is_sent_for or may_write_now:
            await self._look_again()
        if loop.time() >= self._ends:
            self.is_over = True
        if self.is_over:
            return []
        found = self._take() if self._may_tell else []
        if found or is_silent_for_long:
            self._spoke = loop.time()
        return found or [sse.COMMENT] * is_silent_for_long

    @property
    def _may_tell(self) -> bool:
        return self._sight is not None and self._sight.writes and not self._must_look

    def _take(self) -> list[bytes]:
        """The events of what waits, by rising numbers."""
        seen = self._seen
        # What may not be read now waits until it may, or is not asked for any more.
        may_hear_of = self._subscription.covers
        told = [one for one in self._waiting.items() if one[1] <= seen and may_hear_of(one[0])]
        for topic, _ in told:
            del self._waiting[topic]
        told.sort(key=itemgetter(1))
        following = [*(number for _, number in told[1:]), 0]
        return [
            self._event(topic, number, is_last=number != next_number)
            for (topic, number), next_number in zip(told, following, strict=False)
        ]

    def _event(self, topic: Topic, number: int, *, is_last: bool) -> bytes:
        """An event; the last one of a number bears it, those before the position before it."""
        if is_last and (number > self._position or self._is_ahead):
            self._position, self._beyond, self._is_ahead = number, 0, False
        else:
            self._beyond += 1
        event_id = event_ids.write(self._number, self._position, self._beyond)
        return sse.encode_event(jsonrpc.encode(self._subscription.notice(topic)), id=event_id)

    def note_told(self) -> None:
        """Note that everything that was taken has been written."""
        now = asyncio.get_running_loop().time()
        is_news = not self._told or self._told[-1][1] != self._position
        if is_news and self._position <= self._seen:
            self._told.append((now, self._position))
        while len(self._told) > 1 and self._told[1][0] <= now - ARRIVAL_SECONDS:
            self._told.popleft()

    def _heard(self) -> int | None:
        """The number of the last change that the client is taken to know of, if that is news."""
        arrived = asyncio.get_running_loop().time() - ARRIVAL_SECONDS
        positions = [position for at, position in self._told if at <= arrived]
        known = -1 if self._sight is None else self._sight.heard
        return positions[-1] if positions and positions[-1] > known else None
