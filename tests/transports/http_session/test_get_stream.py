"""The GET stream of a session: what it is notified of, and who may have it (SUB)."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from mcp_django.execution.threads import SHORT_TASK_THREADS
from mcp_django.models import AccessToken
from mcp_django.protocol.errors import METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from mcp_django.storage import sessions
from mcp_django.storage.pubsub import get_hub
from mcp_django.storage.versions import TopicKey
from mcp_django.transports import get_stream, stream_access
from tests.kit.servers import token_for
from tests.spec import spec
from tests.transports import stage
from tests.transports.http_session.handshakes import (
    INITIALIZED,
    OPEN,
    VERSIONS,
    Peer,
    code_of,
    initialize,
    opened,
    request,
)
from tests.transports.http_session.parlor import parlor
from tests.transports.http_session.reading import Reader
from tests.transports.stage import PATIENCE

PARLOR = "/parlor/mcp"
TABLE = "parlor://table"
CHANGED = {
    kind: {"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"}
    for kind in ("tools", "resources", "prompts")
}


def updated(uri: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}


async def change(*kinds: Any, uri: str | None = None) -> None:
    """Publish changes in a thread, as a view would."""

    def say() -> None:
        for kind in kinds:
            parlor.notify_list_changed(kind)
        if uri is not None:
            parlor.notify_resource_updated(uri)

    await sync_to_async(say)()


async def heard(reader: Reader, kind: str) -> None:
    """Wait for a notification; a change at the beginning of the stream may be notified twice."""
    while await reader.message() != CHANGED[kind]:
        pass


async def subscribe(peer: Peer, uri: str = TABLE) -> None:
    assert await peer.result("resources/subscribe", {"uri": uri}) == {}


@spec("SUB-3", "SUB-6", "VER-16")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_changed_list_is_told_without_a_subscription(version, streaming):
    peer = await opened(streaming, PARLOR, version=version)
    async with peer.standing() as connection:
        reader = Reader(connection)
        await reader.comment()
        for kind in CHANGED:
            await change(kind)
            await heard(reader, kind)


@spec("SUB-1", "SUB-2")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_resource_is_told_of_to_those_who_subscribed(version, streaming):
    peer = await opened(streaming, PARLOR, version=version)
    result = (await peer.send(initialize(version), mcp_session_id=None)).json()["result"]
    assert result["capabilities"]["resources"]["subscribe"] is True
    await subscribe(peer)
    stranger = await opened(streaming, PARLOR, version=version)
    async with peer.standing() as connection, stranger.standing() as other:
        mine, theirs = Reader(connection), Reader(other)
        await mine.comment()
        await theirs.comment()
        await change(uri=TABLE)
        assert await mine.message() == updated(TABLE)
        await change("tools")
        assert await theirs.message() == CHANGED["tools"]


@spec("SUB-2", "SUB-1")
@pytest.mark.parametrize("version", VERSIONS)
async def test_subscriptions_come_and_go_while_the_stream_is_open(version, streaming):
    peer = await opened(streaming, PARLOR, version=version)
    async with peer.standing() as connection:
        reader = Reader(connection)
        await reader.comment()
        await subscribe(peer)
        # Even a change right after the answer is notified.
        await change(uri=TABLE)
        assert await reader.message() == updated(TABLE)
        assert await peer.result("resources/unsubscribe", {"uri": TABLE}) == {}
        await forgotten(TABLE)
        await change(uri=TABLE)
        await change("prompts")
        assert await reader.message() == CHANGED["prompts"]


async def forgotten(uri: str) -> None:
    """Wait until no stream of this loop listens to a resource."""
    async with asyncio.timeout(PATIENCE):
        while TopicKey("parlor", "resource", uri) in get_hub()._listeners:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@spec("SUB-1", "SUB-4")
@pytest.mark.parametrize("version", VERSIONS)
async def test_subscribing_twice_and_to_nothing(version, streaming):
    peer = await opened(streaming, PARLOR, version=version)
    await subscribe(peer)
    await subscribe(peer)
    for uri in (TABLE, TABLE, "parlor://nothing"):
        assert await peer.result("resources/unsubscribe", {"uri": uri}) == {}
    for uri in ("parlor://nothing", "parlor://safe", "no uri", ""):
        answer = await peer.send(request("resources/subscribe", {"uri": uri}))
        assert (answer.status, code_of(answer)) == (200, RESOURCE_NOT_FOUND)


@spec("SUB-1")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_server_that_does_not_offer_it_has_no_such_method(version, streaming):
    peer = Peer(streaming, OPEN, version=version)
    assert "resources" not in (await peer.open())["capabilities"]
    answer = await peer.send(request("resources/subscribe", {"uri": "x://y"}))
    assert (answer.status, code_of(answer)) == (200, METHOD_NOT_FOUND)


@spec("SUB-4")
async def test_a_session_has_only_so_many_subscriptions(streaming, monkeypatch):
    monkeypatch.setattr(sessions, "MAX_SUBSCRIPTIONS", 1)
    token = f"Bearer {(await sync_to_async(token_for)(await user()))[1]}"
    peer = await opened(streaming, PARLOR, token=token)
    await subscribe(peer)
    await subscribe(peer)
    answer = await peer.send(request("resources/subscribe", {"uri": "parlor://safe"}))
    assert code_of(answer) == -32602
    await peer.result("resources/unsubscribe", {"uri": TABLE})
    await subscribe(peer, "parlor://safe")


async def user(username: str = "ada") -> User:
    return await sync_to_async(User.objects.create_user)(username)


@spec("SUB-5")
@pytest.mark.parametrize("version", VERSIONS)
async def test_what_changed_while_nobody_listened_is_told_once(version, streaming):
    peer = await opened(streaming, PARLOR, version=version)
    await subscribe(peer)
    for _ in range(3):
        await change("tools", uri=TABLE)
    async with peer.standing() as connection:
        reader = Reader(connection)
        messages = [await reader.message(), await reader.message()]
        await change("prompts")
        assert await reader.message() == CHANGED["prompts"]
    assert sorted(messages, key=str) == sorted([CHANGED["tools"], updated(TABLE)], key=str)


@spec("SUB-5")
async def test_what_changed_between_two_streams_is_told(streaming):
    peer = await opened(streaming, PARLOR)
    for kind in CHANGED:
        await change(kind)
        async with peer.standing() as connection:
            await heard(Reader(connection), kind)


@spec("SUB-5")
async def test_a_change_in_the_last_moment_is_told_to_the_successor(streaming):
    peer = await opened(streaming, PARLOR)
    async with peer.standing() as first:
        reader = Reader(first)
        await reader.comment()
        # The change is counted, and not noticed yet: the client leaves the stream immediately.
        await change("tools")
    async with peer.standing() as second:
        await heard(Reader(second), "tools")


@spec("SUB-5", "RSM-9")
async def test_a_change_at_the_takeover_is_told_to_the_newer_stream(streaming):
    peer = await opened(streaming, PARLOR)
    async with peer.standing() as first:
        await Reader(first).comment()
        await change("tools")
        async with peer.standing() as second:
            await heard(Reader(second), "tools")


@spec("SES-7", "SES-5")
async def test_the_end_of_the_session_ends_its_stream(streaming):
    peer = await opened(streaming, PARLOR)
    async with peer.standing() as connection:
        reader = Reader(connection)
        await reader.comment()
        assert (await peer.delete()).status == 204
        assert await reader.rest() == []


@spec("SES-7")
async def test_a_session_that_gives_way_to_newer_ones_ends_its_stream(streaming, settings):
    settings.MCP_DJANGO = {"SESSIONS_PER_PRINCIPAL": 1}
    peer = await opened(streaming, PARLOR)
    async with peer.standing() as connection:
        reader = Reader(connection)
        await reader.comment()
        await opened(streaming, PARLOR)
        assert await reader.rest() == []
    assert (await peer.get()).status == 404


@spec("VER-16")
async def test_nothing_is_said_before_the_client_is_ready(streaming):
    peer = Peer(streaming, PARLOR)
    answer = await peer.send(initialize())
    peer.headers["mcp_session_id"] = answer.headers["mcp-session-id"]
    async with peer.standing() as connection:
        reader = Reader(connection)
        await reader.comment()
        await change("tools")
        assert (await peer.send(INITIALIZED)).status == 202
        assert await reader.message() == CHANGED["tools"]
        await change("prompts")
        assert await reader.message() == CHANGED["prompts"]


@spec("SUB-4")
async def test_who_is_not_let_in_any_more_loses_the_stream(streaming, monkeypatch):
    ada = await user()
    token = f"Bearer {(await sync_to_async(token_for)(ada))[1]}"
    peer = await opened(streaming, PARLOR, token=token)
    await subscribe(peer, "parlor://safe")
    monkeypatch.setattr(get_stream, "seconds_until_recheck", lambda: 0.05)
    async with peer.standing() as connection:
        reader = Reader(connection)
        await reader.comment()
        await change(uri="parlor://safe")
        assert await reader.message() == updated("parlor://safe")
        await AccessToken.objects.all().adelete()
        # The token no longer identifies a user.
        assert await reader.rest() == []


@spec("SUB-4")
async def test_who_may_not_read_any_more_hears_of_other_things(streaming, monkeypatch):
    token = f"Bearer {(await sync_to_async(token_for)(await user()))[1]}"
    peer = await opened(streaming, PARLOR, token=token)
    rooms = "parlor://rooms/ada"
    await subscribe(peer, rooms)
    monkeypatch.setattr(get_stream, "seconds_until_recheck", lambda: 0.05)
    looked, authorize = threading.Event(), stream_access.admit_caller

    def look(*arguments: Any) -> Any:
        admitted = authorize(*arguments)
        looked.set()
        return admitted

    async with peer.standing() as connection:
        reader = Reader(connection)
        await reader.comment()
        await change(uri=rooms)
        assert await reader.message() == updated(rooms)
        monkeypatch.setattr(stage, "open_rooms", set())
        monkeypatch.setattr(stream_access, "admit_caller", look)
        await stage.reached(looked)
        await change(uri=rooms)
        await change("tools")
        assert await reader.message() == CHANGED["tools"]


@spec("SUB-4")
async def test_what_may_not_be_read_stays_untold_after_another_subscription(streaming, monkeypatch):
    token = f"Bearer {(await sync_to_async(token_for)(await user()))[1]}"
    peer = await opened(streaming, PARLOR, token=token)
    rooms = "parlor://rooms/ada"
    await subscribe(peer, rooms)
    monkeypatch.setattr(stage, "open_rooms", set())
    async with peer.standing() as connection:
        reader = Reader(connection)
        await reader.comment()
        await subscribe(peer)
        await change(uri=rooms)
        await change(uri=TABLE)
        assert await reader.message() == updated(TABLE)


@spec("SUB-5", "HTTP-6")
async def test_a_reader_who_does_not_read_is_told_once(streaming):
    peer = await opened(streaming, PARLOR)
    async with peer.standing() as connection:
        reader = Reader(connection)
        await reader.comment()
        for _ in range(20):
            await change("tools")
        await change("prompts")
        messages = []
        while CHANGED["prompts"] not in messages:
            messages.append(await reader.message())
    assert len(messages) < 20


# The view mount has a thread for each stream, since Django's own handler has one.
@pytest.mark.parametrize("streaming", ["lane", "raw", "consumer"], indirect=True)
async def test_idle_streams_hold_no_thread(streaming):
    peers = [await opened(streaming, PARLOR) for _ in range(10)]
    async with AsyncExitStack() as stack:
        first = Reader(await stack.enter_async_context(peers[0].standing()))
        await first.comment()
        threads = threading.active_count()
        for peer in peers[1:]:
            reader = Reader(await stack.enter_async_context(peer.standing()))
            await reader.comment()
        # At most, short work has started all threads of the two pools.
        assert threading.active_count() <= threads + SHORT_TASK_THREADS + 1
        assert get_hub().is_listening
    assert not get_hub().is_listening


@spec("SUB-1")
@pytest.mark.django_db(transaction=True)
async def test_where_nothing_can_be_told_no_resource_is_subscribed_to(settings):
    settings.ROOT_URLCONF = "tests.transports.http_session.parlor"
    for version in VERSIONS:
        peer = Peer("wsgi", PARLOR, version=version)
        assert "subscribe" not in (await peer.open())["capabilities"]["resources"]
        refused = await peer.send(request("resources/subscribe", {"uri": TABLE}))
        assert code_of(refused) == METHOD_NOT_FOUND
        assert "WSGI" in refused.json()["error"]["message"]
