"""The stream of ``subscriptions/listen``: changes, as long as the client stays (2026-07-28).

Between two changes it holds a task and a mailbox: no thread and no database connection.
"""

from __future__ import annotations

import asyncio
import random
import threading
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest
from django.utils import timezone

from mcp_django.auth.authentication import refresh
from mcp_django.auth.limits import ANONYMOUS, network_of
from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings
from mcp_django.core.resource import ResourceTemplate
from mcp_django.exceptions import AccessRefused, Busy, TooManyStreams
from mcp_django.protocol import envelope, jsonrpc, shapes
from mcp_django.runtime.dispatch import respond
from mcp_django.runtime.handlers.listen import may_hear_of
from mcp_django.runtime.handlers.resources import is_readable
from mcp_django.runtime.incoming import Listening
from mcp_django.runtime.policy import admit_connection
from mcp_django.runtime.pools import pool, with_request_signals
from mcp_django.store.hub import hub
from mcp_django.store.revocations import topics_of
from mcp_django.store.topics import Topic
from mcp_django.transports import drain, task_notices
from mcp_django.transports.mailbox import Mailbox
from mcp_django.transports.outgoing import SILENCE, Messages, Outgoing, as_events
from mcp_django.transports.task_notices import TaskNotices

# How long an open stream goes, at most, without making sure that its caller would be let in again.
RECHECK_SECONDS = 60
# How soon that is tried again when no thread had the time.
BUSY_SECONDS = 1
# A client that stays longer is asked to come again, so that no stream lives forever.
MAX_AGE_SECONDS = 3600


class Place:
    """One of the open streams of a caller, counted under each of the caller's keys.

    A stream gives it back when it ends; one that never began does so by being forgotten.
    """

    def __init__(self, keys: Collection[str]) -> None:
        # Once only, whichever comes first.
        self.give_back = weakref.finalize(self, _leave, keys)


# The open streams of this process by key; a forked process begins with copies that nothing closes.
_places: Counter[str] = Counter()
# Again by the same thread where the garbage collector gives a place back.
_counting = threading.RLock()


def take_place(principal: Principal, request: Callable[[], HttpRequest | None]) -> Place:
    """Count one more stream of a caller in this process.

    Raises:
        TooManyStreams: the caller has as many open as ``STREAMS_PER_PRINCIPAL`` or
            ``STREAMS_PER_USER`` allows, or all callers without credentials have as many together as
            they may.
    """
    limits = _limits_of_streams(principal, network_of(principal, request))
    with _counting:
        for key, limit in limits.items():
            if _places[key] >= limit:
                raise TooManyStreams(
                    f"You have {limit} open streams; close one first."
                    if key != ANONYMOUS
                    else f"Clients without credentials have {limit} open streams; try again later.",
                    data={"retryAfter": 1},
                )
        _places.update(limits.keys())
    return Place([*limits])


def _limits_of_streams(principal: Principal, network: str | None) -> dict[str, int]:
    settings = get_settings()
    each = settings.streams_per_principal
    if network is None:
        # The key of a caller that names no client is that of the user.
        return {principal.user_key: settings.streams_per_user or 2 * each, principal.key: each}
    everyone = {ANONYMOUS: settings.anonymous_factor * each}
    return {**everyone, f"{ANONYMOUS} at {network}": each} if network else everyone


def _leave(keys: Iterable[str]) -> None:
    with _counting:
        for key in keys:
            _places[key] -= 1
            if _places[key] <= 0:
                del _places[key]


def stream(listening: Listening, place: Place) -> AsyncGenerator[bytes, None]:
    """The messages of a subscription as events."""
    return as_events(listening.incoming, messages(listening, place))


async def messages(listening: Listening, place: Place) -> Messages:
    """The acknowledgement, then one message for each change, then the closing result.

    Raises:
        Busy: no thread became free to find out what the caller may hear of.
    """
    subscription = Subscription(listening)
    mailbox = Mailbox()
    # The hub is asked first and the acknowledgement sent second, so no change falls between the
    # two; a topic waits once, so that as many wait as were asked for (SUB-15).
    wanted = [*subscription.topics, *subscription.departures]
    unsubscribe = hub().subscribe(wanted, mailbox.put_once)
    try:
        await hub().ready(wanted)
        may_stay = await subscription.begin()
        with drain.idle(mailbox.wake) as draining:
            yield _outgoing(subscription.acknowledgement())
            if may_stay:
                async with aclosing(_told(subscription, mailbox, draining)) as told:
                    async for one in told:
                        yield one
        yield Outgoing(subscription.closing(), is_response=True)
    finally:
        unsubscribe()
        place.give_back()


