"""``subscriptions/listen`` (2026-07-28): streams of change notifications.

A stream stays open until the client disconnects. Between two changes it uses an asyncio task and
a mailbox, but no thread and no database connection. It ends when its caller loses its
authorization (``stream_access``).

``SessionSubscription`` is the same for the sessions of earlier revisions, which ``get_stream`` and
``local_session`` notify.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import DatabaseError, Error

from mcp_django.auth.limits import ShareKey
from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Server
from mcp_django.conf import get_settings
from mcp_django.exceptions import AccessRefused, Busy
from mcp_django.execution.call import Call, Channel
from mcp_django.execution.handlers.subscribed_resources import Subscription
from mcp_django.execution.results import encode_response
from mcp_django.execution.threads import get_pool, run_in_short_thread
from mcp_django.protocol import envelope, jsonrpc, projection
from mcp_django.protocol.jsonrpc import Request
from mcp_django.storage import task_rows, versions
from mcp_django.storage.cache import list_delay
from mcp_django.storage.pubsub import get_hub
from mcp_django.storage.revocations import revocation_topics
from mcp_django.storage.sessions import ClientSession
from mcp_django.storage.versions import TopicKey, list_topic, resource_topic
from mcp_django.tasks import status as task_status
from mcp_django.tasks.handlers import readable_task_after_wait
from mcp_django.tenants import TenantUnavailable
from mcp_django.transports import drain
from mcp_django.transports.outgoing import (
    KEEPALIVE,
    Mailbox,
    Messages,
    Outgoing,
    encode_events,
    encode_message,
)
from mcp_django.transports.stream_access import reauthorize, seconds_left, seconds_until_recheck
from mcp_django.transports.stream_slots import StreamSlot, acquire_stream_slot

# After how many seconds a check of the caller or of rows is retried if no thread was free.
BUSY_SECONDS = 1
# When a query is retried after the database was unavailable.
RETRY_SECONDS = 1.0
# How many rows are checked at a time; then the streams of other callers have their turn.
ROWS_AT_ONCE = 50
# After this time a stream is closed and the client has to open a new one.
MAX_AGE_SECONDS = 3600

TASK_CHANGED = "notifications/tasks"


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
        for topic in await lists_in_doubt(subscription.topics, call.thread_key):
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


async def lists_in_doubt(topics: Iterable[TopicKey], caller: ShareKey) -> list[TopicKey]:
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
        principal = reauthorize(self._call.server, self._call.principal)
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
