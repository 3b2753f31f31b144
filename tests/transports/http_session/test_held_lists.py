"""Notifications of changed lists, which wait until no process uses the old list."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError
from django.utils import timezone

from mcp_django.auth.principal import anonymous_principal
from mcp_django.models import Session, Topic
from mcp_django.storage import cache, versions
from mcp_django.storage.cache import list_delay
from mcp_django.storage.pubsub import publish
from mcp_django.storage.versions import TopicKey
from mcp_django.transports.local_session import LocalSession, SessionTasks
from tests.kit.drivers import Connection, connect, message
from tests.kit.servers import open_to_all
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.http_session.handshakes import D
from tests.transports.http_session.parlor import parlor
from tests.transports.http_session.test_get_streams import (
    CHAIRS,
    PARLOR,
    change,
    clock,
    heard,
    place,
    reading,
    seated,
)
from tests.transports.http_session.test_local_changes import BOARD, agreed
from tests.transports.stage import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
HOLD, RELEASE = 1000.0, 0.001


@pytest.fixture
def delay(settings, monkeypatch):
    """A function that sets the delay in seconds."""
    settings.MCP_DJANGO = {"CONFIRM_SECONDS": 1}
    return lambda seconds: monkeypatch.setattr(cache, "LIST_DELAY", seconds)


async def change_tools() -> None:
    await sync_to_async(parlor.notify_list_changed)("tools")


async def move_changes(seconds: float) -> None:
    """Move all changes in time, by the clock of the database."""
    await Topic.objects.aupdate(changed_at=timezone.now() + timedelta(seconds=seconds))


def test_the_delay_is_longer_than_anything_is_cached(settings):
    settings.MCP_DJANGO = {"CONFIRM_SECONDS": 1}
    assert list_delay() == 1.2
    settings.MCP_DJANGO = {"CONFIRM_SECONDS": 0}
    assert list_delay() == 0


# GET streams --------------------------------------------------------------------------------------


@spec("SUB-3", "RSM-12")
async def test_a_list_is_held_back_and_nothing_else_is(streaming, delay):
    delay(HOLD)
    peer = await seated(streaming, CHAIRS[:1])
    async with reading(peer) as reader:
        await change_tools()
        await change(CHAIRS[0])
        assert await heard(reader, 1) == CHAIRS[:1]
        # A client that reconnects has to get what is held back.
        assert place(reader.ids[-1]).position < await clock() - 1
    delay(RELEASE)
    async with reading(peer, after=reader.ids[-1]) as reader:
        messages = [await reader.message() for _ in range(2)]
        assert {message["method"] for message in messages} == {CHANGED, UPDATED}
        await change_tools()
        assert (await reader.message())["method"] == CHANGED
        assert place(reader.ids[-1]).position == await clock()


@spec("SUB-3")
async def test_a_client_that_initializes_right_after_a_change_is_notified(streaming, delay):
    delay(RELEASE)
    await change_tools()
    await move_changes(1000)
    peer = await seated(streaming, CHAIRS[:1])
    assert (await Session.objects.aget()).heard_seq == await clock() - 1
    async with reading(peer) as reader:
        assert (await reader.message())["method"] == CHANGED


@spec("SUB-3", "RSM-12")
async def test_a_stream_that_ends_soon_does_not_hold_back_a_list_again(streaming, delay):
    delay(HOLD)
    peer = await seated(streaming, CHAIRS[:1], version=D)
    async with reading(peer) as reader:
        await change_tools()
        await change(CHAIRS[0])
        assert await heard(reader, 1) == CHAIRS[:1]
    await move_changes(-2 * HOLD)
    async with reading(peer, after=reader.ids[-1]) as reader:
        assert (await reader.message())["method"] == CHANGED


@spec("SUB-3")
async def test_a_client_that_initializes_later_is_not_notified(streaming, delay):
    delay(RELEASE)
    await change_tools()
    await move_changes(-1000)
    peer = await seated(streaming, CHAIRS[:1], version=D)
    assert (await Session.objects.aget()).heard_seq == await clock()
    async with reading(peer) as reader:
        await change(CHAIRS[0])
        assert await heard(reader, 1) == CHAIRS[:1]


# subscriptions/listen -----------------------------------------------------------------------------


def listening(app: Any) -> Any:
    wanted = {"toolsListChanged": True, "resourceSubscriptions": CHAIRS[:1]}
    body = message("subscriptions/listen", {"notifications": wanted})
    return connect(app, PARLOR, body)


async def begin(connection: Connection) -> None:
    assert (await connection.start()).status == 200
    message = await connection.event()
    assert message["method"] == "notifications/subscriptions/acknowledged"


@spec("SUB-3")
async def test_a_subscriber_is_notified_of_a_list_later(streaming, delay):
    delay(HOLD)
    async with listening(MOUNTS[streaming]) as connection:
        await begin(connection)
        await change_tools()
        await change(CHAIRS[0])
        assert (await connection.event())["method"] == UPDATED
        delay(RELEASE)
        await change_tools()
        assert (await connection.event())["method"] == CHANGED


@spec("SUB-3")
@pytest.mark.parametrize("moved", [1000, -1000])
async def test_a_subscriber_is_notified_of_a_change_right_before(streaming, delay, moved):
    delay(RELEASE)
    await change_tools()
    await move_changes(moved)
    async with listening(MOUNTS[streaming]) as connection:
        await begin(connection)
        if moved < 0:
            await change(CHAIRS[0])
        assert (await connection.event())["method"] == (CHANGED if moved > 0 else UPDATED)


@spec("SUB-3")
async def test_a_subscriber_of_a_database_that_fails_is_notified_to_be_sure(
    streaming, delay, monkeypatch
):
    def fail(*args: Any) -> NoReturn:
        raise OperationalError("away")

    delay(RELEASE)
    monkeypatch.setattr(versions, "recently_changed", fail)
    async with listening(MOUNTS[streaming]) as connection:
        await begin(connection)
        assert (await connection.event())["method"] == CHANGED


# Sessions of one connection -----------------------------------------------------------------------


async def notified(local: LocalSession, server: Any) -> tuple[SessionTasks, asyncio.Queue[Any]]:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    tasks = SessionTasks(server, local, anonymous_principal, write=queue.put, end=lambda: None)
    return tasks, queue


@spec("SUB-3")
@pytest.mark.parametrize("is_held", [True, False])
async def test_a_local_session_is_notified_of_a_list_later(delay, is_held):
    delay(HOLD)
    server = open_to_all()
    server.resource(BOARD)(lambda: "Nothing new.")
    server.tool(name="here")(lambda: "here")
    local = await agreed(server)
    assert local.agreed is not None
    await sync_to_async(local.initial_versions.record_lists)()
    await sync_to_async(local.agreed.subscribe)(BOARD)
    await sync_to_async(local.initial_versions.record_resources)([BOARD])
    if not is_held:
        delay(RELEASE)
    await sync_to_async(publish)(TopicKey(server.name, "tools"))
    tasks, queue = await notified(local, server)
    try:
        async with asyncio.timeout(PATIENCE):
            # The first changes may come before the session subscribes, the second ones come after.
            for _ in range(2):
                if is_held:
                    await sync_to_async(publish)(TopicKey(server.name, "resource", BOARD))
                method = json.loads(await queue.get())["method"]
                assert method == (UPDATED if is_held else CHANGED)
                await sync_to_async(publish)(TopicKey(server.name, "tools"))
    finally:
        tasks.end()


@spec("SUB-3")
@pytest.mark.parametrize("moved", [1000, -1000])
async def test_a_local_session_is_notified_of_a_change_right_before(delay, moved):
    delay(RELEASE)
    server = open_to_all()
    server.tool(name="here")(lambda: "here")
    server.prompt(name="p")(lambda: "here")
    await sync_to_async(publish)(TopicKey(server.name, "tools"))
    await move_changes(moved)
    local = await agreed(server)
    await sync_to_async(local.initial_versions.record_lists)()
    tasks, queue = await notified(local, server)
    try:
        async with asyncio.timeout(PATIENCE):
            if moved < 0:
                await sync_to_async(publish)(TopicKey(server.name, "prompts"))
            kind = "tools" if moved > 0 else "prompts"
            assert json.loads(await queue.get())["method"] == f"notifications/{kind}/list_changed"
    finally:
        tasks.end()
