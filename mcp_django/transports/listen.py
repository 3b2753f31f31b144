"""The stream of ``subscriptions/listen``: changes, as long as the client stays (2026-07-28).

Between two changes it holds a task and a mailbox: no thread and no database connection.
"""

from __future__ import annotations

import asyncio
import random
import weakref
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import DatabaseError
from django.utils import timezone

from mcp_django.auth.authentication import refresh
from mcp_django.auth.principal import Principal
from mcp_django.components.resource import ResourceTemplate
from mcp_django.conf import get_settings
from mcp_django.exceptions import AccessRefused, Busy, MCPError, TooManyStreams
from mcp_django.protocol import jsonrpc, meta, shapes, sse
from mcp_django.protocol.errors import error_object
from mcp_django.runtime.dispatch import respond
from mcp_django.runtime.handlers.listen import may_hear_of
from mcp_django.runtime.handlers.resources import is_readable
from mcp_django.runtime.incoming import Listening
from mcp_django.runtime.policy import admit_connection
from mcp_django.runtime.pools import pool, with_request_signals
from mcp_django.store.hub import Topic, hub
from mcp_django.transports import drain
from mcp_django.transports.mailbox import Mailbox

# How long an open stream goes, at most, without making sure that its caller would be let in again.
RECHECK_SECONDS = 60
# A client that stays longer is asked to come again, so that no stream lives forever.
MAX_AGE_SECONDS = 3600


class Place:
    """One of the open streams of a caller.

    A stream gives it back when it ends; one that never began does so by being forgotten.
    """

    def __init__(self, taken: weakref.WeakSet[Place]) -> None:
        self._taken = taken
        taken.add(self)

    def give_back(self) -> None:
        """Leave room for another stream of the caller."""
        self._taken.discard(self)


_places: dict[str, weakref.WeakSet[Place]] = defaultdict(weakref.WeakSet)


def take_place(principal: Principal) -> Place:
    """Count one more stream of a caller in this process.

    Raises:
        TooManyStreams: the caller has as many open as ``STREAMS_PER_PRINCIPAL`` allows.
    """
    limit = get_settings().streams_per_principal
    taken = _places[principal.key]
    if len(taken) >= limit:
        raise TooManyStreams(
            f"You have {limit} open streams; close one first.", data={"retryAfter": 1}
        )
    return Place(taken)


async def stream(listening: Listening, place: Place) -> AsyncGenerator[bytes, None]:
    """The acknowledgement, then one event for each change, then the closing result."""
    subscription = Subscription(listening)
    mailbox = Mailbox()
    # The hub is asked first and the acknowledgement sent second, so no change falls between the
    # two; a topic waits once, so that as many wait as were asked for (SUB-15).
    unsubscribe = hub().subscribe(subscription.topics, mailbox.put_once)
    try:
        try:
            await subscription.open()
        except Busy as exc:
            yield _event(subscription.refusal(exc))
            return
        with drain.idle(mailbox.wake) as draining:
            yield _event(subscription.acknowledgement())
            async with aclosing(_changes(subscription, mailbox, draining)) as changes:
                async for topics in changes:
                    for topic in topics:
                        yield _event(subscription.notice(topic))
                    if not topics:
                        yield sse.COMMENT
        yield sse.encode_event(subscription.closing())
    finally:
        unsubscribe()
        place.give_back()


async def _changes(
    subscription: Subscription, mailbox: Mailbox, draining: asyncio.Event
) -> AsyncGenerator[list[Topic], None]:
    """Changed topics in batches; an empty batch when a keep-alive is due; the end in time."""
    loop = asyncio.get_running_loop()
    keepalive = get_settings().keepalive_seconds
    ends = loop.time() + subscription.lifetime()
    recheck = loop.time() + _until_recheck()
    while not draining.is_set() and loop.time() < ends:
        patience = min(keepalive, ends - loop.time(), recheck - loop.time())
        await mailbox.wait(max(patience, 0))
        if loop.time() >= recheck:
            recheck = loop.time() + _until_recheck()
            if not await subscription.refresh():
                return
        topics = dict.fromkeys(mailbox.take())
        yield [topic for topic in topics if subscription.covers(topic)]


