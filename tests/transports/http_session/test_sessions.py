"""Sessions over HTTP: who may use them, when they end, and that their streams end with them."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db.models import F
from django.db.models.functions import Now

from mcp_django.models import AccessToken, Session
from mcp_django.protocol.errors import INVALID_REQUEST
from mcp_django.storage import sessions
from mcp_django.transports import stream_access
from tests.kit.drivers import Connection
from tests.sites.example.mcp import open_server
from tests.spec import spec
from tests.transports.http_session.handshakes import (
    OPEN,
    STAGE,
    VERSIONS,
    B,
    C,
    D,
    Peer,
    code_of,
    initialize,
    notification,
    opened,
    request,
)
from tests.transports.mounts import in_thread

STREAMING_VERSIONS = (B, C, D)
VISIBLE = re.compile(r"[\x21-\x7e]{32,}")
LIST_CHANGED = "notifications/tools/list_changed"


async def issue(username: str, **details: Any) -> tuple[User, AccessToken, str]:
    """Create a user and a token; return both and the Authorization header."""
    user = await User.objects.acreate(username=username, **details)
    token, plaintext = await sync_to_async(AccessToken.objects.issue)(user, name="test")
    return user, token, f"Bearer {plaintext}"


async def assert_dead(peer: Peer, **changes: str | None) -> None:
    """Assert that every verb and kind of message gets a 404, with the id if there is one."""
    body = notification("notifications/initialized")
    response = {"jsonrpc": "2.0", "id": "ask-1-1", "result": {}}
    answers = [
        await peer.send(request("tools/list", id="x"), **changes),
        await peer.send(request("ping", id=0), **changes),
        await peer.send(body, **changes),
        await peer.send(response, **changes),
        await peer.send([request("ping")], **changes),
        await peer.delete(**changes),
    ]
    if peer.mount != "wsgi":
        answers.append(await peer.get(**changes))
        answers.append(await peer.get(last_event_id="1.1", **changes))
    assert {answer.status for answer in answers} == {404}
    assert {code_of(answer) for answer in answers} == {INVALID_REQUEST}
    assert [answer.json().get("id") for answer in answers[:3]] == ["x", 0, None]
    assert len({answer.json()["error"]["message"] for answer in answers}) == 1


async def assert_alive(peer: Peer) -> None:
    assert await peer.result("ping") == {}


# The id -------------------------------------------------------------------------------------------


@spec("SES-1", "SES-2")
async def test_an_id_is_visible_ascii_and_says_nothing(mount):
    ids = [(await opened(mount, version=version)).id for version in VERSIONS * 5]
    assert len({*ids}) == len({session_id[:8] for session_id in ids}) == 20
    assert all(VISIBLE.fullmatch(session_id) for session_id in ids)
    rows = [row async for row in Session.objects.all()]
    # A reader of the table cannot take over a session.
    assert not [session_id for session_id in ids for row in rows if session_id in str(vars(row))]


@spec("SES-1")
async def test_only_initialize_assigns_an_id(mount):
    for version in VERSIONS:
        peer = await opened(mount, version=version)
        for body in (request("tools/list"), request("ping"), notification("notifications/x")):
            assert "mcp-session-id" not in (await peer.send(body)).headers
        await assert_alive(peer)


@spec("SES-3", "SES-4", "SES-11", "HTTP-12")
async def test_a_message_without_a_session_is_refused(mount):
    peer = await opened(mount)
    for version in (None, *VERSIONS):
        changes = {"mcp_session_id": None, "mcp_protocol_version": version}
        bodies = [request("tools/list"), notification("notifications/initialized")]
        for body in bodies:
            answer = await peer.send(body, **changes)
            assert (answer.status, code_of(answer)) == (400, INVALID_REQUEST)
            assert answer.json().get("id") == body.get("id")
        assert (await peer.delete(**changes)).status == 400
        if mount != "wsgi":
            # Clients send a GET before they initialize, and treat only this answer as no error.
            refused = await peer.get(**changes)
            assert (refused.status, refused.headers["allow"]) == (405, "POST, OPTIONS")
    await assert_alive(peer)


@spec("HTTP-12")
async def test_a_stream_before_initialize_is_not_offered(streaming):
    refused = await Peer(streaming).get()
    assert (refused.status, refused.headers["allow"]) == (405, "POST, OPTIONS")
    assert "send initialize first" in refused.json()["error"]["message"]


@spec("SES-4", "SES-2")
@pytest.mark.parametrize("bad", ["", " ", "a b", "x" * 43, "x" * 5000, "\x7f", "é", "%00", "null"])
async def test_an_unknown_id_answers_404(bad, mount):
    await assert_dead(await opened(mount), mcp_session_id=bad)


@spec("SES-4", "SES-6")
async def test_an_id_is_taken_as_it_was_given(mount):
    peer = await opened(mount)
    for changed in (peer.id[:-1], f"{peer.id}x", peer.id.swapcase(), f"{peer.id},{peer.id}"):
        assert (await peer.send(request("ping"), mcp_session_id=changed)).status == 404
    two = f"{peer.id}, {(await opened(mount)).id}"
    await assert_dead(peer, mcp_session_id=two)
    await assert_alive(peer)


@spec("SES-4")
async def test_two_session_headers_are_none_of_ours(streaming):
    peer = await opened(streaming)
    two = {"mcp_session_id": peer.id, "Mcp-Session-ID": peer.id}
    assert (await peer.send(request("ping"), **two)).status == 404


@spec("SES-1", "HTTP-10")
async def test_the_header_has_no_case(streaming):
    peer = await opened(streaming)
    session = peer.id
    del peer.headers["mcp_session_id"]
    for name in ("Mcp-Session-Id", "MCP-Session-Id", "mcp-session-id", "MCP-SESSION-ID"):
        answer = await peer.send(request("ping"), **{name: f" {session}\t"})
        assert answer.json()["result"] == {}


@spec("SES-2", "ERR-5")
async def test_an_id_is_in_no_log_and_no_representation(mount, caplog):
    with caplog.at_level(logging.DEBUG):
        peer = await opened(mount)
        await peer.send(request("tools/call", {"name": "nothing"}))
        await peer.send(request("ping"), mcp_session_id=f"{peer.id}x")
        row = await Session.objects.aget()
        record = await in_thread(
            lambda: sessions.find_session(peer.id, server="open", principal="anonymous")
        )
        assert record is not None
        await peer.delete()
        await peer.send(request("ping"))
    assert peer.id not in caplog.text
    shown = f"{row!r} {row} {sessions.StoredSession(record)!r} {record!r}"
    assert peer.id not in shown
    assert row.digest not in shown


# Whose it is --------------------------------------------------------------------------------------


@spec("SES-6", "SES-4")
async def test_another_users_session_looks_unknown(mount):
    _, _, ada = await issue("ada")
    _, _, bob = await issue("bob", is_superuser=True)
    for version in VERSIONS:
        peer = await opened(mount, "/mcp", version=version, token=ada)
        await assert_dead(peer, authorization=bob)
        await assert_alive(peer)
    public = await opened(mount, token=ada)
    await assert_dead(public, authorization=None)
    await assert_alive(public)


@spec("SES-6")
async def test_an_id_lets_nobody_in(mount):
    _, _, ada = await issue("ada")
    peer = await opened(mount, "/mcp", token=ada)
    for wrong in (None, "Bearer wrong", "Basic YTph"):
        for verb in ("POST", "DELETE"):
            answer = await peer.send(request("ping"), verb=verb, authorization=wrong)
            assert answer.status == 401
        if mount != "wsgi":
            assert (await peer.get(authorization=wrong)).status == 401
    await assert_alive(peer)


@spec("SES-6", "SES-4")
async def test_a_session_of_another_server_looks_unknown(mount):
    peer = await opened(mount, OPEN)
    peer.path = STAGE
    await assert_dead(peer)
    peer.path = OPEN
    await assert_alive(peer)


async def _revoke(user: User, token: AccessToken) -> None:
    await sync_to_async(token.revoke)()


async def _deactivate(user: User, token: AccessToken) -> None:
    user.is_active = False
    await user.asave()


async def _delete(user: User, token: AccessToken) -> None:
    await user.adelete()


@spec("SES-6")
@pytest.mark.parametrize("change", [_revoke, _deactivate, _delete])
async def test_who_loses_access_loses_the_session_at_once(change, mount):
    user, token, bearer = await issue("ada")
    peer = await opened(mount, "/mcp", token=bearer)
    await change(user, token)
    assert (await peer.send(request("tools/list"))).status == 401
    assert (await peer.delete()).status == 401
    if mount != "wsgi":
        assert (await peer.get()).status == 401


@spec("SES-6", "SES-7")
@pytest.mark.parametrize("change", [_revoke, _deactivate, _delete])
async def test_who_loses_access_loses_the_standing_stream_soon(change, streaming, monkeypatch):
    monkeypatch.setattr(stream_access, "RECHECK_SECONDS", 0.05)
    user, token, bearer = await issue("ada")
    peer = await opened(streaming, "/mcp", token=bearer)
    async with peer.standing() as stream:
        await stream.start()
        await stream.part()
        await change(user, token)
        await ended(stream)


@spec("SES-6")
async def test_who_signs_out_has_no_session_any_more(settings, mount):
    settings.MCP_DJANGO = {"AUTH": ["tests.transports.http_session.callers.Anybody"]}
    user = await User.objects.acreate(username="ada")
    peer = await opened(mount, OPEN)
    await assert_alive(peer)
    settings.MCP_DJANGO = {}
    await assert_dead(peer)
    assert (await Session.objects.aget()).user_id == user.pk


# Its end ------------------------------------------------------------------------------------------


async def ended(stream: Connection) -> bytes:
    """Read a stream until the server ends it, and return its body."""
    await stream.rest()
    return stream.answer.body


@spec("SES-5", "SES-4")
async def test_a_deleted_session_is_gone_for_every_verb(mount):
    for version in VERSIONS:
        peer = await opened(mount, version=version)
        other = await opened(mount, version=version)
        answer = await peer.delete()
        assert (answer.status, answer.body) == (204, b"")
        await assert_dead(peer)
        await assert_alive(other)


@spec("SES-5", "SES-7", "HTTP-12")
async def test_a_deleted_session_takes_its_standing_stream_along(streaming):
    for version in STREAMING_VERSIONS:
        peer = await opened(streaming, version=version)
        async with peer.standing() as stream:
            answer = await stream.start()
            assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
            await stream.part()
            assert (await peer.delete()).status == 204
            await ended(stream)


@spec("SES-5")
async def test_deleting_and_posting_at_once_agree_in_the_end(streaming):
    peer = await opened(streaming)
    posts = [peer.send(request("ping", id=n)) for n in range(10)]
    deletes = [peer.delete() for _ in range(3)]
    answers = await asyncio.gather(*posts, *deletes)
    assert {answer.status for answer in answers[:10]} <= {200, 404}
    assert 204 in {answer.status for answer in answers[10:]}
    await assert_dead(peer)


@spec("SES-7", "SES-4")
@pytest.mark.parametrize(
    "column", ["seen_at", "expires_at"], ids=["silent too long", "as old as one may get"]
)
async def test_an_expired_session_is_gone_for_every_verb(column, mount):
    for version in VERSIONS:
        peer = await opened(mount, version=version)
        other = await opened(mount, version=version)
        await age(peer, column)
        await assert_dead(peer)
        await assert_alive(other)


async def age(peer: Peer, column: str, *, days: int = 2) -> None:
    """Move a time of one session this many days into the past."""
    digest = sessions._digest(peer.id)
    moved = {column: F(column) - timedelta(days=days)}
    assert await Session.objects.filter(digest=digest).aupdate(**moved) == 1


@spec("SES-7")
async def test_what_the_settings_say_decides_how_long_a_session_lives(settings, mount):
    peer = await opened(mount)
    await age(peer, "seen_at")
    settings.MCP_DJANGO = {"SESSION_IDLE": 3 * 24 * 3600}
    await assert_alive(peer)
    row = await Session.objects.aget()
    assert row.expires_at - row.created_at < timedelta(days=1, minutes=1)
    settings.MCP_DJANGO = {"SESSION_MAX_AGE": 60}
    young = Peer(mount)
    answer = await young.send(initialize(D))
    young.headers["mcp_session_id"] = answer.headers["mcp-session-id"]
    await assert_alive(young)
    row = await Session.objects.order_by("-pk").afirst()
    assert row.expires_at - row.created_at < timedelta(seconds=61)


@spec("SES-7")
async def test_a_request_keeps_a_session_from_falling_asleep(mount):
    peer = await opened(mount)
    row = await Session.objects.aget()
    await Session.objects.aupdate(seen_at=F("seen_at") - timedelta(minutes=50))
    await assert_alive(peer)
    assert (await Session.objects.aget()).seen_at >= row.seen_at


@spec("SES-7")
async def test_expiry_closes_the_standing_stream(streaming, monkeypatch):
    monkeypatch.setattr(stream_access, "RECHECK_SECONDS", 0.05)
    for version in STREAMING_VERSIONS:
        peer = await opened(streaming, version=version)
        async with peer.standing() as stream:
            await stream.start()
            await age(peer, "expires_at")
            await ended(stream)


@spec("SES-7", "SES-8")
async def test_a_caller_has_so_many_sessions_and_loses_the_most_silent(settings, mount):
    settings.MCP_DJANGO = {"SESSIONS_PER_PRINCIPAL": 3}
    _, _, ada = await issue("ada")
    other = await opened(mount, token=ada)
    peers = [await opened(mount) for _ in range(3)]
    await age(peers[1], "seen_at", days=0)
    await Session.objects.filter(digest=sessions._digest(peers[1].id)).aupdate(
        seen_at=F("seen_at") - timedelta(minutes=5)
    )
    fresh = await opened(mount)
    await assert_dead(peers[1])
    for peer in (peers[0], peers[2], fresh, other):
        await assert_alive(peer)


@spec("SES-7")
async def test_many_initializes_leave_few_sessions(settings, mount):
    settings.MCP_DJANGO = {"SESSIONS_PER_PRINCIPAL": 5}
    for number in range(40):
        assert (await Peer(mount).send(initialize(D, id=number))).status == 200
    assert await Session.objects.filter(expires_at__gt=Now()).acount() == 5


@spec("SES-7")
async def test_initializes_that_come_at_once_are_limited_too(settings, streaming):
    settings.MCP_DJANGO = {"SESSIONS_PER_PRINCIPAL": 3}
    answers = await asyncio.gather(*(Peer(streaming).send(initialize(D)) for _ in range(12)))
    assert {answer.status for answer in answers} == {200}
    pings = [
        await Peer(streaming).send(request("ping"), mcp_session_id=answer.headers["mcp-session-id"])
        for answer in answers
    ]
    assert [answer.status for answer in pings].count(200) <= 3


# What it hears ------------------------------------------------------------------------------------


@spec("HTTP-12", "HTTP-13", "SUB-3")
async def test_a_change_reaches_each_session(streaming):
    peers = [await opened(streaming, version=version) for version in STREAMING_VERSIONS]
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(peer.standing()) for peer in peers]
        for stream in streams:
            await stream.start()
            await stream.part()
        await sync_to_async(open_server.notify_list_changed)("tools")
        for stream in streams:
            assert await stream.event() == {"jsonrpc": "2.0", "method": LIST_CHANGED}


@spec("RPC-7")
async def test_empty_results_are_exactly_empty(streaming):
    for version in VERSIONS:
        peer = await opened(streaming, STAGE, version=version)
        for method, params in product(
            ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"),
            ({"level": "info", "uri": "stage://props", "_meta": {"x.test/y": 1}},),
        ):
            assert await peer.result(method, params) == {}
