"""Limits of the subscriptions of sessions, and the work that is repeated for them."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django.auth.principal import anonymous_principal
from mcp_django.exceptions import Busy
from mcp_django.protocol.errors import INVALID_PARAMS, RATE_LIMITED
from mcp_django.storage import sessions
from mcp_django.storage.pubsub import publish
from mcp_django.storage.versions import TopicKey
from mcp_django.transports import local_session, stream_access, stream_slots, subscriptions
from mcp_django.transports.local_session import notify_changes
from mcp_django.transports.stream_slots import TOPIC_CHARACTERS
from tests.kit.servers import open_to_all
from tests.spec import spec
from tests.transports import stage
from tests.transports.http_session.handshakes import (
    INITIALIZED,
    A,
    Peer,
    initialize,
    opened,
    request,
)
from tests.transports.http_session.legacy import opened as opened_sse
from tests.transports.http_session.reading import Reader
from tests.transports.http_session.test_get_stream import CHANGED, TABLE, change, subscribe, updated
from tests.transports.http_session.test_get_streams import CHAIRS
from tests.transports.http_session.test_local_changes import agreed
from tests.transports.stage import PATIENCE, until

PARLOR = "/parlor/mcp"
ROOM = "parlor://rooms/ada"


class Rooms(set[str]):
    """The rooms that are open, and how often a room was looked up."""

    def __init__(self, *owners: str) -> None:
        super().__init__(owners)
        self.tried = 0

    def __contains__(self, owner: object) -> bool:
        self.tried += 1
        return super().__contains__(owner)


@pytest.fixture
def rooms(monkeypatch):
    rooms = Rooms("ada")
    monkeypatch.setattr(stage, "open_rooms", rooms)
    return rooms


@pytest.fixture
def room_for_two(monkeypatch):
    """All streams of a caller together may hold two of the chairs."""
    most = 2 * (len(CHAIRS[0]) + TOPIC_CHARACTERS)
    monkeypatch.setattr(stream_slots, "LARGEST_STREAM", most)
    monkeypatch.setattr(stream_slots, "CHARACTERS_PER_STREAM", 0)


@pytest.fixture
def rechecks(monkeypatch):
    """One element for each time that a stream reauthorized its caller, which it does often."""
    done: list[object] = []
    authorize = stream_access.admit_caller

    def count(*arguments: Any) -> Any:
        admitted = authorize(*arguments)
        done.append(arguments)
        return admitted

    monkeypatch.setattr(stream_access, "admit_caller", count)
    monkeypatch.setattr(stream_access, "RECHECK_SECONDS", 0.02)
    return done


async def seated(mount: str, *chairs: str) -> Peer:
    peer = await opened(mount, PARLOR)
    for uri in chairs:
        await subscribe(peer, uri)
    return peer


async def changed_chairs(reader: Reader) -> list[str]:
    """Change all chairs and then the tools; return the chairs that a stream is notified of."""
    for uri in CHAIRS:
        await change(uri=uri)
    await change("tools")
    uris = []
    while (notice := await reader.message()) != CHANGED["tools"]:
        uris.append(notice["params"]["uri"])
    return uris


# GET streams --------------------------------------------------------------------------------------


@spec("SUB-2")
@pytest.mark.usefixtures("room_for_two")
async def test_a_get_stream_leaves_out_what_its_caller_has_no_room_for(streaming, caplog):
    peer = await seated(streaming, *CHAIRS[:3])
    async with peer.standing() as connection:
        reader = Reader(connection)
        await reader.comment()
        assert await changed_chairs(reader) == CHAIRS[:2]
        [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert "leaves out 1 of 3 subscriptions" in warning.getMessage()
        assert await peer.result("resources/unsubscribe", {"uri": CHAIRS[0]}) == {}
        while await changed_chairs(reader) != CHAIRS[1:3]:
            pass


@spec("SUB-2")
@pytest.mark.usefixtures("room_for_two", "rechecks")
async def test_a_get_stream_gets_the_room_that_another_stream_of_the_caller_leaves(streaming):
    first, second = await seated(streaming, *CHAIRS[:2]), await seated(streaming, *CHAIRS[2:])
    async with second.standing() as connection:
        later = Reader(connection)
        async with first.standing() as holding:
            await Reader(holding).comment()
            await later.comment()
            held = stream_slots._usage["anonymous"].characters
            assert held == stream_slots.LARGEST_STREAM
        while len(uris := await changed_chairs(later)) < 2:
            pass
        assert uris == CHAIRS[2:4]
    await until(lambda: not stream_slots._usage)


@spec("SUB-4")
async def test_an_idle_get_stream_runs_no_function(streaming, rooms, rechecks):
    peer = await seated(streaming, ROOM)
    tried = rooms.tried
    async with peer.standing() as connection:
        reader = Reader(connection)
        await reader.comment()
        await until(lambda: len(rechecks) > 3)
        await subscribe(peer, CHAIRS[0])
        assert rooms.tried == tried
        await change(uri=ROOM)
        assert await reader.message() == updated(ROOM)
        assert rooms.tried > tried


@spec("RSM-12", "SUB-4")
async def test_a_client_that_reconnects_gets_a_change_whose_row_was_not_checked(
    streaming, rooms, monkeypatch
):
    async def refuse(self: Any, uris: Any) -> None:
        raise Busy("All workers are busy.")

    peer = await seated(streaming, ROOM, TABLE)
    async with peer.standing() as connection:
        reader = Reader(connection)
        await reader.comment()
        with monkeypatch.context() as busy:
            busy.setattr(subscriptions.SessionSubscription, "check_first_rows", refuse)
            await change(uri=ROOM)
            await change(uri=TABLE)
            assert await reader.message() == updated(TABLE)
    async with peer.standing(last_event_id=reader.ids[-1]) as connection:
        messages = []
        later = Reader(connection)
        while updated(ROOM) not in messages:
            messages.append(await later.message())


# HTTP+SSE and stdio -------------------------------------------------------------------------------


def subscription(uri: str, n: int) -> Any:
    return request("resources/subscribe", {"uri": uri}, id=n)


@spec("SUB-2", "SSE-5")
@pytest.mark.usefixtures("room_for_two")
async def test_the_sessions_of_http_sse_share_the_limit_of_the_callers_streams(app):
    sse = f"{PARLOR}/sse"
    async with opened_sse(app, sse) as first, opened_sse(app, sse) as other:
        for stream in (first, other):
            await stream.ask(initialize(A))
            await stream.post(INITIALIZED)
        for n, uri in enumerate(CHAIRS[:2]):
            assert (await first.ask(subscription(uri, n)))["result"] == {}
        refused = (await other.ask(subscription(CHAIRS[2], 3)))["error"]
        assert refused["code"] == RATE_LIMITED
        assert f"{stream_slots.LARGEST_STREAM} characters" in refused["message"]
        left = request("resources/unsubscribe", {"uri": CHAIRS[0]}, id=4)
        assert (await first.ask(left))["result"] == {}
        assert (await other.ask(subscription(CHAIRS[2], 5)))["result"] == {}
    await until(lambda: not stream_slots._usage)


@spec("SUB-2", "SSE-5")
async def test_the_characters_of_a_session_in_memory_are_bounded(app, monkeypatch):
    monkeypatch.setattr(sessions, "MAX_SUBSCRIBED_CHARACTERS", 2 * len(CHAIRS[0]))
    async with opened_sse(app, f"{PARLOR}/sse") as stream:
        await stream.ask(initialize(A))
        for n, uri in enumerate(CHAIRS[:2]):
            assert (await stream.ask(subscription(uri, n)))["result"] == {}
        refused = (await stream.ask(subscription(CHAIRS[2], 3)))["error"]
        assert refused["code"] == INVALID_PARAMS
        assert (await stream.ask(subscription(CHAIRS[0], 4)))["result"] == {}


@spec("SUB-4")
@pytest.mark.django_db(transaction=True)
async def test_a_session_in_memory_runs_a_function_only_when_its_resource_has_changed(monkeypatch):
    looks = 0
    ran: list[str] = []
    server = open_to_all()

    @server.resource("local://rows/{row}")
    def row(row: str) -> str:
        """A row."""
        ran.append(row)
        return row

    def caller() -> Any:
        nonlocal looks
        looks += 1
        return anonymous_principal()

    monkeypatch.setattr(local_session, "seconds_until_recheck", lambda: 0.02)
    local = await agreed(server)
    session = local.agreed
    assert session is not None
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    telling = asyncio.create_task(notify_changes(server, local, caller, queue.put))
    try:
        await asyncio.sleep(0)
        for n in range(3):
            await sync_to_async(session.subscribe)(f"local://rows/{n}")
        await until(lambda: looks > 6)
        assert ran == []
        await sync_to_async(publish)(TopicKey(server.name, "resource", "local://rows/1"))
        async with asyncio.timeout(PATIENCE):
            notice = json.loads(await queue.get())
    finally:
        telling.cancel()
    assert notice["params"] == {"uri": "local://rows/1"}
    assert ran == ["1"]