async def _told(
    subscription: Subscription, mailbox: Mailbox, draining: asyncio.Event
) -> AsyncGenerator[Outgoing, None]:
    for first in await subscription.tasks_at_first():
        yield _outgoing(first)
    async with aclosing(_changes(subscription, mailbox, draining)) as changes:
        async for topics in changes:
            for topic in topics:
                notice = await subscription.told(topic)
                yield SILENCE if notice is None else _outgoing(notice)
            if not topics:
                await subscription.tasks.look_after()
                yield SILENCE


def cancellation(listening: Listening) -> bytes:
    """What a channel that subscriptions share adds to the closing result (SUB-13)."""
    return jsonrpc.encode(Subscription(listening).cancellation())


async def _changes(
    subscription: Subscription, mailbox: Mailbox, draining: asyncio.Event
) -> AsyncGenerator[list[Topic], None]:
    """Changed topics in batches; an empty batch when a keep-alive is due; the end in time."""
    loop = asyncio.get_running_loop()
    keepalive = get_settings().keepalive_seconds
    ends = loop.time() + subscription.lifetime()
    recheck = loop.time() + until_recheck()
    while not draining.is_set() and loop.time() < ends:
        patience = min(keepalive, ends - loop.time(), recheck - loop.time())
        await mailbox.wait(max(patience, 0))
        topics = dict.fromkeys(mailbox.take())
        if loop.time() >= recheck or any(topic.is_of_caller for topic in topics):
            try:
                if not await subscription.refresh():
                    return
                recheck = loop.time() + until_recheck()
            except Busy:
                recheck = loop.time() + BUSY_SECONDS
        yield [topic for topic in topics if subscription.covers(topic)]


def until_recheck() -> float:
    """Not the same for all: streams that began together should not ask together."""
    return RECHECK_SECONDS * random.uniform(0.5, 1)  # noqa: S311 - hides nothing


