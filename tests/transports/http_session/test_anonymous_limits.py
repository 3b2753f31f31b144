"""Limits of callers without credentials: by address, and none takes what another has."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.auth.principal import anonymous_principal
from mcp_django.exceptions import TooManyTasks
from mcp_django.models import AccessToken, Session, Stream, Subscription, Task
from mcp_django.protocol.envelope import MAX_CAPABILITIES_BYTES, MAX_CLIENT_BYTES
from mcp_django.protocol.errors import INVALID_PARAMS, RATE_LIMITED
from mcp_django.storage import sessions, task_rows
from mcp_django.storage.databases import seconds_ago
from mcp_django.storage.writer import RESOLUTION_SECONDS
from tests.kit.drivers import Answer
from tests.transports.http_session import legacy
from tests.transports.http_session.conftest import open_session
from tests.transports.http_session.handshakes import D, Peer, call, code_of, initialize, request

pytestmark = pytest.mark.django_db(transaction=True)

FAR = {"PROXIES": 1}
HERE, THERE, ELSEWHERE = "192.0.2.1", "2001:db8:1:1::7", "198.51.100.9"


async def stream_of(stack: AsyncExitStack, peer: Peer) -> None:
    """Open the client's GET stream until the stack ends."""
    connection = await stack.enter_async_context(peer.standing())
    assert (await connection.start()).status == 200


class At(Peer):
    """A client at an address."""

    def __init__(self, mount: str, address: str | None, **options: Any) -> None:
        super().__init__(mount, **options)
        self.headers["x_forwarded_for"] = address


async def opened_at(mount: str, address: str | None) -> At:
    peer = At(mount, address)
    await peer.open()
    return peer


def assert_limited(answer: Answer) -> None:
    assert (answer.status, code_of(answer)) == (429, RATE_LIMITED)
    assert int(answer.headers["retry-after"]) > 0


# Sessions -------------------------------------------------------------------------------------


async def test_an_address_with_too_many_sessions_ends_its_own(mount, settings):
    settings.MCP_DJANGO = {**FAR, "SESSIONS_PER_PRINCIPAL": 2}
    other = await opened_at(mount, HERE)
    mine = [await opened_at(mount, address) for address in (THERE, THERE, "2001:db8:1:1::8")]
    statuses = [(await peer.send(request("ping"))).status for peer in (other, *mine)]
    assert statuses == [200, 404, 200, 200]


async def test_all_addresses_together_have_a_limit_that_ends_no_session(mount, settings):
    settings.MCP_DJANGO = {**FAR, "SESSIONS_PER_PRINCIPAL": 2, "ANONYMOUS_FACTOR": 2}
    peers = [await opened_at(mount, address) for address in (HERE, HERE, THERE, THERE)]
    for address in (ELSEWHERE, HERE):
        refused = await At(mount, address).send(initialize(D))
        assert_limited(refused)
        assert "clients without credentials" in refused.json()["error"]["message"]
    for peer in peers:
        assert (await peer.send(request("ping"))).status == 200
    user = await User.objects.acreate(username="alice")
    _, plaintext = await sync_to_async(AccessToken.objects.issue)(user, name="test")
    await Peer(mount, token=f"Bearer {plaintext}").open()
    assert (await peers[0].delete()).status == 204
    await opened_at(mount, ELSEWHERE)


async def test_of_addresses_that_are_not_known_none_ends_the_session_of_another(mount, settings):
    settings.MCP_DJANGO = {**FAR, "SESSIONS_PER_PRINCIPAL": 1, "ANONYMOUS_FACTOR": 3}
    peers = [await opened_at(mount, "unknown") for _ in range(3)]
    assert_limited(await At(mount, "unknown").send(initialize(D)))
    for peer in peers:
        assert (await peer.send(request("ping"))).status == 200


