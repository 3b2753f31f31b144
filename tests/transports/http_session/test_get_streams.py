"""GET streams that break off and are resumed, and several of a session (RSM-9, RSM-12)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import InterfaceError, OperationalError

from mcp_django.exceptions import AccessRefused
from mcp_django.execution import threads
from mcp_django.models import Session, Stream, Topic as Row
from mcp_django.storage import versions
from mcp_django.storage.pubsub import Hub, get_hub, publish
from mcp_django.storage.streams import GET_STREAM_ENDS, NEW_GET_STREAMS
from mcp_django.storage.versions import CLOCK, TopicKey
from mcp_django.transports import durable_streams, get_stream, stream_access
from mcp_django.transports.durable_streams import EventId
from tests.kit.gates import Gate
from tests.spec import spec
from tests.transports import stage
from tests.transports.http_session.conftest import ELSEWHERE, as_worker, silence
from tests.transports.http_session.handshakes import INITIALIZED, B, C, D, Peer, opened
from tests.transports.http_session.parlor import parlor
from tests.transports.http_session.reading import Reader
from tests.transports.http_session.stored import open_get_stream
from tests.transports.stage import PATIENCE

PARLOR = "/parlor/mcp"
STREAMABLE = (B, C, D)
CHAIRS = [f"parlor://chairs/{number}" for number in range(5)]


async def seated(mount: str, chairs: Iterable[str] = CHAIRS, **options: Any) -> Peer:
    """Return a client that is subscribed to chairs."""
    peer = await opened(mount, PARLOR, **options)
    for uri in chairs:
        assert await peer.result("resources/subscribe", {"uri": uri}) == {}
    return peer


async def change(*uris: str) -> None:
    """Change resources one after the other, in a thread, as a view would."""

    def say() -> None:
        for uri in uris:
            parlor.notify_resource_updated(uri)

    await sync_to_async(say)()


async def change_together(*uris: str) -> None:
    """Change resources in one announcement."""
    await sync_to_async(publish)(*(TopicKey("parlor", "resource", uri) for uri in uris))


@asynccontextmanager
async def reading(peer: Peer, *, after: str | None = None) -> AsyncIterator[Reader]:
    """Open a GET stream, and read its beginning; ``after`` is an event id to resume from."""
    async with peer.standing(last_event_id=after) as connection:
        reader = Reader(connection)
        await reader.comment()
        if peer.version == D:
            assert not (await reader.event()).data
        yield reader


async def heard(reader: Reader, count: int) -> list[str]:
    """Read this many messages, and return their resources."""
    return [(await reader.message())["params"]["uri"] for _ in range(count)]


async def until(reader: Reader, uri: str) -> list[str]:
    """Read messages up to one of this resource, and return their resources."""
    uris: list[str] = []
    while uri not in uris:
        uris += await heard(reader, 1)
    return uris


def place(event_id: str) -> EventId:
    cursor = durable_streams.decode_event_id(event_id)
    assert cursor is not None
    return cursor


# Ids -----------------------------------------------------------------------------------------


@spec("RSM-12", "RSM-1", "RSM-2", "RSM-5")
@pytest.mark.parametrize("version", STREAMABLE)
async def test_every_message_bears_an_id_of_its_stream_and_its_place(version, streaming):
    peer = await seated(streaming, version=version)
    async with reading(peer) as reader:
        await change(*CHAIRS[:2])
        assert await heard(reader, 2) == CHAIRS[:2]
        await change_together(*CHAIRS[2:])
        assert sorted(await heard(reader, 3)) == CHAIRS[2:]
    number = (await Stream.objects.aget(kind="get")).pk
    places = [place(event_id) for event_id in reader.ids]
    assert {cursor.stream for cursor in places} == {number}
    assert len(set(places)) == len(places)
    assert places == sorted(places)
    last = await clock()
    assert places[-1] == (number, last, 0)
    # All but the last message of the last announcement have the position before it.
    assert [(cursor.position, cursor.beyond) for cursor in places[-3:-1]] == [
        (last - 1, 1),
        (last - 1, 2),
    ]
    # Only clients of 2025-11-25 get an event without a message.
    first = await Session.objects.aget()
    assert (places[0] == (number, first.heard_seq, 0)) is (version == D)


async def clock() -> int:
    return (await Row.objects.aget(pk=CLOCK.digest)).version


# Coming back ---------------------------------------------------------------------------------


@spec("RSM-12", "RSM-3", "RSM-4")
@pytest.mark.parametrize("version", STREAMABLE)
async def test_what_changed_after_the_last_id_is_told_again(version, streaming):
    peer = await seated(streaming, version=version)
    async with reading(peer) as reader:
        await change(CHAIRS[0])
        await until(reader, CHAIRS[0])
        known = reader.ids[-1]
        # The client resumes as if it had read only the first message.
        await change(*CHAIRS[1:4])
        await until(reader, CHAIRS[3])
    await change(CHAIRS[4])
    async with reading(peer, after=known) as reader:
        assert await heard(reader, 4) == CHAIRS[1:]
        await change(CHAIRS[0])
        assert await heard(reader, 1) == CHAIRS[:1]


@spec("RSM-12")
async def test_a_scheme_is_told_as_it_was_written_and_given_up_in_any_case(streaming):
    written = ["Parlor://chairs/0", "PARLOR://chairs/1"]
    peer = await seated(streaming, written)
    await peer.result("resources/subscribe", {"uri": CHAIRS[1]})
    async with reading(peer) as reader:
        await change(*CHAIRS[:2])
        assert await heard(reader, 2) == written
        await peer.result("resources/unsubscribe", {"uri": CHAIRS[0]})
        await change(CHAIRS[0], CHAIRS[1])
        assert await heard(reader, 1) == written[1:]


@spec("RSM-12")
async def test_a_client_that_did_not_read_for_long_is_told_of_everything(streaming, monkeypatch):
    # The server assumes that everything it has sent has arrived.
    monkeypatch.setattr(get_stream, "ARRIVAL_SECONDS", 0)
    peer = await seated(streaming)
    async with reading(peer) as reader:
        known = reader.ids[-1]
        await change(*CHAIRS)
        await until(reader, CHAIRS[4])
    async with reading(peer, after=known) as reader:
        assert await heard(reader, 5) == CHAIRS


@spec("SUB-5")
async def test_without_an_id_what_has_arrived_is_not_told_again(streaming, monkeypatch):
    monkeypatch.setattr(get_stream, "ARRIVAL_SECONDS", 0)
    peer = await seated(streaming)
    async with reading(peer) as reader:
        await change(*CHAIRS[:2])
        await until(reader, CHAIRS[1])
        # The server records what it has sent only after sending it.
        await change(CHAIRS[2])
        await until(reader, CHAIRS[2])
    await change(CHAIRS[3])
    async with reading(peer) as reader:
        assert CHAIRS[0] not in await until(reader, CHAIRS[3])


@spec("SUB-5")
async def test_without_an_id_what_was_written_a_moment_ago_is_told_again(streaming):
    peer = await seated(streaming)
    async with reading(peer) as reader:
        await change(CHAIRS[0])
        await until(reader, CHAIRS[0])
    async with reading(peer) as reader:
        assert await heard(reader, 1) == CHAIRS[:1]


@spec("RSM-12")
@pytest.mark.parametrize("arrived", range(1, 5))
async def test_an_announcement_that_is_cut_in_its_middle_is_told_to_its_end(arrived, streaming):
    peer = await seated(streaming)
    async with reading(peer) as reader:
        await change_together(*CHAIRS)
        first = await heard(reader, arrived)
        known = [
            event_id
            for event_id in reader.ids
            if place(event_id).beyond or place(event_id).position
        ][-1]
    async with reading(peer, after=known) as reader:
        # A message of the announcement may come again.
        assert set(first) | set(await heard(reader, 5)) == set(CHAIRS)


@spec("RSM-12")
async def test_a_change_told_twice_is_told_once_where_nobody_read(streaming):
    peer = await seated(streaming)
    async with reading(peer) as reader:
        known = reader.ids[-1]
    await change(*CHAIRS[:2], *CHAIRS[:2], CHAIRS[0])
    async with reading(peer, after=known) as reader:
        assert await heard(reader, 2) == [CHAIRS[1], CHAIRS[0]]
        await change(CHAIRS[3])
        assert await heard(reader, 1) == CHAIRS[3:4]


@spec("RSM-12", "SUB-2")
async def test_a_subscription_of_the_last_moment_is_not_passed_by(streaming, monkeypatch):
    """A resource is subscribed to, and changes, before another change that is notified."""
    monkeypatch.setattr(get_stream, "RETRY_SECONDS", 0.001)
    peer = await seated(streaming, CHAIRS[:1])
    looked, is_away = get_stream.read_get_stream, [True]
    tried = asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()

    def away(session_pk: int, number: int) -> Any:
        loop.call_soon_threadsafe(tried.release)
        if is_away:
            raise OperationalError("away")
        return looked(session_pk, number)

    async with reading(peer) as reader:
        await change(CHAIRS[0])
        await heard(reader, 1)
        # From now on the stream cannot read the subscriptions of the session.
        monkeypatch.setattr(get_stream, "read_get_stream", away)
        await peer.result("resources/subscribe", {"uri": CHAIRS[1]})
        await change(CHAIRS[1], CHAIRS[0])
        for _ in range(3):
            await tried.acquire()
        # The stream sends nothing rather than the later change first.
        known = reader.ids[-1]
        assert reader.raw.count(CHAIRS[0].encode()) == 1
        is_away.clear()
        assert await heard(reader, 2) == [CHAIRS[1], CHAIRS[0]]
    async with reading(peer, after=known) as reader:
        assert await heard(reader, 2) == [CHAIRS[1], CHAIRS[0]]


@spec("RSM-12")
@pytest.mark.parametrize("can_look", [True, False])
async def test_what_is_found_later_is_not_told_before_what_changed_earlier(
    can_look, streaming, settings, monkeypatch
):
    """Two changes while the stream looks up a new subscription, without a channel layer."""
    # A stream that cannot poll waits for the next poll of the hub itself.
    settings.MCP_DJANGO = {"POLL_SECONDS": 600 if can_look else 0.01}
    peer = await seated(streaming, CHAIRS[:1])
    changed_after, look = versions.read_changed_topics, Hub.poll_numbered
    moments, failures = [True], [not can_look]

    def late(wanted: Iterable[TopicKey], seen: int) -> tuple[int, dict[TopicKey, int]]:
        if moments:
            moments.clear()
            for uri in CHAIRS[:2]:
                versions.assign_number([TopicKey("parlor", "resource", uri)])
        return changed_after(wanted, seen)

    async def failing(self: Hub) -> bool:
        if not moments and failures and failures.pop():
            return False
        return await look(self)

    async with reading(peer) as reader:
        await change(CHAIRS[0])
        await heard(reader, 1)
        monkeypatch.setattr(versions, "read_changed_topics", late)
        monkeypatch.setattr(Hub, "poll_numbered", failing)
        await peer.result("resources/subscribe", {"uri": CHAIRS[1]})
        assert await heard(reader, 2) == CHAIRS[:2]
    assert not moments


@spec("RSM-8", "RSM-12")
@pytest.mark.parametrize(
    "last",
    [
        "nonsense",
        "{stream:x}-0-",
        "{stream:x}-0-0-0",
        "{stream:x}--1-0",
        "{stream:x}-zz-0",
        "{stream:x}-10000000000000000-0",
        "{stream:x}-ffffffffffffffff-0",
        # The id of a response stream, and ids of streams that do not exist.
        "{stream:x}-0",
        "0-0-0",
        "ffffffffffffffff-0-0",
    ],
)
async def test_an_id_that_is_none_of_ours_is_refused(last, streaming):
    peer = await seated(streaming, CHAIRS[:1])
    async with reading(peer):
        pass
    stream = await Stream.objects.aget(kind="get")
    answer = await peer.get(last_event_id=last.format(stream=stream.pk))
    assert answer.status == 400
    assert "Last-Event-ID" in answer.json()["error"]["message"]


@spec("RSM-8", "RSM-12", "SES-6")
async def test_an_id_of_another_session_is_refused(streaming):
    peer, other = await seated(streaming), await seated(streaming)
    async with reading(peer) as reader:
        pass
    assert (await other.get(last_event_id=reader.ids[-1])).status == 400
    async with reading(peer, after=reader.ids[-1]):
        pass


@spec("RSM-12")
async def test_after_a_restored_database_everything_is_told_once(streaming):
    peer = await seated(streaming, CHAIRS[:2])
    async with reading(peer) as reader:
        await change(CHAIRS[0])
        await until(reader, CHAIRS[0])
    ahead = place(reader.ids[-1])
    never = durable_streams.encode_event_id(ahead.stream, ahead.position + 1000, 0)
    async with reading(peer, after=never) as reader:
        # If the stream is cut off before anything was sent, the same must be sent again.
        assert place(reader.ids[-1]).position == ahead.position + 1000
        messages = [await reader.message() for _ in range(5)]
        lists = {"tools", "resources", "prompts"}
        methods = {f"notifications/{kind}/list_changed" for kind in lists}
        assert methods <= {message["method"] for message in messages}
        uris = [message["params"]["uri"] for message in messages if "params" in message]
        assert sorted(uris) == CHAIRS[:2]
        assert place(reader.ids[-1])[1:] == (await clock(), 0)
        await change(CHAIRS[1])
        assert await heard(reader, 1) == CHAIRS[1:2]


@spec("RSM-12")
async def test_a_database_that_is_restored_while_a_stream_is_open_tells_everything(
    streaming, settings
):
    settings.MCP_DJANGO = {"POLL_SECONDS": 0.01}
    peer = await seated(streaming, CHAIRS[:2])
    async with reading(peer) as reader:
        await change(*CHAIRS[:2])
        assert await heard(reader, 2) == CHAIRS[:2]
        await Row.objects.exclude(pk=CLOCK.digest).adelete()
        await Row.objects.filter(pk=CLOCK.digest).aupdate(version=1)
        messages = [await reader.message() for _ in range(5)]
        assert sum("params" in message for message in messages) == 2
        await change(CHAIRS[0])
        assert await heard(reader, 1) == CHAIRS[:1]


@spec("RSM-12", "SUB-5")
async def test_a_number_that_was_never_given_is_not_what_the_client_knows(streaming):
    peer = await seated(streaming)
    await change(CHAIRS[0])
    async with reading(peer) as reader:
        pass
    never = durable_streams.encode_event_id(place(reader.ids[-1]).stream, await clock() + 1000, 0)
    async with reading(peer, after=never):
        pass
    assert (await Session.objects.aget()).heard_seq <= await clock()


# Several -------------------------------------------------------------------------------------


class Looks:
    """Records the state that each stream of this process has last read of itself."""

    def __init__(self) -> None:
        self._look = get_stream.read_get_stream
        self._loop = asyncio.get_running_loop()
        self._found: dict[int, Any] = {}
        self._looked = asyncio.Event()

    def __call__(self, session_pk: int, number: int) -> Any:
        state = self._found[number] = self._look(session_pk, number)
        self._loop.call_soon_threadsafe(self._looked.set)
        return state

    async def silent(self, count: int) -> None:
        """Wait until this many streams have read that they are not the writer."""
        async with asyncio.timeout(PATIENCE):
            while sum(not state.is_writer for state in self._found.values() if state) < count:
                self._looked.clear()
                await self._looked.wait()


@pytest.fixture
async def looks(monkeypatch):
    looks = Looks()
    monkeypatch.setattr(get_stream, "read_get_stream", looks)
    return looks


@spec("RSM-9", "SUB-3", "HTTP-13")
@pytest.mark.parametrize("version", STREAMABLE)
async def test_of_two_streams_the_newer_writes_until_it_ends(version, streaming, looks):
    peer = await seated(streaming, version=version)
    async with reading(peer) as older:
        async with reading(peer) as newer:
            await looks.silent(1)
            await change(CHAIRS[0])
            await until(newer, CHAIRS[0])
            assert not older.is_over
            assert CHAIRS[0].encode() not in older.raw
        # The older stream goes on from its own last id.
        await change(CHAIRS[1])
        assert await until(older, CHAIRS[1]) == CHAIRS[:2]


@spec("RSM-9")
async def test_a_fourth_stream_closes_the_oldest_alone(streaming, looks):
    peer = await seated(streaming)
    async with AsyncExitStack() as stack:
        first, *others = [await stack.enter_async_context(reading(peer)) for _ in range(4)]
        assert await first.rest() == []
        await looks.silent(2)
        await change(CHAIRS[0])
        assert await until(others[2], CHAIRS[0])
        assert not any(reader.is_over or CHAIRS[0].encode() in reader.raw for reader in others[:2])
    assert not await Stream.objects.filter(state="open").aexists()


@spec("RSM-9")
async def test_coming_back_from_a_stream_that_is_still_there_ends_it(streaming):
    peer = await seated(streaming)
    async with (
        reading(peer) as kept,
        reading(peer) as stuck,
        reading(peer, after=stuck.ids[-1]) as newer,
    ):
        assert await stuck.rest() == []
        await change(CHAIRS[0])
        assert await heard(newer, 1) == CHAIRS[:1]
        assert not kept.is_over


@spec("RSM-9", "SUB-5")
async def test_a_change_at_the_takeover_is_told_by_the_newer_stream(streaming):
    peer = await seated(streaming)
    async with reading(peer):
        await change(CHAIRS[0])
        async with reading(peer) as newer:
            assert await heard(newer, 1) == CHAIRS[:1]


@spec("RSM-9")
async def test_a_stream_goes_on_when_the_owner_of_the_newer_one_is_dead(
    streaming, settings, looks, monkeypatch
):
    settings.MCP_DJANGO = {"KEEPALIVE_SECONDS": 0.05}
    # The interval after which every stream rechecks does not end in this test.
    monkeypatch.setattr(get_stream, "seconds_until_recheck", lambda: 3600)
    peer = await seated(streaming)
    session = await Session.objects.aget()

    def opened_elsewhere() -> None:
        with as_worker(ELSEWHERE):
            open_get_stream(session.pk, 7)

    async with reading(peer) as older:
        await sync_to_async(opened_elsewhere)()
        await looks.silent(1)
        await change(CHAIRS[0])
        # A silent stream sends keepalives, too.
        await older.comment()
        await sync_to_async(silence)(ELSEWHERE)
        assert await until(older, CHAIRS[0])


@spec("RSM-9", "HTTP-7")
async def test_a_silent_stream_gives_signs_of_life_while_much_changes(streaming, settings, looks):
    settings.MCP_DJANGO = {"KEEPALIVE_SECONDS": 0.05}
    peer = await seated(streaming)
    async with reading(peer) as older, reading(peer) as newer:
        await looks.silent(1)
        for _ in range(3):
            await change(CHAIRS[0])
            await until(newer, CHAIRS[0])
            await older.comment()
        assert CHAIRS[0].encode() not in older.raw


# The end -------------------------------------------------------------------------------------


async def test_a_stream_whose_client_leaves_while_it_begins_leaves_no_open_row(
    streaming, monkeypatch
):
    """A row that is never closed would keep every other stream of its session silent."""
    peer = await seated(streaming)
    gate = Gate(NEW_GET_STREAMS)
    monkeypatch.setattr(NEW_GET_STREAMS, "write", gate.write)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        async with peer.standing() as connection:
            beginning = asyncio.create_task(Reader(connection).comment())
            await gate.begun()
            beginning.cancel()
            loop.call_soon(gate.may_write.set)
        while not await Stream.objects.filter(state="done").aexists():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert not await Stream.objects.filter(state="open").aexists()


async def test_the_end_of_a_stream_waits_for_a_database_that_is_away(streaming, monkeypatch):
    monkeypatch.setattr(threads, "RETRY_SECONDS", 0.001)
    away = itertools.repeat(OperationalError("away"), 3)
    write = GET_STREAM_ENDS.write

    def fail(ends: Any, *, again: bool) -> Any:
        for failure in away:
            raise failure
        return write(ends, again=again)

    monkeypatch.setattr(GET_STREAM_ENDS, "write", fail)
    peer = await seated(streaming)
    async with reading(peer):
        pass
    async with asyncio.timeout(PATIENCE):
        while await Stream.objects.filter(state="open").aexists():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert next(away, None) is None


@pytest.mark.parametrize("failure", [OperationalError, InterfaceError])
async def test_a_stream_that_begins_waits_for_a_database_that_is_away(
    failure, streaming, monkeypatch
):
    monkeypatch.setattr(threads, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(get_stream, "RETRY_SECONDS", 0.001)
    for module, name in (
        (NEW_GET_STREAMS, "write"),
        (get_stream, "read_get_stream"),
        (versions, "read_changed_topics"),
    ):
        monkeypatch.setattr(module, name, failing_once(getattr(module, name), failure("away")))
    peer = await seated(streaming)
    await change(CHAIRS[0])
    async with reading(peer) as reader:
        assert await until(reader, CHAIRS[0])
    assert await Stream.objects.filter(kind="get").acount() == 1


def failing_once(work: Any, failure: Exception) -> Any:
    failures = [failure]

    def fail(*arguments: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return work(*arguments, **named)

    return fail


async def test_a_database_that_is_away_is_asked_now_and_then(streaming, monkeypatch):
    """Also if it is away for longer than the interval in which a stream rechecks its caller."""
    monkeypatch.setattr(stream_access, "RECHECK_SECONDS", 0.02)
    monkeypatch.setattr(get_stream, "RETRY_SECONDS", 0.1)
    peer = await seated(streaming)
    tried = asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()

    def away(session_pk: int, number: int) -> Any:
        loop.call_soon_threadsafe(tried.release)
        raise OperationalError("away")

    async with reading(peer):
        monkeypatch.setattr(get_stream, "read_get_stream", away)
        await tried.acquire()
        began = loop.time()
        for _ in range(3):
            await tried.acquire()
        assert loop.time() - began >= 0.2


@spec("SUB-16", "SUB-4")
async def test_nobody_stays_who_would_not_be_let_in_again(streaming, monkeypatch):
    """Anonymous callers as well: the server may have been switched off."""
    monkeypatch.setattr(stream_access, "RECHECK_SECONDS", 0.02)
    peer = await seated(streaming)

    def refuse(*_: Any) -> None:
        raise AccessRefused("closed")

    async with reading(peer) as reader:
        monkeypatch.setattr(stream_access, "admit_caller", refuse)
        assert await reader.rest() == []


@spec("SUB-4", "RSM-12")
async def test_what_could_not_be_read_for_a_moment_is_told_later(streaming, monkeypatch):
    monkeypatch.setattr(get_stream, "seconds_until_recheck", lambda: 0.05)
    rooms = "parlor://rooms/ada"
    peer = await seated(streaming, [rooms, CHAIRS[0]])
    monkeypatch.setattr(stage, "open_rooms", set())
    async with reading(peer) as reader:
        await change(rooms, CHAIRS[0])
        assert await heard(reader, 1) == CHAIRS[:1]
        monkeypatch.setattr(stage, "open_rooms", {"ada"})
        assert await heard(reader, 1) == [rooms]
    places = [place(event_id)[1:] for event_id in reader.ids]
    assert places == sorted(set(places))


@spec("RSM-12")
async def test_a_process_that_lags_behind_an_id_takes_it_for_no_restored_database(streaming):
    peer = await seated(streaming, CHAIRS[:2])
    async with reading(peer) as kept:
        await change(CHAIRS[0])
        await heard(kept, 1)
        # Other processes have published more changes, and this one has not polled since.
        for _ in range(3):
            await sync_to_async(versions.assign_number)([TopicKey("parlor", "resource", CHAIRS[1])])
        known = await clock()
        ahead = durable_streams.encode_event_id(place(kept.ids[-1]).stream, known, 0)
        async with reading(peer, after=ahead) as reader:
            await get_hub().poll_numbered()
            await change(CHAIRS[0])
            assert await heard(reader, 1) == CHAIRS[:1]
            first, last = (place(event_id).position for event_id in reader.ids)
            assert first == known < last


@spec("RSM-9")
async def test_streams_of_dead_processes_give_way_first(streaming, looks):
    peer = await seated(streaming)
    session = await Session.objects.aget()

    def opened_by_the_dead() -> None:
        with as_worker(ELSEWHERE):
            for number in (7, 8):
                open_get_stream(session.pk, number)
        silence(ELSEWHERE)

    async with reading(peer) as living:
        await sync_to_async(opened_by_the_dead)()
        async with reading(peer) as newest:
            await change(CHAIRS[0])
            assert await until(newest, CHAIRS[0])
            assert not living.is_over
    # A stream whose client is gone ends a little later.
    async with asyncio.timeout(PATIENCE):
        while await Stream.objects.filter(state="done").acount() < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@spec("VER-16")
@pytest.mark.parametrize("confirm_seconds", [0, 1])
async def test_being_ready_is_news_once(streaming, settings, confirm_seconds):
    settings.MCP_DJANGO = {"CONFIRM_SECONDS": confirm_seconds}
    peer = await seated(streaming)
    async with reading(peer) as reader:
        await change(CHAIRS[0])
        await heard(reader, 1)
        before = await clock()
        for _ in range(3):
            assert (await peer.send(INITIALIZED)).status == 202
            assert await peer.result("resources/subscribe", {"uri": CHAIRS[0]}) == {}
            assert await peer.result("resources/unsubscribe", {"uri": "parlor://no"}) == {}
        assert await clock() == before