class Subscription:
    """What one stream may carry, for a caller as last looked at."""

    def __init__(self, listening: Listening) -> None:
        self._listening = listening
        self._incoming = listening.incoming
        self._uris = frozenset(listening.uris)
        self.tasks = TaskNotices(listening.tasks)

    @property
    def topics(self) -> list[Topic]:
        """What to listen for."""
        server = self._incoming.server.name
        return [
            *(Topic(server, kind) for kind in sorted(self._listening.kinds)),
            *(Topic(server, "resource", uri) for uri in self._listening.uris),
            *self.tasks.topics,
        ]

    @property
    def uris(self) -> Sequence[str]:
        """The resources that were asked for."""
        return self._listening.uris

    @property
    def left_out(self) -> frozenset[str]:
        """The resources that the caller asked for and may not read."""
        return frozenset(self._listening.uris) - self._uris

    @property
    def principal(self) -> Principal:
        """The caller as last looked at."""
        return self._incoming.principal

    @property
    def departures(self) -> list[Topic]:
        """What is rung when the caller is sent away."""
        principal = self._incoming.principal
        return topics_of(principal.credential, principal.user)

    def covers(self, topic: Topic) -> bool:
        """Whether the caller may still hear of a change; lists are theirs to ask for."""
        if topic.is_of_caller:
            return False
        return not topic.uri or topic.uri in self._uris or self.tasks.covers(topic)

    async def begin(self) -> bool:
        """Leave out what the caller could not read; whether the caller was not sent away already.

        To be called once departures are listened for: one before that would be heard of by nobody.

        Raises:
            Busy: no thread became free to find out.
        """
        if self.departures:
            return await self.refresh()
        await self.open()
        return True

    async def open(self, known: Collection[str] = ()) -> None:
        """Leave out what the caller could not read, of what is not known yet.

        Raises:
            Busy: no thread became free to find out.
        """
        new = frozenset(self._listening.uris) - frozenset(known)
        if self._asks_functions(new):
            readable = partial(with_request_signals, partial(self._readable, new))
            caller = self._incoming.principal.user_key
            self._uris -= new - await pool("work").run(readable, key=caller)

    def _asks_functions(self, uris: Iterable[str]) -> bool:
        """Whether the site's own functions decide about one of the resources."""
        found = map(self._incoming.server.offered.find_resource, uris)
        return any(one and isinstance(one[0], ResourceTemplate) for one in found)

    def _readable(self, uris: Iterable[str]) -> frozenset[str]:
        self._incoming.server.refresh()
        return frozenset(
            uri
            for uri in uris
            if may_hear_of(self._incoming, uri) and is_readable(self._incoming, uri)
        )

    def lifetime(self) -> float:
        """The seconds until the stream ends by itself: no credential outlives its expiry."""
        expires = self._incoming.principal.expires_at
        if expires is None:
            return MAX_AGE_SECONDS
        return max(0.0, min(MAX_AGE_SECONDS, (expires - timezone.now()).total_seconds()))

    async def refresh(self) -> bool:
        """Whether the caller would be let in again: a revoked token ends its streams (SUB-16).

        A database that cannot say keeps no stream open either.

        Raises:
            Busy: no thread became free to find out.
        """
        where = pool("work" if self._asks_functions(self._listening.uris) else "desk")
        try:
            caller = self._incoming.principal.user_key
            return await where.run(partial(with_request_signals, self._look_again), key=caller)
        except (AccessRefused, DatabaseError):
            return False

    def _look_again(self) -> bool:
        principal = refresh(self._incoming.principal)
        if principal is None:
            return False
        # Its owner may have switched the server off.
        self._incoming.server.refresh()
        admit_connection(self._incoming.server, principal)
        self._incoming = replace(self._incoming, principal=principal)
        self._uris = self._readable(self._listening.uris)
        return True

    def acknowledgement(self) -> dict[str, Any]:
        """The first message: the part of the wishes that is honored (SUB-8)."""
        kinds = sorted(self._listening.kinds)
        honored: dict[str, Any] = {f"{kind}ListChanged": True for kind in kinds}
        uris = [uri for uri in self._listening.uris if uri in self._uris]
        if uris:
            honored["resourceSubscriptions"] = uris
        if self._listening.tasks:
            honored["taskIds"] = [*self._listening.tasks]
        return self._tagged("notifications/subscriptions/acknowledged", {"notifications": honored})

    async def tasks_at_first(self) -> list[dict[str, Any]]:
        """The notifications of tasks that changed before the stream began."""
        found = await self.tasks.at_first(self._incoming)
        return [self._tagged(task_notices.METHOD, one) for one in found]

    async def told(self, topic: Topic) -> dict[str, Any] | None:
        """The notification of a change; ``None`` where there is nothing to tell."""
        if not self.tasks.covers(topic):
            return self.notice(topic)
        found = await self.tasks.of(topic, self._incoming)
        return None if found is None else self._tagged(task_notices.METHOD, found)

    def notice(self, topic: Topic) -> dict[str, Any]:
        """The notification of a change of a list or a resource."""
        if topic.uri:
            return self._tagged("notifications/resources/updated", {"uri": topic.uri})
        return self._tagged(f"notifications/{topic.kind}/list_changed", {})

    def closing(self) -> bytes:
        """The result of the request, which ends the stream gracefully (SUB-12)."""
        request_id: str | int = self._incoming.request.id
        if self._incoming.revision.string_subscription_ids:
            request_id = str(request_id)
        return respond(self._incoming, {"_meta": {envelope.SUBSCRIPTION_ID: request_id}})

    def cancellation(self) -> dict[str, Any]:
        """The server's own end of the subscription, as a notification."""
        return self._tagged("notifications/cancelled", {"requestId": self._incoming.request.id})

    def _tagged(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """A notification that carries its subscription's id, verbatim (SUB-9)."""
        tagged = {**params, "_meta": {envelope.SUBSCRIPTION_ID: self._incoming.request.id}}
        projected = shapes.project_notification(method, tagged, self._incoming.revision)
        return jsonrpc.notification(method, projected)


def _outgoing(message: dict[str, Any]) -> Outgoing:
    return Outgoing(jsonrpc.encode(message))