def _until_recheck() -> float:
    """Not the same for all: streams that began together should not ask together."""
    return RECHECK_SECONDS * random.uniform(0.5, 1)  # noqa: S311 - hides nothing


class Subscription:
    """What one stream may carry, for a caller as last looked at."""

    def __init__(self, listening: Listening) -> None:
        self._listening = listening
        self._incoming = listening.incoming
        self._uris = frozenset(listening.uris)

    @property
    def topics(self) -> list[Topic]:
        """What to listen for."""
        server = self._incoming.server.name
        return [
            *(Topic(server, kind) for kind in sorted(self._listening.kinds)),
            *(Topic(server, "resource", uri) for uri in self._listening.uris),
        ]

    def covers(self, topic: Topic) -> bool:
        """Whether the caller may still hear of a change; lists are theirs to ask for."""
        return not topic.uri or topic.uri in self._uris

    async def open(self) -> None:
        """Leave out what the caller could not read.

        Raises:
            Busy: no thread became free to find out.
        """
        if self._asks_functions:
            self._uris = await pool("work").run(partial(with_request_signals, self._readable))

    @property
    def _asks_functions(self) -> bool:
        """Whether the site's own functions decide about one of the resources."""
        found = map(self._incoming.server.find_resource, self._listening.uris)
        return any(one and isinstance(one[0], ResourceTemplate) for one in found)

    def _readable(self) -> frozenset[str]:
        uris = self._listening.uris
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
        """
        where = pool("work" if self._asks_functions else "desk")
        try:
            return await where.run(partial(with_request_signals, self._look_again))
        except Busy:
            # Nobody had the time to look; the next look comes soon.
            return True
        except (AccessRefused, DatabaseError):
            return False

    def _look_again(self) -> bool:
        principal = refresh(self._incoming.principal)
        if principal is None:
            return False
        admit_connection(self._incoming.server, principal)
        self._incoming = replace(self._incoming, principal=principal)
        self._uris = self._readable()
        return True

    def acknowledgement(self) -> dict[str, Any]:
        """The first message: the part of the wishes that is honored (SUB-8)."""
        kinds = sorted(self._listening.kinds)
        honored: dict[str, Any] = {f"{kind}ListChanged": True for kind in kinds}
        uris = [uri for uri in self._listening.uris if uri in self._uris]
        if uris:
            honored["resourceSubscriptions"] = uris
        return self._tagged("notifications/subscriptions/acknowledged", {"notifications": honored})

    def notice(self, topic: Topic) -> dict[str, Any]:
        """The notification of a change."""
        if topic.uri:
            return self._tagged("notifications/resources/updated", {"uri": topic.uri})
        return self._tagged(f"notifications/{topic.kind}/list_changed", {})

    def closing(self) -> bytes:
        """The result of the request, which ends the stream gracefully (SUB-12)."""
        request_id: str | int = self._incoming.request.id
        if self._incoming.revision.string_subscription_ids:
            request_id = str(request_id)
        return respond(self._incoming, {"_meta": {meta.SUBSCRIPTION_ID: request_id}})

    def refusal(self, exc: MCPError) -> dict[str, Any]:
        """The error that answers the request when the stream cannot begin."""
        error = error_object(exc, self._incoming.revision)
        return jsonrpc.error_message(self._incoming.request.id, error)

    def _tagged(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """A notification that carries its subscription's id, verbatim (SUB-9)."""
        tagged = {**params, "_meta": {meta.SUBSCRIPTION_ID: self._incoming.request.id}}
        projected = shapes.project_notification(method, tagged, self._incoming.revision)
        return jsonrpc.notification(method, projected)


def _event(message: dict[str, Any]) -> bytes:
    return sse.encode_event(jsonrpc.encode(message))
