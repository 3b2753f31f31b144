"""Replies to changes of a session are held back until no process uses its old state."""

from __future__ import annotations

import pytest
from django.db import OperationalError
from django.db.models.functions import Now

from mcp_django.models import Worker
from mcp_django.storage import cache, inbox
from mcp_django.storage.inbox import worker_id
from mcp_django.storage.sessions import session_cache
from mcp_django.transports import outcome, view
from tests.kit.confirming import _clock  # noqa: F401 - a fixture
from tests.spec import spec
from tests.transports.http_session.conftest import ELSEWHERE, silence
from tests.transports.http_session.handshakes import B, Peer, opened, request
from tests.transports.mounts import in_thread

pytestmark = [pytest.mark.every_mount, pytest.mark.usefixtures("clock")]


@pytest.fixture
def held(monkeypatch):
    """The seconds for which replies were held back; here nothing waits."""
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    monkeypatch.setattr(outcome, "sleep", sleep)
    monkeypatch.setattr(view, "sleep", delays.append)
    return delays


def another_process() -> None:
    Worker.objects.create(pk=ELSEWHERE, beat_at=Now())


async def end(peer: Peer) -> None:
    assert (await peer.delete()).status == 204


async def change_level(peer: Peer) -> None:
    assert await peer.result("logging/setLevel", {"level": "error"}) == {}


@spec("SES-4")
@pytest.mark.parametrize("change", [end, change_level])
async def test_a_process_that_is_alone_answers_at_once(streaming, held, change):
    await change(await opened(streaming))
    assert held == []


@spec("SES-4")
@pytest.mark.parametrize("change", [end, change_level])
async def test_beside_others_a_change_is_answered_when_it_holds_everywhere(streaming, held, change):
    peer = await opened(streaming)
    await in_thread(another_process)
    assert await peer.result("ping") == {}
    assert held == []
    await change(peer)
    assert held == [1]


async def test_under_wsgi_the_thread_waits(mount, held):
    peer = await opened(mount)
    await in_thread(another_process)
    await end(peer)
    assert held == [1]


async def test_processes_that_are_gone_delay_nothing(streaming, held):
    peer = await opened(streaming)
    await in_thread(silence, ELSEWHERE, seconds=inbox.LEASE_SECONDS + 1)
    await end(peer)
    assert held == []


async def test_where_each_request_asks_nothing_is_held_back(streaming, held, settings):
    settings.MCP_DJANGO = {"CONFIRM_SECONDS": 0}
    peer = await opened(streaming)
    await in_thread(another_process)
    await end(peer)
    assert held == []


async def test_a_batch_that_changes_the_level_is_held_back(streaming, held):
    peer = await opened(streaming, version=B)
    await in_thread(another_process)
    batch = [request("ping", id=1), request("logging/setLevel", {"level": "error"}, id=2)]
    answer = await peer.send(batch, accept="application/json")
    assert answer.status == 200
    assert held == [1]
    assert (await peer.send([request("ping", id=3)])).status == 200
    assert held == [1]


# Who is seen --------------------------------------------------------------------------------------


async def test_a_process_that_caches_is_seen_by_others(streaming):
    inbox._last_heartbeats.clear()
    assert not await Worker.objects.aexists()
    peer = await opened(streaming)
    assert await peer.result("ping") == {}
    assert len(session_cache) == 1
    assert await Worker.objects.filter(pk=worker_id()).aexists()


async def test_a_process_that_nobody_sees_keeps_nothing(streaming, monkeypatch):
    def fail() -> None:
        raise OperationalError("locked")

    peer = await opened(streaming)
    cache.clear_caches()
    inbox._last_heartbeats.clear()
    monkeypatch.setattr(inbox, "write_heartbeat", fail)
    for _ in range(2):
        assert await peer.result("ping") == {}
    assert len(session_cache) == 0
