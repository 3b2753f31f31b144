"""Publish and subscribe to changes, in this process and between processes.

There is one ``Hub`` for each event loop. It carries topics, never payloads: a subscriber that is
notified reads the rows itself. Notifications come from the channel layer and from polls of the
rows, since a message of the layer may get lost. While there are subscribers, one supervisor task
listens to the channel layer, polls, deletes expired rows, and writes the heartbeat of this process
as a worker.

A poll reads the numbered changes of all topics since the previous one, and notifies the subscribers
in the order of the numbers. When the last subscriber has left, the hub forgets that number.

A change is first counted in the database, so that it cannot be missed, and then published.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from functools import cache, partial
from typing import Any, TypeVar

from asgiref.sync import async_to_sync
from channels.layers import InMemoryChannelLayer, get_channel_layer
from django.db import Error

from mcp_django.conf import get_settings
from mcp_django.storage import cleanup, databases, inbox, versions
from mcp_django.storage.databases import (
    in_batches,
    is_in_transaction,
    is_on_loop,
    retry_on_conflict,
    run_in_db_thread,
)
from mcp_django.storage.inbox import worker_id
from mcp_django.storage.versions import TAGS, TopicKey

logger = logging.getLogger("mcp_django")

# The pause before a retry after an error.
BACKOFF_SECONDS = 1
# How often an outage of the channel layer is logged.
LOG_SECONDS = 60

# Between processes: the channel layer -------------------------------------------------------------

# Carries the names of topics, never payloads. Each process has one channel, and all are in one
# group. A lost notification costs latency, never data. Without a layer, or with the in-memory one,
# processes find changes by polling.

GROUP = "mcp_django.bell"
MESSAGE_TYPE = "mcp_django.ring"
# A layer drops members from a group after some time; a process joins again long before.
REJOIN_SECONDS = 60
STOP_ATTEMPTS = 3

_sending: set[asyncio.Task[None]] = set()


def shared_layer() -> Any:
    """Return the channel layer that reaches other processes, ``None`` if there is none."""
    layer = get_channel_layer(get_settings().channel_layer)
    return None if layer is None or isinstance(layer, InMemoryChannelLayer) else layer


def poll_seconds() -> float:
    """Return the interval at which a process polls."""
    settings = get_settings()
    if settings.poll_seconds is not None:
        return settings.poll_seconds
    return 0.5 if shared_layer() is None else 5.0


def send_to_layer(topics: Iterable[TopicKey], loop: asyncio.AbstractEventLoop | None) -> None:
    """Publish topics to all other processes.

    ``loop`` is a running event loop of this process, or ``None``.
    """
    layer = shared_layer()
    if layer is None:
        return
    message = {
        "type": MESSAGE_TYPE,
        "from": worker_id(),
        "topics": [[topic.server, topic.kind, topic.uri, topic.tenant] for topic in topics],
    }
    if is_on_loop():
        _spawn_send(layer, message)
    elif loop is not None:
        loop.call_soon_threadsafe(_spawn_send, layer, message)
    else:
        async_to_sync(_send_message)(layer, message)


def _spawn_send(layer: Any, message: dict[str, Any]) -> None:
    task = asyncio.get_running_loop().create_task(_send_message(layer, message))
    _sending.add(task)
    task.add_done_callback(_sending.discard)


async def _send_message(layer: Any, message: dict[str, Any]) -> None:
    try:
        await layer.group_send(GROUP, message)
    except Exception:
        # Subscribers find the change by polling the rows.
        logger.warning("The channel layer could not send a notification.", exc_info=True)


class _Outage:
    """Logs an outage of the channel layer once a minute; it causes an error every second."""

    def __init__(self) -> None:
        self._logged_at: float | None = None

    def log(self, exc: Exception) -> None:
        """Log an exception, unless one was logged a moment ago."""
        now = time.monotonic()
        if self._logged_at is None or now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            logger.warning("The channel layer could not receive.", exc_info=exc)


async def receive_topics() -> AsyncGenerator[list[TopicKey], None]:
    """Yield the topics that other processes publish."""
    layer = shared_layer()
    channel = None
    receiving: asyncio.Future[Any] | None = None
    loop = asyncio.get_running_loop()
    outage = _Outage()
    try:
        joined = 0.0
        while not _is_cancelled():
            try:
                if channel is None:
                    channel = await layer.new_channel("mcp_django")
                if loop.time() - joined >= REJOIN_SECONDS or not joined:
                    await layer.group_add(GROUP, channel)
                    joined = loop.time()
                if receiving is None:
                    receiving = asyncio.ensure_future(layer.receive(channel))
                # No timeout around it: cancelling ``receive`` would close the channel.
                await asyncio.wait([receiving], timeout=REJOIN_SECONDS)
                if not receiving.done():
                    continue
                received, receiving = receiving, None
                message = received.result()
            except Exception as exc:  # noqa: BLE001 - it is logged
                # The Redis client stopped waiting because no message came for too long: its timeout
                # may be as short as the layer's own. Leaving the group would lose notifications.
                if type(exc).__name__ == "TimeoutError":
                    continue
                outage.log(exc)
                await _cancel_receive(receiving)
                channel, receiving, joined = None, None, 0.0
                await asyncio.sleep(BACKOFF_SECONDS)
                continue
            if message.get("from") != worker_id():
                yield [TopicKey(*names) for names in message["topics"]]
    finally:
        await _cancel_receive(receiving)
        if channel is not None:
            await _leave_group(layer, channel)


async def _cancel_receive(receiving: asyncio.Future[Any] | None) -> None:
    """Cancel a pending ``receive``, which may swallow the first cancellation."""
    if receiving is None:
        return
    for _ in range(STOP_ATTEMPTS):
        receiving.cancel()
        await asyncio.wait([receiving], timeout=BACKOFF_SECONDS)
        if receiving.done():
            if not receiving.cancelled():
                receiving.exception()  # retrieved, so that asyncio does not log it
            return


def _is_cancelled() -> bool:
    """Return whether this task was cancelled, even if the code it awaited swallowed that.

    ``asyncio.wait_for`` of Python 3.11 does so, and Redis clients use it: without this check the
    process would keep listening after the last subscriber has left.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _leave_group(layer: Any, channel: str) -> None:
    try:
        await layer.group_discard(GROUP, channel)
    except Exception:
        logger.debug("The channel layer was closed already.", exc_info=True)


