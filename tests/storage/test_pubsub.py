"""The hub's own tasks: they end without subscribers, and continue after an error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError

from mcp_django.models import Topic as Row
from mcp_django.storage import databases, inbox, pubsub, pubsub as hubs, versions
from mcp_django.storage.pubsub import get_hub, publish
from mcp_django.storage.versions import TopicKey
from tests.spec import spec

PATIENCE = 5
STREAM = TopicKey("", "stream", "1")


class DeafLayer:
    """A channel layer that swallows its cancellation, as Redis clients do on Python 3.11."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.is_left = asyncio.Event()

    async def new_channel(self, prefix: str) -> str:
        return prefix

    async def group_add(self, group: str, channel: str) -> None: ...

    async def group_discard(self, group: str, channel: str) -> None:
        self.is_left.set()

    async def receive(self, channel: str) -> dict[str, Any]:
        self.is_asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return {"type": pubsub.MESSAGE_TYPE, "topics": [["", "stream", "1"]]}
        raise AssertionError("unreachable")


def listen() -> Callable[[], None]:
    return get_hub().subscribe([STREAM], lambda _: None)


async def nobody_else_works() -> bool:
    """Wait until this test's own task is the only one left."""
    async with asyncio.timeout(PATIENCE):
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
    return True


async def test_a_cancellation_that_gets_lost_in_the_layer_ends_the_hub_all_the_same(monkeypatch):
    layer = DeafLayer()
    monkeypatch.setattr(pubsub, "shared_layer", lambda: layer)
    leave = listen()
    async with asyncio.timeout(PATIENCE):
        await layer.is_asked.wait()
        leave()
        await layer.is_left.wait()
    assert await nobody_else_works()


async def test_a_hub_that_stumbles_begins_again(monkeypatch, caplog):
    looks = asyncio.Event()
    stumbles = iter([True])

    def poll_seconds() -> float:
        if next(stumbles, False):
            raise LookupError("no such layer")
        looks.set()
        return 60

    monkeypatch.setattr(pubsub, "poll_seconds", poll_seconds)
    monkeypatch.setattr("mcp_django.storage.pubsub.BACKOFF_SECONDS", 0)
    leave = listen()
    async with asyncio.timeout(PATIENCE):
        await looks.wait()
    leave()
    assert await nobody_else_works()
    assert "The pub/sub hub failed; it is restarted." in caplog.messages


# Numbered changes ----------------------------------------------------------------------------

BOOK, PAGE = (TopicKey("hub", "resource", f"hub://{name}") for name in ("book", "page"))


async def subscribed(*wanted: TopicKey) -> tuple[list[TopicKey], Callable[[], None]]:
    """Record the topics that are published from now on, in order; the function ends this."""
    published: list[TopicKey] = []
    leave = get_hub().subscribe(wanted, published.append)
    await get_hub().prepare(wanted)
    return published, leave


@spec("RSM-12")
@pytest.mark.django_db(transaction=True)
async def test_one_look_tells_of_all_changes_in_the_order_of_their_numbers():
    topics, leave = await subscribed(BOOK, PAGE)
    for topic in (PAGE, BOOK, PAGE):
        await sync_to_async(versions.assign_number)([topic])
    assert await get_hub().poll_numbered()
    assert topics == [BOOK, PAGE]
    assert (get_hub().number_of(BOOK), get_hub().number_of(PAGE), get_hub().seen_number) == (
        2,
        3,
        3,
    )
    assert await get_hub().poll_numbered()
    leave()
    assert topics == [BOOK, PAGE]


@pytest.mark.django_db(transaction=True)
async def test_what_changed_before_somebody_listened_is_not_told():
    await sync_to_async(versions.assign_number)([BOOK])
    first, leave_first = await subscribed(PAGE)
    await sync_to_async(versions.assign_number)([BOOK])
    # The hub has not polled since.
    second, leave_second = await subscribed(BOOK)
    await get_hub().poll_numbered()
    assert (first, second) == ([], [])
    await sync_to_async(versions.assign_number)([BOOK])
    await get_hub().poll_numbered()
    leave_first()
    leave_second()
    assert (first, second) == ([], [BOOK])


@pytest.mark.django_db(transaction=True)
async def test_many_that_want_to_look_share_it(monkeypatch):
    topics, leave = await subscribed(BOOK)
    changes_after, looks = versions.read_changes, []

    def counted(seen: int | None) -> versions.NumberedChanges:
        looks.append(seen)
        return changes_after(seen)

    monkeypatch.setattr(versions, "read_changes", counted)
    await sync_to_async(versions.assign_number)([BOOK])
    assert all(await asyncio.gather(*(get_hub().poll_numbered() for _ in range(100))))
    leave()
    assert topics == [BOOK]
    # One for the first caller, and one for all who came while it ran.
    assert len(looks) == 2


@spec("RSM-12")
@pytest.mark.django_db(transaction=True)
async def test_a_database_that_was_restored_may_have_changed_anything():
    await sync_to_async(versions.assign_number)([PAGE])
    await sync_to_async(versions.assign_number)([BOOK])
    topics, leave = await subscribed(BOOK, PAGE)
    assert get_hub().seen_number == 2
    await Row.objects.filter(pk=versions.CLOCK.digest).aupdate(version=1)
    assert await get_hub().poll_numbered()
    assert (sorted(topics, key=str), get_hub().seen_number) == ([BOOK, PAGE], 1)
    leave()


@pytest.mark.django_db(transaction=True)
async def test_a_process_that_slept_reads_page_by_page(monkeypatch):
    monkeypatch.setattr(versions, "PAGE_SIZE", 3)
    topics, leave = await subscribed(BOOK, PAGE)
    for number in range(6):
        other = TopicKey("hub", "resource", f"hub://{number}")
        await sync_to_async(versions.assign_number)([other])
    await sync_to_async(versions.assign_number)([PAGE])
    assert await get_hub().poll_numbered()
    assert (topics, get_hub().seen_number) == ([PAGE], 7)
    leave()


