"""Streams end with their caller's access: at its expiry, and immediately when it is revoked.

The minute after which each stream checks again never ends here, so notifications end the streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from mcp_django.models import AccessToken
from mcp_django.storage import revocations, versions
from mcp_django.storage.pubsub import Hub, get_hub
from mcp_django.storage.revocations import notify_revoked, revocation_topics
from mcp_django.transports import legacy_sse, stream_access
from tests.kit.drivers import connect, message
from tests.kit.servers import person, token_for
from tests.spec import spec
from tests.transports.http_session import legacy
from tests.transports.http_session.handshakes import STAGE, C, call, initialize, opened, request
from tests.transports.http_session.reading import Reader
from tests.transports.stage import PATIENCE, gates, reached

LISTEN = message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})


def deactivate(token: AccessToken) -> None:
    token.user.is_active = False
    token.user.save()


WAYS: dict[str, Callable[[AccessToken], Any]] = {
    "revoked": lambda token: token.revoke(),
    "deleted": lambda token: token.delete(),
    "user deactivated": deactivate,
    "user deleted": lambda token: token.user.delete(),
}


@pytest.fixture(params=WAYS)
def leave(request):
    """Each way in turn to revoke a caller's access, as an async function."""
    return sync_to_async(WAYS[request.param])


@pytest.fixture(autouse=True)
def _no_minute_is_over(monkeypatch):
    monkeypatch.setattr(stream_access, "RECHECK_SECONDS", 3600)


async def issued(**details: Any) -> tuple[AccessToken, str]:
    """Issue a token; return it and its `Authorization` header."""
    ada = await sync_to_async(person)()
    token, plaintext = await sync_to_async(token_for)(ada, **details)
    return token, f"Bearer {plaintext}"


async def short_lived() -> tuple[AccessToken, str, Any]:
    """Issue a token for an hour; return it, its header, and a clock just before its expiry."""
    ends = timezone.now() + timedelta(hours=1)
    token, bearer = await issued(expires=ends)
    return token, bearer, SimpleNamespace(now=lambda: ends - timedelta(seconds=0.02))


@spec("AUT-1")
async def test_threat_17_a_subscription_ends_at_once(app, leave):
    token, bearer = await issued()
    async with connect(app, "/mcp", LISTEN, authorization=bearer) as connection:
        assert "acknowledged" in (await connection.event())["method"]
        await leave(token)
        assert (await connection.event())["result"]["resultType"] == "complete"
        with pytest.raises(EOFError):
            await connection.event()


@spec("AUT-1")
async def test_threat_17_a_standing_stream_ends_at_once(streaming, leave):
    token, bearer = await issued()
    peer = await opened(streaming, "/mcp", token=bearer)
    async with peer.standing() as connection:
        reader = Reader(connection)
        await reader.comment()
        await leave(token)
        assert await reader.rest() == []


@spec("AUT-1")
async def test_threat_17_a_stream_of_http_sse_ends_at_once(app, leave):
    token, bearer = await issued()
    async with legacy.opened(app, "/mcp/sse", authorization=bearer) as stream:
        await stream.ask(initialize())
        await leave(token)
        with pytest.raises(EOFError):
            await stream.event()


@spec("AUT-1")
async def test_threat_17_a_long_call_is_stopped(app, leave, gate, monkeypatch):
    monkeypatch.setattr(stream_access, "SHORT_SECONDS", 0)
    token, bearer = await issued()
    body = message("tools/call", {"name": "walk_later", "arguments": {"gate": gate}})
    body["params"]["_meta"]["progressToken"] = "p"
    async with connect(app, STAGE, body, authorization=bearer) as connection:
        assert (await connection.event())["params"]["progress"] == 1
        await reached(gates[gate].entered)
        await leave(token)
        error = (await connection.event())["error"]
    assert error["message"] == "Your access was revoked; the call was cancelled."