async def test_an_address_opens_sessions_only_so_often(mount, settings):
    settings.MCP_DJANGO = {**FAR, "SESSION_RATE": "2/m"}
    for _ in range(2):
        await opened_at(mount, HERE)
    assert_limited(await At(mount, HERE).send(initialize(D)))
    assert await Session.objects.acount() == 2
    await opened_at(mount, THERE)
    user = await User.objects.acreate(username="alice")
    _, plaintext = await sync_to_async(AccessToken.objects.issue)(user, name="test")
    known = At(mount, HERE, token=f"Bearer {plaintext}")
    for _ in range(3):
        known.headers.pop("mcp_session_id", None)
        await known.open()


async def test_addresses_that_are_not_known_share_a_higher_rate(mount, settings):
    settings.MCP_DJANGO = {**FAR, "SESSION_RATE": "1/m"}
    for _ in range(10):
        await opened_at(mount, "unknown")
    assert_limited(await At(mount, "unknown").send(initialize(D)))


async def test_streams_of_the_older_transport_are_sessions_too(streaming, settings):
    settings.MCP_DJANGO = {**FAR, "SESSION_RATE": "1/m"}
    peer = At(streaming, HERE)
    peer.path = "/open/mcp/sse"
    async with AsyncExitStack() as stack:
        await stream_of(stack, peer)
        assert_limited(await peer.get())


@pytest.mark.usefixtures("_stage")
async def test_calls_over_the_older_transport_are_counted_by_address(settings):
    settings.MCP_DJANGO = FAR
    server = MCPServer("rated", permission=AllowAny, rate="1/m")

    @server.tool
    def work() -> str:
        """Work."""
        return "done"

    for address in (HERE, ELSEWHERE):
        async with legacy.opened(server.asgi, "/mcp/sse", x_forwarded_for=address) as stream:
            await stream.ask(initialize(D))
            assert "result" in await stream.ask(call("work"))
            assert (await stream.ask(call("work")))["error"]["code"] == RATE_LIMITED


async def test_what_a_client_says_of_itself_is_bounded(mount):
    long = "x" * 100_000
    peer = Peer(mount)
    client_info = {"name": "long", "version": long, "icons": [{"src": long}], "title": 7}
    answer = await peer.send(
        initialize(
            D, clientInfo=client_info, capabilities={"sampling": {}, "experimental": {"a": long}}
        )
    )
    assert answer.status == 200
    row = await Session.objects.aget()
    assert row.client_info["name"] == "long"
    assert row.client_info["version"].startswith("xxx")
    assert set(row.client_info) == {"name", "version"}
    assert len(json.dumps(row.client_info)) <= MAX_CLIENT_BYTES
    assert row.capabilities == {"sampling": {}}
    await row.adelete()
    refused = await peer.send(initialize(D, capabilities={"sampling": {"a": long}}))
    assert code_of(refused) == INVALID_PARAMS
    assert f"the limit is {MAX_CAPABILITIES_BYTES}" in refused.json()["error"]["message"]
    assert not await Session.objects.aexists()


def test_what_is_evicted_goes_at_once(settings):
    settings.MCP_DJANGO = {"SESSIONS_PER_PRINCIPAL": 1}
    silent, _ = open_session(network=HERE)
    Session.objects.update(seen_at=seconds_ago(61))
    lately, _ = open_session(network=HERE)
    assert not Session.objects.filter(pk=silent.pk).exists()
    # Another process may be writing for `lately`: its row is deleted later, and is empty.
    newest, _ = open_session(network=HERE)
    lately.refresh_from_db()
    assert lately.expires_at <= timezone.now()
    assert (lately.client_info, lately.capabilities) == ({}, {})
    Stream.objects.create(pk=7, session=newest, kind="post", owner=1)
    Session.objects.filter(pk=newest.pk).update(seen_at=seconds_ago(61))
    open_session(network=HERE)
    assert Session.objects.filter(pk=newest.pk).exists()


def test_what_is_evicted_while_it_is_looked_up_does_not_come_back():
    row, plaintext = open_session()
    Session.objects.update(seen_at=seconds_ago(RESOLUTION_SECONDS + 1))
    statements: list[str] = []

    def evict_then(execute: Any, sql: str, *rest: Any) -> Any:
        statements.append(sql)
        if sql.startswith("UPDATE") and len(statements) < 5:
            statements.extend(["evicted"] * 5)
            sessions.end_sessions([row.pk])
        return execute(sql, *rest)

    with connection.execute_wrapper(evict_then):
        sessions.find_session(plaintext, server="store", principal="anonymous")
    assert "evicted" in statements
    assert sessions.find_session(plaintext, server="store", principal="anonymous") is None