# Changes of one topic within this time cause one notification.
DEBOUNCE_SECONDS = 0.05

Listener = Callable[[TopicKey], None]
T = TypeVar("T")


class Hub:
    """Notifies the listeners of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._listeners: dict[TopicKey, set[Listener]] = {}
        self._numbered: dict[str, TopicKey] = {}
        """The numbered topics that have listeners, by the digests of their rows."""
        self._unnumbered: dict[TopicKey, None] = {}
        """The other topics, of which a stream has a few; each poll iterates over these only."""
        self._kinds: Counter[str] = Counter()
        """How many topics of each kind have listeners."""
        self._versions: dict[TopicKey, int] = {}
        """The last seen version of each topic, or its number if it is numbered."""
        self._preparing: Counter[TopicKey] = Counter()
        """Topics in running ``prepare`` calls; not notified while their version is unknown."""
        self._poll_lock = asyncio.Lock()
        self._poll_count = 0
        self._did_poll_succeed = False
        """How many polls there were, and whether the last one could read the rows."""
        self._notified: set[TopicKey] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._supervisor: asyncio.Task[None] | None = None
        self._is_database_down = False
        self._revoked_version = -1
        """The version of ``REVOKED`` when the topics of callers were last compared."""
        self.seen_number: int | None = None
        """The number of the last change that was notified, ``None`` before the first poll."""
        self.restores = 0
        """How often the database turned out to have been restored to an earlier state."""

    @property
    def is_listening(self) -> bool:
        """Whether there are listeners."""
        return bool(self._listeners)

    def subscribe(self, topics: Iterable[TopicKey], listener: Listener) -> Callable[[], None]:
        """Call ``listener`` on the loop when a topic changes; return a function to unsubscribe."""
        subscribed = tuple(topics)
        # One listener may subscribe twice; unsubscribing once must keep the other subscription.
        listener = partial(listener)
        for topic in subscribed:
            if topic not in self._listeners:
                self._listeners[topic] = set()
                self._kinds[topic.kind] += 1
                if topic.is_numbered:
                    self._numbered[topic.digest] = topic
                else:
                    self._unnumbered[topic] = None
            self._listeners[topic].add(listener)
        if subscribed and self._supervisor is None:
            self._supervisor = self._loop.create_task(self._supervise())

        def unsubscribe() -> None:
            for topic in subscribed:
                self._unsubscribe(topic, listener)

        return unsubscribe

    def _unsubscribe(self, topic: TopicKey, listener: Listener) -> None:
        listeners = self._listeners.get(topic, set())
        listeners.discard(listener)
        if not listeners and self._listeners.pop(topic, None) is not None:
            self._versions.pop(topic, None)
            self._kinds[topic.kind] -= 1
            if topic.is_numbered:
                del self._numbered[topic.digest]
            else:
                del self._unnumbered[topic]
        if not self._listeners and self._supervisor is not None:
            self._supervisor.cancel()
            self._supervisor = None
            self.seen_number = None

    async def prepare(self, topics: Iterable[TopicKey]) -> None:
        """Read the current versions of topics, so that every later change is noticed."""
        unknown = [topic for topic in topics if topic.has_version and topic not in self._versions]
        if numbered := [topic for topic in unknown if topic.is_numbered]:
            # Earlier changes are not notified.
            self._preparing.update(numbered)
            try:
                await self.poll_numbered()
            finally:
                self._preparing.subtract(numbered)
                self._preparing += Counter()
            # From now on changes are notified. If this poll failed, the first one that succeeds
            # notifies of the topic, which is at most one notification too many.
            for topic in numbered:
                self._versions.setdefault(topic, 0)
        if versioned := [topic for topic in unknown if not topic.is_numbered]:
            versions_by_topic = await self._query(partial(versions.read_versions, versioned))
            if versions_by_topic is None:
                # The first poll that succeeds notifies, which is at most one notification too many.
                return
            for topic in versioned:
                self._versions.setdefault(topic, versions_by_topic.get(topic, 0))

    def number_of(self, topic: TopicKey) -> int:
        """Return the number of the last notified change of a topic, 0 if there is none."""
        return self._versions.get(topic, 0)

    def notify(self, topic: TopicKey) -> None:
        """Notify the listeners of a topic soon; for any thread."""
        try:
            self._loop.call_soon_threadsafe(self.handle_notification, topic)
        except RuntimeError:
            # The loop was closed in the meantime, so it no longer has listeners.
            logger.debug("The event loop of a pub/sub hub is closed.")

    def handle_notification(self, topic: TopicKey) -> None:
        """Handle a notification of a topic; on the loop."""
        if topic.kind == TAGS.kind:
            self._deliver(topic, self._listeners.get(TAGS, ()))
            return
        if topic not in self._listeners:
            return
        if not topic.has_version or topic.is_revocation:
            # Without delay, since access may be revoked; the next poll may notify once more.
            self._deliver(topic)
            return
        if not self._notified:
            self._loop.call_later(DEBOUNCE_SECONDS, self._start_poll)
        self._notified.add(topic)

    def _start_poll(self) -> None:
        notified = {topic for topic in self._notified if topic in self._listeners}
        self._notified = set()
        if not notified:
            # The loop may be about to close, which would destroy a task.
            return
        task = self._loop.create_task(self._poll_notified(notified))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _poll_notified(self, notified: set[TopicKey]) -> None:
        numbered = any(topic.is_numbered for topic in notified)
        versioned = [topic for topic in notified if not topic.is_numbered]
        is_seen = not numbered or await self.poll_numbered()
        if not is_seen or not await self._compare_versions(versioned):
            # The rows cannot be read, so deliver the notification without comparing versions.
            for topic in notified:
                self._deliver(topic)

    async def poll_numbered(self) -> bool:
        """Notify of every numbered change up to now; return whether the rows could be read.

        Callers that come during a poll share the next one.
        """
        needed_count = self._poll_count + 1 + self._poll_lock.locked()
        async with self._poll_lock:
            if self._poll_count < needed_count:
                self._did_poll_succeed = await self._poll_numbered()
                self._poll_count += 1
            return self._did_poll_succeed

    async def _poll_numbered(self) -> bool:
        is_all = False
        while not is_all:
            seen = self.seen_number
            changes = await self._query(partial(versions.read_changes, seen))
            if changes is None:
                return False
            self.seen_number, is_all = changes.until, changes.is_all
            numbers = changes.numbers
            is_restored = seen is not None and changes.until < seen
            self.restores += is_restored
            if seen is None or is_restored:
                # The previous state is unknown, so any topic may have changed.
                numbers = dict.fromkeys(self._numbered, changes.until)
            for digest, number in numbers.items():
                topic = self._numbered.get(digest)
                if topic is not None and (topic in self._versions or not self._preparing[topic]):
                    self._versions[topic] = number
                    self._deliver(topic)
        return True

    async def _compare_versions(self, topics: Iterable[TopicKey]) -> bool:
        """Notify of the topics whose version has changed; return whether the rows could be read."""
        subscribed = [topic for topic in topics if topic in self._listeners]
        if not subscribed:
            return True
        versions_by_topic = await self._query(partial(versions.read_versions, subscribed))
        for topic, version in (versions_by_topic or {}).items():
            if topic in self._listeners and self._versions.get(topic) != version:
                self._versions[topic] = version
                self._deliver(topic)
        return versions_by_topic is not None

    def _deliver(self, topic: TopicKey, listeners: Iterable[Listener] | None = None) -> None:
        for listener in tuple(self._listeners.get(topic, ()) if listeners is None else listeners):
            try:
                listener(topic)
            except Exception:
                logger.exception("A listener of %s failed.", topic)

    async def _supervise(self) -> None:
        while self._supervisor is asyncio.current_task():
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._write_heartbeats())
                    group.create_task(self._sweep())
                    group.create_task(self._poll())
                    if shared_layer() is not None:
                        group.create_task(self._receive())
            except Exception:
                logger.exception("The pub/sub hub failed; it is restarted.")
                await asyncio.sleep(BACKOFF_SECONDS)

    async def _receive(self) -> None:
        async with aclosing(receive_topics()) as notifications:
            async for notified in notifications:
                for topic in notified:
                    self.handle_notification(topic)

    async def _write_heartbeats(self) -> None:
        while True:
            # Only the streams of sessions could be closed as lost by another process.
            if self._kinds["session"] or self._kinds["standing"]:
                await self._query(inbox.ensure_heartbeat)
            # After a failure, write the heartbeat as soon as the database is available again.
            await asyncio.sleep(
                BACKOFF_SECONDS if self._is_database_down else inbox.HEARTBEAT_SECONDS
            )

    async def _query(self, work: Callable[[], T]) -> T | None:
        """Run a function that uses the database; ``None`` if that fails, which is logged once."""
        try:
            result = await run_in_db_thread(work)
        except Exception as exc:  # noqa: BLE001 - the hub also works without the database
            if not self._is_database_down:
                logger.warning(
                    "The pub/sub hub cannot use its tables (%s). Is the site migrated?", exc
                )
            self._is_database_down = True
            return None
        self._is_database_down = False
        return result

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(cleanup.SWEEP_SECONDS)
            if await self._query(cleanup.take_sweep_lease):
                # In chunks, since the heartbeat waits for the same thread.
                while await self._query(cleanup.delete_expired_chunk):
                    pass

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(poll_seconds())
            if self._numbered:
                await self.poll_numbered()
            versioned = [topic for topic in self._unnumbered if topic.has_version]
            await self._compare_versions([topic for topic in versioned if not topic.is_revocation])
            callers = [topic for topic in versioned if topic.is_revocation]
            if callers:
                # Each stream has its own, so they are compared only if any caller was revoked.
                revocations = await self._query(partial(versions.read_versions, [versions.REVOKED]))
                version = None if revocations is None else revocations.get(versions.REVOKED, 0)
                is_new = version not in (None, self._revoked_version)
                if is_new and await self._compare_versions(callers):
                    self._revoked_version = version or 0
            sessions = {
                int(topic.uri): topic for topic in self._unnumbered if topic.kind == "session"
            }
            if sessions:
                read_inbox = partial(inbox.sessions_with_messages, sessions)
                for pk in await self._query(read_inbox) or ():
                    self._deliver(sessions[pk])


_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}
_lock = threading.Lock()


def get_hub() -> Hub:
    """Return the hub of the running event loop."""
    loop = asyncio.get_running_loop()
    with _lock:
        hub = _hubs.get(loop)
        if hub is None:
            # A hub references its loop, so the two would never be garbage-collected.
            for closed in [hub_loop for hub_loop in _hubs if hub_loop.is_closed()]:
                del _hubs[closed]
            hub = _hubs[loop] = Hub(loop)
        return hub


def notify(*notified: TopicKey) -> None:
    """Notify the listeners of topics in every process; for any thread.

    Never raises: the change is in the database, and polls find it without a notification.
    """
    for hub in _open_hubs().values():
        for topic in notified:
            hub.notify(topic)
    notify_other_processes(*notified)


def notify_other_processes(*notified: TopicKey) -> None:
    """Notify the listeners in other processes, but not in this one; for any thread."""
    serving = next((loop for loop, hub in _open_hubs().items() if hub.is_listening), None)
    try:
        send_to_layer(notified, serving)
    except Exception:
        logger.warning("Other processes could not be notified.", exc_info=True)


def _open_hubs() -> dict[asyncio.AbstractEventLoop, Hub]:
    with _lock:
        return {loop: hub for loop, hub in _hubs.items() if not loop.is_closed()}


# Publishing a change ------------------------------------------------------------------------------

# A thread publishes a change itself. An event loop passes the change to the storage thread through
# one queue per process; the change is written even if the loop ends in the meantime. A forked child
# has a queue of its own; a process that ends writes the queued changes.


def publish(*changed: TopicKey) -> None:
    """Count a change of each topic and publish it; immediately in a thread, soon on a loop.

    Call it after the change is committed. Within a transaction (of another change) the storage
    thread assigns the numbers: the clock's row must not be locked until the commit.
    """
    if is_on_loop() or (any(topic.is_numbered for topic in changed) and is_in_transaction()):
        _loop_publisher(os.getpid()).add(changed)
    else:
        _publish(*changed)


class _LoopPublisher:
    """Publishes the changes of event loops, which must not wait for the database.

    Changes that come while earlier ones are being written are published together.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[TopicKey, None] = {}

    def add(self, changed: tuple[TopicKey, ...]) -> None:
        """Publish changes soon; for any thread."""
        with self._lock:
            is_first = not self._pending
            self._pending.update(dict.fromkeys(changed))
        if is_first and changed:
            databases.submit_to_db_thread(self._publish_pending)

    def _publish_pending(self) -> None:
        with self._lock:
            changed, self._pending = tuple(self._pending), {}
        try:
            _publish(*changed)
        except Exception:
            logger.exception("A change could not be published.")


@cache
def _loop_publisher(pid: int) -> _LoopPublisher:
    return _LoopPublisher()


def _publish(*changed: TopicKey) -> None:
    numbered = [topic for topic in changed if topic.is_numbered]
    others = [topic for topic in changed if not topic.is_numbered]
    if others:
        _count_change(partial(versions.increment_versions, others))
    for some in in_batches(numbered, versions.MAX_NUMBERED):
        _count_change(partial(versions.assign_number, some))
    notify(*changed)


def _count_change(count: Callable[[], None]) -> None:
    try:
        retry_on_conflict(count)
    except Error as exc:
        # The code that made the change must not fail because of the notification.
        logger.warning("A change could not be counted (%s). Is the site migrated?", exc)