@spec("AUT-1")
async def test_threat_17_a_resumed_stream_is_let_go(streaming, leave, gate):
    token, bearer = await issued()
    peer = await opened(streaming, STAGE, version=C, token=bearer)
    async with peer.stream(call("walk", progress="p", gate=gate)) as connection:
        reader = Reader(connection)
        await reader.message()
        await reached(gates[gate].entered)
    async with peer.standing(last_event_id=reader.ids[-1]) as connection:
        second = Reader(connection)
        await second.comment()
        await leave(token)
        # The call continues behind its gate, and this caller reads no more of it.
        assert [event.get("id") for event in await second.rest()] in ([], [None])
    gates[gate].opened.set()


@spec("AUT-1")
async def test_a_standing_stream_ends_with_its_credential(streaming, monkeypatch):
    _, bearer, clock = await short_lived()
    peer = await opened(streaming, "/mcp", token=bearer)
    monkeypatch.setattr(stream_access, "timezone", clock)
    async with peer.standing() as connection:
        assert await Reader(connection).rest() == []


@spec("AUT-1")
async def test_a_stream_of_http_sse_ends_with_its_credential(app, monkeypatch):
    _, bearer, clock = await short_lived()
    monkeypatch.setattr(stream_access, "timezone", clock)
    async with legacy.opened(app, "/mcp/sse", authorization=bearer) as stream:
        with pytest.raises(EOFError):
            await stream.event()


@spec("AUT-1")
async def test_threat_17_a_stream_of_http_sse_that_nobody_reads_ends_all_the_same(app, monkeypatch):
    ends: list[Callable[[], None]] = []
    queues: list[asyncio.Queue[bytes | None]] = []
    take = legacy_sse._next

    async def noted(queue: asyncio.Queue[bytes | None]) -> bytes | None:
        queues.append(queue)
        return await take(queue)

    monkeypatch.setattr(legacy_sse, "MAX_OUTGOING", 1)
    monkeypatch.setattr(legacy_sse, "_next", noted)
    monkeypatch.setattr(legacy_sse, "_at_expiry", lambda principal, end: ends.append(end))
    _, bearer = await issued()
    async with legacy.opened(app, "/mcp/sse", authorization=bearer) as stream:
        stream.connection.stall()
        async with asyncio.timeout(PATIENCE):
            while not (queues and queues[0].full()):
                assert (await stream.post(request("ping"))).status == 202
        ends[0]()
        with pytest.raises(EOFError):
            await read_all(stream)


async def read_all(stream: legacy.Stream) -> None:
    """Read events until the stream ends."""
    while True:
        await stream.event()


@spec("AUT-1")
async def test_a_resumed_stream_ends_with_its_credential(streaming, gate, monkeypatch):
    _, bearer, clock = await short_lived()
    peer = await opened(streaming, STAGE, version=C, token=bearer)
    async with peer.stream(call("walk", progress="p", gate=gate)) as connection:
        reader = Reader(connection)
        await reader.message()
        await reached(gates[gate].entered)
    monkeypatch.setattr(stream_access, "timezone", clock)
    async with peer.standing(last_event_id=reader.ids[-1]) as connection:
        rest = await Reader(connection).rest()
    assert all("result" not in event for event in rest)
    gates[gate].opened.set()


@spec("AUT-1")
async def test_a_call_that_was_admitted_in_time_is_answered(app, gate, monkeypatch):
    monkeypatch.setattr(stream_access, "SHORT_SECONDS", 0)
    token, bearer, _ = await short_lived()
    monkeypatch.setattr(stream_access, "timezone", SimpleNamespace(now=lambda: token.expires_at))
    body = message("tools/call", {"name": "walk_later", "arguments": {"gate": gate}})
    body["params"]["_meta"]["progressToken"] = "p"
    async with connect(app, STAGE, body, authorization=bearer) as connection:
        await connection.event()
        gates[gate].opened.set()
        event = await connection.event()
        while "result" not in event:
            event = await connection.event()
    assert event["result"]["content"][0]["text"] == "walked"


