"""Streams of change notifications: ``subscriptions/listen`` (2026-07-28) and session GET streams.

A stream stays open until the client disconnects. Between two changes it uses an asyncio task and
a mailbox, but no thread and no database connection.

A stream ends when its caller loses its authorization. This is checked when pub/sub notifies that
access was revoked (a credential was revoked, a user deactivated), at least once a minute, and when
the credential expires. ``watch_access`` does the same for streams of other kinds.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import Counter, deque
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from operator import itemgetter
from secrets import randbits
from typing import Any

from django.db import DatabaseError, Error
from django.utils import timezone

from mcp_django.auth.authentication import refresh_principal
from mcp_django.auth.limits import ShareKey, share_of
from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Server
from mcp_django.conf import get_settings
from mcp_django.exceptions import AccessRefused, Busy
from mcp_django.execution.call import Call, Channel
from mcp_django.execution.handlers.listing import capabilities
from mcp_django.execution.handlers.subscribed_resources import SubscribedResources, Subscription
from mcp_django.execution.policy import admit_caller
from mcp_django.execution.results import encode_response
from mcp_django.execution.threads import (
    get_pool,
    retry_while_busy,
    run_in_short_thread,
    write_row,
)
from mcp_django.protocol import envelope, jsonrpc, projection, sse
from mcp_django.protocol.jsonrpc import Request
from mcp_django.storage import task_rows, versions
from mcp_django.storage.cache import list_delay
from mcp_django.storage.pubsub import get_hub
from mcp_django.storage.revocations import revocation_topics
from mcp_django.storage.sessions import ClientSession, StoredSession
from mcp_django.storage.streams import (
    GET_STREAM_ENDS,
    NEW_GET_STREAMS,
    GetStreamEnd,
    GetStreamState,
    NewGetStream,
    read_get_stream,
)
from mcp_django.storage.versions import TopicKey, list_topic, resource_topic, topic_of_get_streams
from mcp_django.tasks import status as task_status
from mcp_django.tasks.handlers import readable_task_after_wait
from mcp_django.tenants import TenantUnavailable
from mcp_django.transports import drain, durable_streams
from mcp_django.transports.durable_streams import EventId
from mcp_django.transports.outgoing import (
    KEEPALIVE,
    Mailbox,
    Messages,
    Outgoing,
    encode_events,
    encode_message,
)
from mcp_django.transports.stream_slots import StreamSlot, acquire_stream_slot

logger = logging.getLogger("mcp_django")

# How often, at least, an open stream checks that its caller is still authorized.
RECHECK_SECONDS = 60
# After how many seconds this check is retried if no thread was free.
BUSY_SECONDS = 1
# How many rows are checked at a time; then the streams of other callers have their turn.
ROWS_AT_ONCE = 50
# After this time a stream is closed and the client has to open a new one.
MAX_AGE_SECONDS = 3600


def acquire_listen_slot(call: Call) -> StreamSlot:
    """Acquire a slot for the stream of an admitted ``subscriptions/listen``.

    Raises:
        TooManyStreams: the caller has reached one of the limits of its open streams.
    """
    assert isinstance(call.result, Subscription)
    return acquire_stream_slot(call.principal, call.http_request, uris=call.result.resources.uris)


def subscription_events(call: Call, slot: StreamSlot) -> AsyncGenerator[bytes, None]:
    """Return the messages of a subscription as server-sent events."""
    return encode_events(call, subscription_messages(call, slot))


async def subscription_messages(call: Call, slot: StreamSlot) -> Messages:
    """Yield the acknowledgement, then a notification for each change, then the closing result.

    Raises:
        Busy: no thread became free to check what the caller may subscribe to.
    """
    subscription = ListenSubscription(call)
    mailbox = Mailbox()
    # Subscribe before the acknowledgement is sent, so no change between the two is lost. Each topic
    # is queued at most once, so the queue is at most as long as the list of topics.
    topics = [*subscription.topics, *subscription.revocation_topics]
    unsubscribe = get_hub().subscribe(topics, partial(put_in_time, mailbox))
    try:
        await get_hub().prepare(topics)
        for topic in await _lists_in_doubt(subscription.topics, call.thread_key):
            put_in_time(mailbox, topic)
        may_stay = await subscription.begin()
        with drain.idle_stream(mailbox.wake) as draining:
            yield subscription.encode(subscription.acknowledgement())
            if may_stay:
                async with aclosing(
                    _notifications(subscription, mailbox, draining)
                ) as notifications:
                    async for notification in notifications:
                        yield notification
        yield Outgoing(subscription.closing(), is_response=True)
    finally:
        unsubscribe()
        slot.release()


def put_in_time(mailbox: Mailbox, topic: TopicKey) -> None:
    """Queue a changed topic, on the event loop.

    A changed list is queued after ``list_delay``, when no process uses the old list any longer.
    """
    delay = list_delay() if topic.is_list else 0
    if delay:
        asyncio.get_running_loop().call_later(delay, mailbox.put_once, topic)
    else:
        mailbox.put_once(topic)


async def _lists_in_doubt(topics: Iterable[TopicKey], caller: ShareKey) -> list[TopicKey]:
    """Return the lists that changed so recently that the client may still get the old ones."""
    delay, lists = list_delay(), [topic for topic in topics if topic.is_list]
    if not delay or not lists:
        return []
    recently = partial(versions.recently_changed, lists, delay)
    try:
        return await get_pool("short").run(recently, key=caller)
    except (Busy, Error):
        # One notification too many does no harm.
        return lists


def cancellation_message(call: Call) -> bytes:
    """Return the cancellation that follows the closing result on a shared channel such as stdio."""
    return jsonrpc.encode(ListenSubscription(call).cancellation())


def seconds_until_recheck() -> float:
    """Return the seconds until the next check; random, so streams check at different times."""
    return RECHECK_SECONDS * random.uniform(0.5, 1)  # noqa: S311 - not for security


async def _notifications(
    subscription: ListenSubscription, mailbox: Mailbox, draining: asyncio.Event
) -> AsyncGenerator[Outgoing, None]:
    for first in await subscription.tasks_at_first():
        yield subscription.encode(first)
    async with aclosing(_changed_topics(subscription, mailbox, draining)) as changes:
        async for topics in changes:
            for topic in topics:
                notice = await subscription.notification_for(topic)
                yield KEEPALIVE if notice is None else subscription.encode(notice)
            if not topics:
                await subscription.tasks.close_lost()
                yield KEEPALIVE


async def _changed_topics(
    subscription: ListenSubscription, mailbox: Mailbox, draining: asyncio.Event
) -> AsyncGenerator[list[TopicKey], None]:
    """Yield changed topics in batches, empty for a keep-alive, until the stream has to end."""
    loop = asyncio.get_running_loop()
    keepalive = get_settings().keepalive_seconds
    ends = loop.time() + subscription.lifetime()
    recheck = loop.time() + seconds_until_recheck()
    pending: list[TopicKey] = []
    retry = math.inf
    while not draining.is_set() and loop.time() < ends:
        patience = min(keepalive, ends - loop.time(), recheck - loop.time(), retry - loop.time())
        await mailbox.wait(max(patience, 0))
        topics = dict.fromkeys([*pending, *mailbox.take()])
        if loop.time() >= recheck or any(topic.is_revocation for topic in topics):
            try:
                if not await subscription.refresh():
                    return
                recheck = loop.time() + seconds_until_recheck()
            except Busy:
                recheck = loop.time() + BUSY_SECONDS
        pending, retry = subscription.unchecked(topics), math.inf
        covered = [topic for topic in topics if subscription.covers(topic)]
        if covered or not pending:
            yield covered
        if pending:
            try:
                await subscription.check_first_rows([topic.uri for topic in pending])
            except Busy:
                retry = loop.time() + BUSY_SECONDS
                yield []
                continue
            arrived = mailbox.take()
            if not any(topic.is_revocation for topic in arrived):
                # Yield them now, since the next check of the caller discards the checked rows.
                if covered := [topic for topic in pending if subscription.covers(topic)]:
                    yield covered
                pending = subscription.unchecked(pending)
            pending, retry = [*pending, *arrived], loop.time()


class ListenSubscription:
    """The topics that one stream may carry, for the caller as last authorized."""

    def __init__(self, call: Call) -> None:
        assert isinstance(call.result, Subscription)
        self._listening = call.result
        self._call = call
        self.resources = call.result.resources
        self.tasks = _TaskNotices(self._listening.tasks)

    @property
    def topics(self) -> list[TopicKey]:
        """The topics to subscribe to."""
        server = self._call.server.name
        return [
            *(list_topic(server, kind) for kind in sorted(self._listening.kinds)),
            *(resource_topic(server, uri) for uri in self.resources.uris),
            *self.tasks.topics,
        ]

    @property
    def principal(self) -> Principal:
        """The caller as last authorized."""
        return self._call.principal

    @property
    def revocation_topics(self) -> list[TopicKey]:
        """The topics that are notified when the caller's access is revoked."""
        principal = self._call.principal
        return revocation_topics(principal.credential, principal.user)

    def covers(self, topic: TopicKey) -> bool:
        """Return whether the caller may be notified of a change; lists are not restricted."""
        if topic.kind == "resource":
            return self.resources.covers(topic.uri)
        return not topic.uri or self.tasks.covers(topic)

    def unchecked(self, topics: Iterable[TopicKey]) -> list[TopicKey]:
        """Return the changed resources for which ``check_rows`` is needed before ``covers``."""
        by_uri = {topic.uri: topic for topic in topics if topic.kind == "resource"}
        return [by_uri[uri] for uri in self.resources.unchecked(by_uri)]

    async def begin(self) -> bool:
        """Leave out unreadable resources; return whether the caller is still authorized.

        Call it after subscribing to ``revocation_topics``, so that no revocation is missed.

        Raises:
            Busy: no thread became free for the check.
        """
        if self.revocation_topics:
            if not await self.refresh():
                return False
        elif self.resources.uris:
            check = partial(self.resources.authorize, self._call)
            await get_pool("short").run(check, key=self._call.thread_key)
        await self.check_rows(self.resources.uris)
        return True

    async def check_rows(self, uris: Collection[str]) -> None:
        """Check which of these resources the caller may read now, unless that is known.

        Raises:
            Busy: no thread became free for the check.
        """
        while unchecked := self.resources.unchecked(uris):
            await self.check_first_rows(unchecked)

    async def check_first_rows(self, unchecked: Sequence[str]) -> None:
        """Check which of the first of these resources the caller may read now.

        The functions of their templates run, in threads that streams share: the streams of one
        caller use at most half of them, and take turns with those of others. A turn is at most
        ``ROWS_AT_ONCE`` rows, and fewer if these take longer than a second.

        Raises:
            Busy: no thread became free for the check.
        """
        check = partial(self.resources.check_rows, self._call, unchecked[:ROWS_AT_ONCE])
        await get_pool("stream").run(check, key=self._call.thread_key)

    def lifetime(self) -> float:
        """Return the seconds until the stream ends: its maximum age, or the credential's expiry."""
        remaining = seconds_left(self._call.principal)
        return MAX_AGE_SECONDS if remaining is None else min(MAX_AGE_SECONDS, remaining)

    async def refresh(self) -> bool:
        """Authorize the caller again; return whether the stream may stay open.

        It may not if the token was revoked, the tenant was deleted, or the database is unavailable.
        Whether the caller may read a row is checked again before the row is next reported.

        Raises:
            Busy: no thread became free for the check.
        """
        self.resources.forget_rows()
        caller = self._call.thread_key
        try:
            return await get_pool("short").run(self._reauthorize, key=caller)
        except (AccessRefused, DatabaseError, TenantUnavailable):
            return False

    def _reauthorize(self) -> bool:
        principal = _reauthorize(self._call.server, self._call.principal)
        if principal is None:
            return False
        self._call = replace(self._call, principal=principal)
        self.resources.authorize(self._call)
        return True

    def acknowledgement(self) -> dict[str, Any]:
        """Return the acknowledgement, which names the part of the request that is honored."""
        kinds = sorted(self._listening.kinds)
        honored: dict[str, Any] = {f"{kind}ListChanged": True for kind in kinds}
        uris = [*filter(self.resources.covers, self.resources.uris)]
        if uris:
            honored["resourceSubscriptions"] = [self.resources.spellings[uri] for uri in uris]
        if self._listening.tasks:
            honored["taskIds"] = [*self._listening.tasks]
        return self._tagged("notifications/subscriptions/acknowledged", {"notifications": honored})

    async def tasks_at_first(self) -> list[dict[str, Any]]:
        """Return notifications for tasks that changed before the stream started."""
        tasks = await self.tasks.at_first(self._call)
        return [self._tagged(TASK_CHANGED, task) for task in tasks]

    async def notification_for(self, topic: TopicKey) -> dict[str, Any] | None:
        """Return the notification for a changed topic; ``None`` if the task is not readable."""
        if not self.tasks.covers(topic):
            return self.notice(topic)
        task = await self.tasks.of(topic, self._call)
        return None if task is None else self._tagged(TASK_CHANGED, task)

    def notice(self, topic: TopicKey) -> dict[str, Any]:
        """Return the notification for a changed list or resource."""
        if topic.uri:
            uri = self.resources.spellings.get(topic.uri, topic.uri)
            return self._tagged("notifications/resources/updated", {"uri": uri})
        return self._tagged(f"notifications/{topic.kind}/list_changed", {})

    def encode(self, message: dict[str, Any]) -> Outgoing:
        """Return a notification for the stream; one that is too large for it is left out."""
        return encode_message(self._call, message)

    def closing(self) -> bytes:
        """Return the result of the request, which ends the stream gracefully."""
        request_id: str | int = self._call.request.id
        if self._call.revision.string_subscription_ids:
            request_id = str(request_id)
        return encode_response(self._call, {"_meta": {envelope.SUBSCRIPTION_ID: request_id}})

    def cancellation(self) -> dict[str, Any]:
        """Return the notification by which the server cancels the subscription."""
        return self._tagged("notifications/cancelled", {"requestId": self._call.request.id})

    def _tagged(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return a notification with the subscription's id, which is the unchanged request id."""
        tagged = {**params, "_meta": {envelope.SUBSCRIPTION_ID: self._call.request.id}}
        projected = projection.project_notification(method, tagged, self._call.revision)
        return jsonrpc.build_notification(method, projected)


def _reauthorize(server: Server, principal: Principal) -> Principal | None:
    """Authorize the caller again; return ``None`` if the credential has become invalid.

    Raises:
        AccessRefused: the caller may no longer use the server.
    """
    current = refresh_principal(principal)
    return None if current is None else admit_caller(server, lambda: current)


# Changes of tasks ---------------------------------------------------------------------------------

TASK_CHANGED = "notifications/tasks"


class _TaskNotices:
    """Notifications of one stream about the requested tasks, each with the task's full state."""

    def __init__(self, task_ids: Sequence[str]) -> None:
        self._by_topic: Mapping[TopicKey, str] = {
            task_rows.task_topic(task_id): task_id for task_id in task_ids
        }

    @property
    def topics(self) -> list[TopicKey]:
        """The topics to subscribe to."""
        return [*self._by_topic]

    def covers(self, topic: TopicKey) -> bool:
        """Return whether a topic is one of the requested tasks."""
        return topic in self._by_topic

    async def at_first(self, call: Call) -> list[dict[str, Any]]:
        """Return the tasks that finished or needed input before the stream started."""
        tasks = [await self.of(topic, call) for topic in self._by_topic]
        return [task for task in tasks if task is not None and task["status"] != task_rows.WORKING]

    async def of(self, topic: TopicKey, call: Call) -> dict[str, Any] | None:
        """Return a task as ``tasks/get`` does; ``None`` if it does not exist or is unreadable."""
        task_id = self._by_topic[topic]

        def describe() -> dict[str, Any] | None:
            row = readable_task_after_wait(call, task_id)
            return None if row is None else task_status.task_details(row)

        return await run_in_short_thread(describe)

    async def close_lost(self) -> None:
        """Close tasks whose worker is lost, which is published like any change."""
        if self._by_topic:
            await run_in_short_thread(partial(task_rows.close_expired, [*self._by_topic.values()]))


# GET streams of a session -------------------------------------------------------------------------

# They carry notifications of changed lists and resources. Every event has an id with the stream's
# position: the number (``storage.versions``) up to which it has reported every change. A client
# that reconnects with an id gets the changes with larger numbers, so it misses nothing that was
# written to its dead connection. A client that reconnects without an id is assumed to have
# received what was reported up to ten seconds before its last stream ended.
#
# A session may have several GET streams. The newest sends the notifications; the others send none
# and queue what they would have sent.

# Events written longer ago are assumed to have arrived, if the client sends no event id.
ARRIVAL_SECONDS = 10
# When a query is retried after the database was unavailable.
RETRY_SECONDS = 1.0

_ending: set[asyncio.Task[None]] = set()


class SessionSubscription(ListenSubscription):
    """The topics that a session may be notified of; its notifications have no subscription id.

    Nothing is acknowledged, so rows are checked only when they have changed.
    """

    def __init__(
        self,
        server: Server,
        session: ClientSession,
        principal: Principal,
        channel: Channel,
        selected: Subscription,
    ) -> None:
        # What a client of a later revision would send.
        request = Request(0, "subscriptions/listen")
        call = Call(
            server=server,
            request=request,
            envelope=session.envelope_of(request),
            principal=principal,
            channel=channel,
            session=session,
        )
        call.result = selected
        super().__init__(call)

    async def authorize(self, *, anew: bool = False) -> None:
        """Check the permissions for the resources, if a resource is new or the catalog changed.

        With ``anew``, check them in any case.

        Raises:
            Busy: no thread became free for the check.
        """
        if anew or self.resources.needs_authorization(self._call.server.catalog):
            check = partial(self.resources.authorize, self._call)
            await get_pool("short").run(check, key=self._call.thread_key)

    def _tagged(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        projected = projection.project_notification(method, params, self._call.revision)
        return jsonrpc.build_notification(method, projected or None)


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

        self._position = 0
        self._beyond = 0
        """The number of events sent since the one that reached the position."""
        self._is_ahead = False
        """Whether the position exceeds the number of every change: a backup was restored."""
        self._restores = self._hub.restores
        self._waiting: dict[TopicKey, int] = {}
        """The changed topics to report, with the number of the last change of each."""
        self._held: Counter[int] = Counter()
        """The numbers of changed lists that are held back, see ``list_delay``."""
        self._sent_positions: deque[tuple[float, int]] = deque()
        """Times and positions of the last ``ARRIVAL_SECONDS``, to know what has arrived."""
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

    # Start and end --------------------------------------------------------------------------------

    async def begin(self) -> bytes:
        """Create the stream's row and return the stream's first bytes."""
        await self._hub.prepare(self._about_itself)
        # `end` waits for this task: a row that is never closed would silence the other streams.
        new = NewGetStream(self._pk, self._number, self._resumed and self._resumed.stream)
        self._opening = asyncio.create_task(write_row(NEW_GET_STREAMS, new))
        self._snapshot = await asyncio.shield(self._opening)
        if self._resumed is not None:
            self._position = self._resumed.position
        elif self._snapshot is not None:
            self._position = self._snapshot.seen_number
        if self._position <= self._seen:
            self._sent_positions.append((-math.inf, self._position))
        first = durable_streams.encode_event_id(self._number, self._position, 0)
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
        arrived = asyncio.get_running_loop().time() - ARRIVAL_SECONDS
        positions = [position for at, position in self._sent_positions if at <= arrived]
        seen_number = -1 if self._snapshot is None else self._snapshot.seen_number
        received = positions[-1] if positions and positions[-1] > seen_number else None
        await write_row(GET_STREAM_ENDS, GetStreamEnd(self._number, self._pk, received))

    def wake(self) -> None:
        """Make ``next_events`` return."""
        self._woken.set()

    # Subscribing ----------------------------------------------------------------------------------

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
                self._is_ahead = self._position > self._seen
            if number > self._position or self._is_ahead:
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
                partial(versions.read_changed_topics, new, self._position)
            )
            self._is_ahead = self._is_ahead or self._position > last
            share_key = share_of(self._principal, self._channel.find_source)
            recent = await _lists_in_doubt(changed_topics, share_key)
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

    # Sending --------------------------------------------------------------------------------------

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
        if is_last and (number > self._position or self._is_ahead):
            self._position, self._beyond, self._is_ahead = number, 0, False
        else:
            self._beyond += 1
        event_id = durable_streams.encode_event_id(self._number, self._position, self._beyond)
        return sse.encode_event(jsonrpc.encode(self._subscription.notice(topic)), id=event_id)

    def mark_sent(self) -> None:
        """Record that all events returned by ``next_events`` have been written."""
        now = asyncio.get_running_loop().time()
        is_news = not self._sent_positions or self._sent_positions[-1][1] != self._position
        if is_news and self._position <= self._seen:
            self._sent_positions.append((now, self._position))
        while len(self._sent_positions) > 1 and self._sent_positions[1][0] <= now - ARRIVAL_SECONDS:
            self._sent_positions.popleft()


# Checking the callers of other streams ------------------------------------------------------------

# Calls shorter than this are not watched: they end before a revocation would matter.
SHORT_SECONDS = 5


def seconds_left(principal: Principal) -> float | None:
    """Return the seconds until the credential expires, ``None`` if it does not."""
    if principal.expires_at is None:
        return None
    return max(0.0, (principal.expires_at - timezone.now()).total_seconds())


@contextmanager
def watch_access(
    server: Server,
    principal: Principal,
    end: Callable[[], object],
    *,
    after: float = 0,
    ends_at_expiry: bool = True,
) -> Iterator[None]:
    """Call ``end`` once on the running loop when the caller loses its authorization.

    It is for streams of calls and tasks; streams of changes check the caller themselves.

    The first check is made ``after`` this many seconds. Without ``ends_at_expiry`` the credential
    may expire: a call that was authorized in time is answered, unless the caller's access is
    revoked.
    """
    if not principal.backend and principal.expires_at is None:
        # The process itself authenticated this caller (stdio, the in-memory transport).
        yield
        return
    watcher = _AccessWatcher(server, principal, ends_at_expiry=ends_at_expiry)
    task = asyncio.get_running_loop().create_task(watcher.run(end, after=after))
    try:
        yield
    finally:
        task.cancel()


class _AccessWatcher:
    def __init__(self, server: Server, principal: Principal, *, ends_at_expiry: bool) -> None:
        self._server = server
        self._principal = principal
        self._ends_at_expiry = ends_at_expiry
        self._notified = asyncio.Event()
        self._expires = math.inf

    async def run(self, end: Callable[[], object], *, after: float) -> None:
        """Wait until the caller loses its authorization, then call ``end``."""
        remaining = seconds_left(self._principal)
        if remaining is not None:
            self._expires = asyncio.get_running_loop().time() + remaining
        await asyncio.sleep(after)
        topics = revocation_topics(self._principal.credential, self._principal.user)
        leave = get_hub().subscribe(topics, lambda _: self._notified.set())
        try:
            await get_hub().prepare(topics)
            while await self._may_stay():
                await self._wait()
        finally:
            leave()
        end()

    async def _wait(self) -> None:
        remaining = self._expires - asyncio.get_running_loop().time()
        patience = seconds_until_recheck()
        if self._ends_at_expiry or remaining > 0:
            patience = min(patience, max(remaining, 0))
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._notified.wait()

    async def _may_stay(self) -> bool:
        """Return whether the stream may stay open; it may not if the database is unavailable."""
        was_notified = self._notified.is_set()
        self._notified.clear()
        if self._expires <= asyncio.get_running_loop().time():
            # An expired credential would be rejected, which does not mean that access was revoked.
            if self._ends_at_expiry:
                return False
            if not was_notified:
                return True
        try:
            return await run_in_short_thread(
                lambda: _reauthorize(self._server, self._principal) is not None
            )
        except (AccessRefused, DatabaseError):
            return False
        except Exception:  # e.g. from the site's own permission or backend
            logger.exception("Authorizing the caller of a stream failed; the stream ends.")
            return False