def test_the_addresses_of_a_session_and_its_subscriptions_are_bounded(monkeypatch):
    monkeypatch.setattr(sessions, "MAX_SUBSCRIBED_CHARACTERS", 30)
    row, _ = open_session(network=HERE)
    assert HERE not in row.network
    assert sessions.add_subscription(row.pk, "a://" + "x" * 16)
    with pytest.raises(sessions.TooManySubscriptions):
        sessions.add_subscription(row.pk, "b://" + "x" * 16)
    assert sessions.add_subscription(row.pk, "b://12345")
    assert Subscription.objects.filter(session=row).count() == 2


# Streams --------------------------------------------------------------------------------------


async def test_an_address_holds_only_so_many_streams(streaming, settings):
    settings.MCP_DJANGO = {**FAR, "STREAMS_PER_PRINCIPAL": 1, "ANONYMOUS_FACTOR": 2}
    first, second = [await opened_at(streaming, address) for address in (HERE, THERE)]
    third = await opened_at(streaming, ELSEWHERE)
    async with AsyncExitStack() as stack:
        await stream_of(stack, first)
        assert_limited(await first.get())
        await stream_of(stack, second)
        refused = await third.get()
        assert_limited(refused)
        assert "without credentials" in refused.json()["error"]["message"]
    async with AsyncExitStack() as stack:
        await stream_of(stack, third)


async def test_a_user_holds_only_so_many_streams_with_all_tokens(streaming, settings):
    settings.MCP_DJANGO = {"STREAMS_PER_PRINCIPAL": 2, "STREAMS_PER_USER": 2}
    user = await User.objects.acreate(username="alice")
    issue = sync_to_async(AccessToken.objects.issue)
    peers = []
    for name in ("a", "b", "c"):
        peers.append(Peer(streaming, token=f"Bearer {(await issue(user, name=name))[1]}"))
        await peers[-1].open()
    async with AsyncExitStack() as stack:
        for peer in peers[:2]:
            await stream_of(stack, peer)
        assert_limited(await peers[2].get())
    async with AsyncExitStack() as stack:
        await stream_of(stack, peers[2])


# Tasks ----------------------------------------------------------------------------------------


def create(network: str, arguments: bytes = b"{}") -> Task:
    return task_rows.create_task(
        server="inline",
        tool="work",
        arguments=arguments,
        principal=anonymous_principal(),
        user=None,
        network=network,
        capabilities={},
        client_info={},
        trace={},
        protocol_version="2026-07-28",
        ttl=timedelta(hours=1),
        poll=timedelta(seconds=1),
    )


def test_an_address_has_only_so_many_tasks(settings):
    settings.MCP_DJANGO = {"TASKS_PER_PRINCIPAL": 1, "ANONYMOUS_FACTOR": 2}
    mine = create(HERE)
    assert HERE not in mine.network
    with pytest.raises(TooManyTasks, match="You have 1 open tasks"):
        create(HERE)
    create(THERE)
    with pytest.raises(TooManyTasks, match="without credentials have 2 open tasks"):
        create(ELSEWHERE)
    task_rows.cancel_task(mine)
    create(HERE)


def test_long_arguments_of_tasks_have_a_limit_in_all(monkeypatch):
    monkeypatch.setattr(task_rows, "MAX_SHORT", 10)
    monkeypatch.setattr(task_rows, "MAX_LONG", 50)
    for _ in range(2):
        task_rows.cancel_task(create(HERE, b'{"a": "0123456789"}'))
    with pytest.raises(TooManyTasks, match="wait until a task expires, or send less"):
        create(HERE, b'{"a": "0123456789"}')
    create(HERE)
    create(THERE, b'{"a": "0123456789"}')