@spec("AUT-1")
async def test_a_process_that_is_not_rung_finds_out_by_looking(app, settings, monkeypatch):
    settings.MCP_DJANGO = {"POLL_SECONDS": 0.01}
    token, bearer = await issued()
    async with connect(app, "/mcp", LISTEN, authorization=bearer) as connection:
        assert "acknowledged" in (await connection.event())["method"]
        # A change of another process, of which this one is not notified.
        await AccessToken.objects.aupdate(revoked_at=timezone.now())
        gone = [*revocation_topics(token.credential, token.user), versions.REVOKED]
        await sync_to_async(versions.increment_versions)(gone)
        assert "result" in await connection.event()


@spec("AUT-1")
async def test_another_callers_departure_ends_nothing(app):
    _, bearer = await issued()
    bob = await sync_to_async(person)("bob")
    other, _ = await sync_to_async(token_for)(bob)
    async with connect(app, "/mcp", LISTEN, authorization=bearer) as connection:
        assert "acknowledged" in (await connection.event())["method"]
        await sync_to_async(other.revoke)()
        # A notification without a reason: the stream checks, and its caller keeps access.
        await sync_to_async(notify_revoked)(other.credential)
        from mcp_django import mcp

        mcp.notify_list_changed("tools")
        assert (await connection.event())["method"] == "notifications/tools/list_changed"


async def revoked_unheard(*_: object) -> None:
    """Revoke all tokens as another process does, just before this one subscribes."""
    await AccessToken.objects.aupdate(revoked_at=timezone.now())


@spec("AUT-1", "SUB-16")
async def test_who_was_sent_away_before_a_listener_began_hears_nothing(app, monkeypatch):
    _, bearer = await issued()
    monkeypatch.setattr(Hub, "prepare", revoked_unheard)
    async with connect(app, "/mcp", LISTEN, authorization=bearer) as connection:
        assert "acknowledged" in (await connection.event())["method"]
        assert "result" in await connection.event()


@spec("AUT-1", "SUB-4")
async def test_who_was_sent_away_before_a_standing_stream_began_loses_it(streaming, monkeypatch):
    _, bearer = await issued()
    peer = await opened(streaming, STAGE, version=C, token=bearer)
    monkeypatch.setattr(Hub, "prepare", revoked_unheard)
    async with peer.standing() as connection:
        assert await Reader(connection).rest() == []


async def test_streams_that_ended_wait_for_nothing(app):
    token, bearer = await issued()
    async with connect(app, "/mcp", LISTEN, authorization=bearer) as connection:
        await connection.event()
        assert any(topic.is_revocation for topic in get_hub()._listeners)
        await sync_to_async(token.revoke)()
        await connection.event()
        await connection.close()
        assert not any(topic.is_revocation for topic in get_hub()._listeners)


@pytest.mark.django_db
def test_nobody_is_announced_for_nothing(monkeypatch):
    published: list[Any] = []
    monkeypatch.setattr(revocations, "publish", lambda *topics: published.append(topics))
    notify_revoked()
    notify_revoked("", "")
    assert published == []
    notify_revoked("family:1", "")
    assert published == [(versions.TopicKey("", "credential", "family:1"), versions.REVOKED)]


@pytest.mark.django_db
def test_what_says_nothing_about_access_notifies_no_stream(
    django_capture_on_commit_callbacks, monkeypatch
):
    published: list[Any] = []
    monkeypatch.setattr(revocations, "publish", lambda *topics: published.append(topics))
    ada = person()
    token, _ = token_for(ada)
    with django_capture_on_commit_callbacks(execute=True):
        ada.save()
        person("bob", is_active=False)
        token.name = "other"
        token.save()
    assert published == []
    with django_capture_on_commit_callbacks(execute=True):
        ada.is_active = False
        ada.save()
    assert published == [(versions.TopicKey("", "user", str(ada.pk)), versions.REVOKED)]
