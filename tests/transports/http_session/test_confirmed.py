"""Sessions in use need no database statement, and what ends them is noticed in time."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import Session
from mcp_django.protocol.errors import BUSY, INVALID_PARAMS, UNSUPPORTED_VERSION
from mcp_django.storage import cache, pubsub, sessions
from mcp_django.storage.databases import seconds_ago, seconds_from_now
from mcp_django.storage.inbox import worker_id
from mcp_django.storage.pubsub import get_hub
from mcp_django.storage.sessions import session_cache, session_tag
from mcp_django.storage.versions import TAGS
from mcp_django.storage.writer import RESOLUTION_SECONDS
from mcp_django.transports import asgi_handler
from mcp_django.transports.http import IncomingHTTPRequest
from mcp_django.transports.outcome import Outcome
from tests.kit.confirming import Database, _clock, _database, _serving  # noqa: F401 - fixtures
from tests.kit.drivers import PATIENCE
from tests.kit.servers import person, token_for
from tests.spec import spec
from tests.storage.test_pubsub_layer import Layer
from tests.transports.asgi import MOUNTS
from tests.transports.http_session.handshakes import (
    Peer,
    code_of,
    initialize,
    notification,
    opened,
    request as message,
)
from tests.transports.mounts import in_thread

pytestmark = [pytest.mark.every_mount, pytest.mark.usefixtures("clock")]


async def hot(mount: str, database: Database) -> Peer:
    """Return a client whose session is cached; its last request needed no statement."""
    peer = await opened(mount)
    assert await peer.result("ping") == {}
    with database.quiet():
        assert await peer.result("ping") == {}
    return peer


def ping() -> dict[str, Any]:
    return message("ping")


async def status(peer: Peer) -> int:
    answer = await peer.send(ping())
    return answer.status


async def confirm() -> int:
    """Confirm the sessions that were used, as a thread of a serving process does."""
    return await in_thread(session_cache.confirm)


@spec("SES-3")
async def test_a_session_in_use_needs_no_statement(mount, database, clock):
    peer = await hot(mount, database)
    for _ in range(5):
        clock.move(0.4)
        assert await confirm() == 1
        with database.quiet():
            assert await peer.result("ping") == {}
            assert (await peer.send(notification("notifications/unknown"))).status == 202
    # A process without requests soon stops querying the database.
    clock.move(5.1)
    with database.quiet():
        assert await confirm() == 0


# What ends a session ------------------------------------------------------------------------------


def end(pk: int) -> None:
    sessions.end_sessions([pk])


def save(pk: int) -> None:
    session = Session.objects.get(pk=pk)
    session.expires_at = session.created_at
    session.save()


def delete(pk: int) -> None:
    Session.objects.get(pk=pk).delete()


def delete_many(pk: int) -> None:
    Session.objects.filter(pk=pk).delete()


@spec("SES-4")
@pytest.mark.parametrize("change", [end, save, delete, delete_many])
async def test_a_session_that_ends_is_unknown_at_once(mount, database, change):
    peer = await hot(mount, database)
    await in_thread(change, (await Session.objects.aget()).pk)
    assert await status(peer) == 404


@spec("SES-4", "SES-5")
async def test_a_session_that_its_client_ends_is_unknown_at_once(mount, database):
    peer = await hot(mount, database)
    assert (await peer.delete()).status == 204
    assert await status(peer) == 404


async def test_what_sends_no_signal_is_noticed_within_a_second(mount, database, clock):
    peer = await hot(mount, database)
    await Session.objects.aupdate(expires_at=F("created_at"))
    clock.move(0.99)
    with database.quiet():
        assert await status(peer) == 200
    clock.move(0.01)
    assert await status(peer) == 404


async def test_a_confirmation_notices_it_as_well(mount, database):
    peer = await hot(mount, database)
    await Session.objects.aupdate(seen_at=F("created_at") - timedelta(hours=2))
    await confirm()
    assert await status(peer) == 404


async def test_a_session_is_not_used_beyond_its_end(mount, database, clock):
    peer = await hot(mount, database)
    await Session.objects.aupdate(expires_at=seconds_from_now(PATIENCE))
    await confirm()
    clock.move(0.4)
    assert await status(peer) == 200
    answers = await in_thread(lambda: session_cache._read_many(list(session_cache._entries)))
    [confirmed] = answers.values()
    assert 0 < confirmed.seconds <= PATIENCE


async def test_other_processes_are_told_which_session_has_ended(mount, database, monkeypatch):
    await hot(mount, database)
    session = await Session.objects.aget()
    sent: list[Any] = []
    monkeypatch.setattr(pubsub, "send_to_layer", lambda topics, loop: sent.extend(topics))
    await in_thread(sessions.end_sessions, [session.pk])
    assert replace(TAGS, uri=session_tag(session.pk)) in sent


class TagLayer(Layer):
    """A layer with a message of another process, which arrives when `may_come` is set."""

    def __init__(self, *tags: str) -> None:
        super().__init__()
        self.may_come, self.was_handled = asyncio.Event(), asyncio.Event()
        self._count = 0
        topics = [["", "tag", tag] for tag in tags]
        self._message = {"from": worker_id() + 1, "topics": topics}

    async def receive(self, channel: str) -> Any:
        """Return the message, or wait."""
        self._count += 1
        if self._count > 1:
            # A second message is received only after the first one was handled.
            self.was_handled.set()
            await asyncio.Event().wait()
        await self.may_come.wait()
        return self._message


@pytest.mark.parametrize("streaming", ["raw", "lane", "consumer"], indirect=True)
async def test_a_process_without_streams_receives_what_others_forget(
    streaming, database, monkeypatch
):
    peer = await opened(streaming)
    layer = TagLayer(session_tag((await Session.objects.aget()).pk))
    for module in (pubsub, cache):
        monkeypatch.setattr(module, "shared_layer", lambda: layer)
    # The first request of this loop was without a layer.
    cache._receiving.clear()
    assert await peer.result("ping") == {}
    with database.quiet():
        assert await peer.result("ping") == {}
    await Session.objects.aupdate(expires_at=F("created_at"))
    layer.may_come.set()
    async with asyncio.timeout(PATIENCE):
        await layer.was_handled.wait()
    assert await status(peer) == 404
    supervisor = get_hub()._supervisor
    assert supervisor is not None
    supervisor.cancel()
    await asyncio.wait([supervisor], timeout=PATIENCE)


def test_a_layer_that_cannot_be_used_fails_no_request(monkeypatch, settings, caplog):
    settings.MCP_DJANGO = {"CONFIRM_SECONDS": 1}
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "nowhere.Layer"}}
    monkeypatch.setattr(cache, "_has_looked", threading.Event())
    for _ in range(2):
        cache.receive_forgotten_from_thread()
    assert caplog.text.count("The channel layer cannot be used.") == 1


# Where it is looked up ----------------------------------------------------------------------------


@pytest.fixture
def no_threads(monkeypatch):
    """No request of the raw mount may take a thread."""

    async def fail(request: IncomingHTTPRequest, serve: object) -> Outcome:
        raise AssertionError(f"{request.message} took a thread.")

    monkeypatch.setattr(asgi_handler, "_serve_in_thread", fail)


@pytest.fixture
def _counting(monkeypatch, _stage, transactional_db, serving):
    """A raw mount whose server is open to all, in a process that serves."""
    monkeypatch.setitem(MOUNTS, "counting", counting.asgi)


counting = MCPServer("counting", permission=AllowAny)


@counting.tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def comers_back(count: int) -> list[Peer]:
    """Return clients with sessions of another process; this process has built its catalog."""
    assert counting.catalog
    peers, new = [], []
    for _ in range(count):
        peer = Peer("counting", "/mcp")
        session, plaintext = sessions.new_session(
            counting.name,
            "anonymous",
            user_pk=None,
            protocol_version=peer.version,
            client_info={},
            capabilities={},
        )
        peer.headers |= {"mcp_session_id": plaintext, "mcp_protocol_version": peer.version}
        new.append(session)
        peers.append(peer)
    # In batches as large as those of a writer.
    for first in range(0, count, 100):
        assert not any(sessions.NEW_SESSIONS.write(new[first : first + 100], again=False))
    return peers


@pytest.mark.usefixtures("_counting", "no_threads")
async def test_an_initialize_that_is_refused_takes_no_thread(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "PROTOCOL_VERSIONS": ["2026-07-28"]}
    assert await in_thread(lambda: counting.catalog)
    answer = await Peer("counting", "/mcp").send(initialize())
    assert (answer.status, code_of(answer)) == (400, UNSUPPORTED_VERSION)


@pytest.mark.usefixtures("_counting")
async def test_a_known_session_takes_no_thread(database, request):
    [peer] = await in_thread(comers_back, 1)
    request.getfixturevalue("no_threads")
    # The first request waits for the answer on the event loop.
    assert await peer.result("ping") == {}
    with database.quiet():
        arguments = {"a": 2, "b": 40}
        result = await peer.result("tools/call", {"name": "add", "arguments": arguments})
    assert result["content"][0]["text"] == "42"
    # A request that is answered with an error takes no thread, either.
    answer = await peer.send(message("tools/call", {}))
    assert (answer.status, code_of(answer)) == (200, INVALID_PARAMS)


@pytest.mark.usefixtures("_counting")
async def test_an_unknown_session_is_unknown_on_the_loop_too(database):
    [peer] = await in_thread(comers_back, 1)
    peer.headers["mcp_session_id"] = "x" * 43
    assert await status(peer) == 404
    database.is_away = True
    answer = await peer.send(ping())
    assert (answer.status, code_of(answer)) == (503, BUSY)


@pytest.mark.usefixtures("_counting")
async def test_many_clients_that_come_back_at_once_share_few_statements(database, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "SESSIONS_PER_PRINCIPAL": 2000}
    peers = await in_thread(comers_back, 1000)
    database.statements.clear()
    assert await asyncio.gather(*map(status, peers)) == [200] * 1000
    assert len(database.statements) <= 36, len(database.statements)


# Who uses it --------------------------------------------------------------------------------------


@spec("SES-6", "SES-8")
async def test_the_id_of_a_session_in_use_is_unknown_to_others(mount, database):
    peer = await hot(mount, database)
    _, plaintext = await in_thread(lambda: token_for(person("eve")))
    thief = Peer(mount, token=f"Bearer {plaintext}")
    thief.headers |= {"mcp_session_id": peer.id, "mcp_protocol_version": peer.version}
    assert await status(thief) == 404
    with database.quiet():
        assert await status(peer) == 200
    long_ago = seconds_ago(RESOLUTION_SECONDS + 10)
    await Session.objects.aupdate(seen_at=long_ago)
    assert await status(thief) == 404
    # Only its own caller keeps it alive.
    assert await Session.objects.filter(seen_at__lte=long_ago).aexists()


@spec("LOG-2")
async def test_the_next_request_has_the_new_log_level(streaming, database):
    peer = await hot(streaming, database)
    assert await peer.result("logging/setLevel", {"level": "error"}) == {}
    await peer.result("ping")
    [record] = [cached.confirmed.value for cached in session_cache._entries.values()]
    assert record.log_level == "error"


# Without a database -------------------------------------------------------------------------------


async def test_without_a_database_nothing_old_is_used(mount, database, clock, caplog):
    peer = await hot(mount, database)
    database.is_away = True
    clock.move(0.9)
    assert await status(peer) == 200
    clock.move(0.1)
    with caplog.at_level(logging.WARNING):
        answer = await peer.send(ping())
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert code_of(answer) == BUSY
    clock.move(5)
    assert await status(peer) == 503
    database.is_away = False
    assert await status(peer) == 200
    assert peer.id not in caplog.text


async def test_a_machine_that_was_suspended_uses_no_session_of_before(mount, database, clock):
    peer = await hot(mount, database)
    await Session.objects.aupdate(expires_at=F("created_at"))
    clock.suspend(60)
    assert await status(peer) == 404
