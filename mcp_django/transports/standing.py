"""The standing GET stream of a session: changes of lists and resources (SUB-1…SUB-5).

A session has one at most; a newer one takes over. What changed while there was none is told at the
beginning: the rows know when the session was last told of changes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp_django.conf import get_settings
from mcp_django.protocol import jsonrpc, shapes, sse
from mcp_django.protocol.jsonrpc import Request
from mcp_django.runtime.handlers.discover import capabilities
from mcp_django.runtime.handshake import envelope_of
from mcp_django.runtime.incoming import Incoming, Listening
from mcp_django.store import sessions, streams, topics
from mcp_django.store.announcer import announce
from mcp_django.store.hub import hub
from mcp_django.store.sessions import StoredSession
from mcp_django.store.standing import StandingEnd, end_standing
from mcp_django.store.topics import Topic, standing_of
from mcp_django.transports import drain, durable
from mcp_django.transports.desk import at_desk
from mcp_django.transports.listen import Place, Subscription, until_recheck
from mcp_django.transports.mailbox import Mailbox
from mcp_django.transports.together import Together

if TYPE_CHECKING:
    from mcp_django.transports.handshake import Call


# A change is dated this long, at most, before others see it: a busy SQLite lets who commits wait.
UNSEEN_SECONDS = 10

_ends = Together(end_standing)


class SessionSubscription(Subscription):
    """What the standing stream may carry; its notifications bear no subscription's id."""

    def _tagged(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        projected = shapes.project_notification(method, params, self._incoming.revision)
        return jsonrpc.notification(method, projected or None)


async def events(call: Call, session: StoredSession, place: Place) -> AsyncGenerator[bytes, None]:
    """Notifications for as long as the client stays, the session lives and nobody takes over."""
    pk = session.row.pk
    mailbox = Mailbox()
    number = await at_desk(partial(_begin, pk))
    standing = Standing(call, session, number, mailbox)
    try:
        yield durable.opening(number, session.revision)
        await standing.open()
        with drain.idle(mailbox.wake) as draining:
            # It may be over before it has waited for anything.
            while not (draining.is_set() or standing.is_over):
                for message in await standing.take():
                    yield sse.encode_event(jsonrpc.encode(message)) if message else sse.COMMENT
                standing.note_told()
    finally:
        standing.close()
        place.give_back()
        await _ends.add(StandingEnd(number, pk, standing.told_at))


def _begin(pk: int) -> int:
    number = streams.open_standing(pk)
    # Whoever had the stream before finds out.
    announce(standing_of(pk))
    return number


class Standing:
    """What a standing stream listens to, which the session may change at any time."""

    def __init__(self, call: Call, session: StoredSession, number: int, mailbox: Mailbox) -> None:
        self._call = call
        self._session = session
        self._number = number
        self._mailbox = mailbox
        self._topic = standing_of(session.row.pk)
        self._is_initialized = False
        self._wanted: frozenset[Topic] = frozenset()
        self._subscription = self._subscribed(())
        self._about_itself = [self._topic, *self._subscription.departures]
        self._unsubscribe = hub().subscribe(self._about_itself, mailbox.put_once)
        self._leave_changes = hub().subscribe((), mailbox.put_once)
        loop = asyncio.get_running_loop()
        self._recheck = loop.time() + until_recheck()
        self._ends = loop.time() + self._subscription.lifetime()
        self.is_over = False
        self._opened_at = self._noticed_at = self._told_at = -math.inf

    def note_told(self) -> None:
        """Note that everything that was taken has been sent."""
        self._told_at = self._noticed_at

    @property
    def told_at(self) -> float | None:
        """The monotonic moment at which the client knew of every change, ``None`` if it never did.

        A change that was not noticed yet is told to whoever comes next, and perhaps once too often.
        """
        return None if self._told_at == -math.inf else self._told_at - UNSEEN_SECONDS

    def close(self) -> None:
        """Listen no more."""
        self._unsubscribe()
        self._leave_changes()

    def _subscribed(self, uris: tuple[str, ...]) -> SessionSubscription:
        call = self._call
        request = Request(0, "subscriptions/listen")
        incoming = Incoming(
            server=call.server,
            request=request,
            envelope=envelope_of(self._session, request),
            principal=call.principal,
            session=self._session,
        )
        if not self._is_initialized:
            # Nothing is said to a client that is not ready (VER-16).
            return SessionSubscription(Listening(incoming=incoming, kinds=frozenset(), uris=()))
        offered = capabilities(call.server, can_stream=True)
        kinds = frozenset(kind for kind in ("tools", "resources", "prompts") if kind in offered)
        return SessionSubscription(Listening(incoming=incoming, kinds=kinds, uris=uris))

    async def open(self) -> None:
        """Listen to what the session has subscribed to, and to what changed before."""
        began = asyncio.get_running_loop().time()
        await hub().ready(self._about_itself)
        await self._look_again()
        self._opened_at = began

    async def _catch_up(self, wanted: Iterable[Topic]) -> None:
        """Tell what changed before there was anybody to tell."""
        pk = self._session.row.pk
        changed = await at_desk(partial(topics.changed_since_heard, wanted, pk))
        for topic in changed:
            self._mailbox.put_once(topic)

    async def _look_again(self) -> None:
        """Read the session anew: it may have ended, been taken over, or subscribed to more."""
        pk = self._session.row.pk
        state = await at_desk(partial(self._state, pk))
        if state is None:
            self.is_over = True
            return
        self._is_initialized, uris = state
        self._subscription = self._subscribed(tuple(uris))
        await self._subscription.open()
        wanted = frozenset(self._subscription.topics)
        leave = hub().subscribe(wanted, self._mailbox.put_once)
        self._leave_changes()
        self._leave_changes = leave
        await hub().ready(wanted)
        if new := wanted - self._wanted:
            await self._catch_up(new)
        self._wanted = wanted

    def _state(self, pk: int) -> tuple[bool, list[str]] | None:
        if not streams.is_open(self._number) or not sessions.is_live(pk):
            return None
        return sessions.is_initialized(pk), sessions.subscriptions(pk)

    async def take(self) -> list[dict[str, Any] | None]:
        """The notifications that are due; ``None`` stands for a sign of life."""
        loop = asyncio.get_running_loop()
        patience = min(
            get_settings().keepalive_seconds, self._recheck - loop.time(), self._ends - loop.time()
        )
        came = await self._mailbox.wait(max(patience, 0))
        self._noticed_at = max(self._opened_at, hub().looked_at)
        found = dict.fromkeys(self._mailbox.take())
        if self._topic in found:
            await self._look_again()
        if loop.time() >= self._recheck or any(topic.is_of_caller for topic in found):
            self._recheck = loop.time() + until_recheck()
            if not await self._subscription.refresh():
                self.is_over = True
            else:
                await self._look_again()
        if loop.time() >= self._ends:
            self.is_over = True
        if self.is_over:
            return []
        due = [topic for topic in found if topic not in self._about_itself]
        told = [self._subscription.notice(one) for one in due if self._subscription.covers(one)]
        # Something may have come in the moment in which the waiting was given up.
        return [*told] if came or found else [None]