class SlowLooks:
    """Reads the changes; one read waits until the test releases it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, slow: int) -> None:
        self._changes_after = versions.read_changes
        self._slow, self._count = slow, 0
        self.go_on = threading.Event()
        monkeypatch.setattr(versions, "read_changes", self)

    def __call__(self, seen: int | None) -> versions.NumberedChanges:
        self._count += 1
        if self._count == self._slow:
            assert self.go_on.wait(PATIENCE)
        return self._changes_after(seen)


@spec("RSM-12")
@pytest.mark.django_db(transaction=True)
async def test_who_comes_second_takes_nothing_from_who_came_first(monkeypatch):
    looks = SlowLooks(monkeypatch, slow=2)
    first: list[TopicKey] = []
    leave = [get_hub().subscribe([BOOK], first.append)]
    ready = asyncio.create_task(get_hub().prepare([BOOK]))
    await asyncio.sleep(0)
    leave.append(get_hub().subscribe([BOOK], lambda _: None))
    # It does not share a read that began earlier.
    later = asyncio.create_task(get_hub().prepare([BOOK]))
    await ready
    await sync_to_async(versions.assign_number)([BOOK])
    looks.go_on.set()
    await later
    await get_hub().poll_numbered()
    assert first == [BOOK]
    for stop in leave:
        stop()


@spec("RSM-12")
@pytest.mark.django_db(transaction=True)
async def test_a_look_that_failed_lets_nobody_else_take_a_change(monkeypatch):
    changes_after, failures = versions.read_changes, [OperationalError("away")]

    def away(seen: int | None) -> versions.NumberedChanges:
        if failures:
            raise failures.pop()
        return changes_after(seen)

    monkeypatch.setattr(versions, "read_changes", away)
    first, leave = await subscribed(BOOK)
    assert not failures
    await sync_to_async(versions.assign_number)([BOOK])
    _, leave_second = await subscribed(BOOK)
    await get_hub().poll_numbered()
    assert BOOK in first
    leave()
    leave_second()


@spec("RSM-9")
@pytest.mark.django_db(transaction=True)
async def test_a_process_with_standing_streams_alone_says_that_it_lives(monkeypatch):
    beats = asyncio.Event()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(inbox, "_last_heartbeats", {})
    monkeypatch.setattr(inbox, "write_heartbeat", lambda: loop.call_soon_threadsafe(beats.set))
    leave = get_hub().subscribe([versions.topic_of_get_streams(1)], lambda _: None)
    async with asyncio.timeout(PATIENCE):
        await beats.wait()
    leave()


@pytest.mark.django_db(transaction=True)
async def test_a_poll_does_not_go_through_the_resources_that_streams_subscribe_to(
    settings, monkeypatch
):
    settings.MCP_DJANGO = {"POLL_SECONDS": 0.01}
    gone_through: list[str] = []
    polls, read = threading.Semaphore(0), versions.read_changes

    def poll(seen: int | None) -> Any:
        polls.release()
        return read(seen)

    def note(topic: TopicKey) -> bool:
        gone_through.append(topic.kind)
        return topic.kind in (*versions.LISTS, "resource", "standing")

    resources = [TopicKey("shop", "resource", f"shop://{number}") for number in range(20)]
    credential = TopicKey("", "credential", "1")
    leave = get_hub().subscribe([*resources, credential], lambda _: None)
    try:
        monkeypatch.setattr(versions, "read_changes", poll)
        monkeypatch.setattr(TopicKey, "is_numbered", property(note))
        monkeypatch.setattr(TopicKey, "has_version", property(note))
        for _ in range(3):
            assert await asyncio.to_thread(polls.acquire, timeout=PATIENCE)
        assert "resource" not in gone_through
        assert "credential" in gone_through
    finally:
        leave()


def test_loops_that_ended_are_forgotten():
    async def listen_once() -> None:
        listen()()

    for _ in range(3):
        asyncio.run(listen_once())
    assert sum(loop.is_closed() for loop in hubs._hubs) <= 1


# Announcing from a loop ----------------------------------------------------------------------


@spec("RSM-12")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_busy", [False, True])
def test_what_a_short_loop_announces_is_counted_after_its_end(is_busy):
    go_on = threading.Event()

    async def change() -> None:
        publish(BOOK)
        await asyncio.sleep(0)
        publish(PAGE)

    if is_busy:
        databases.submit_to_db_thread(go_on.wait, PATIENCE)
    asyncio.run(change())
    go_on.set()
    done = threading.Event()
    databases.submit_to_db_thread(done.set)
    assert done.wait(PATIENCE)
    # A change that arrived during the first write may still be in the queue.
    done.clear()
    databases.submit_to_db_thread(done.set)
    assert done.wait(PATIENCE)
    assert set(versions.read_changes(0).numbers) == {BOOK.digest, PAGE.digest}


async def test_a_notification_that_is_left_when_nobody_listens_starts_no_task(monkeypatch):
    loop, delayed = asyncio.get_running_loop(), []
    monkeypatch.setattr(loop, "call_later", lambda seconds, call: delayed.append(call))
    hub, topic = pubsub.Hub(loop), TopicKey("shelf", "tools")
    unsubscribe = hub.subscribe([topic], lambda _: None)
    hub.handle_notification(topic)
    unsubscribe()
    (start,) = delayed
    before = asyncio.all_tasks()
    start()
    assert asyncio.all_tasks() == before
    assert await nobody_else_works()
