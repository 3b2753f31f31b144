"""The last uses of tokens and sessions: stored after the requests, many at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from mcp_django.models import AccessToken, Session
from mcp_django.storage.databases import seconds_ago
from mcp_django.storage.writer import RESOLUTION_SECONDS, _LastUses, row_writer
from tests.kit.drivers import PATIENCE
from tests.kit.servers import person, token_for
from tests.storage.test_sessions_opening import _serving  # noqa: F401 - a fixture
from tests.transports.http_session.handshakes import Peer, opened, request
from tests.transports.mounts import in_thread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_serving")]


class Uses:
    """Stores uses when the test permits it, and records the sizes of the batches."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.may_write = threading.Event()
        self._write = _LastUses.write

    def write(self, kind: _LastUses, pks: Sequence[Any], *, again: bool) -> Sequence[None]:
        """Store uses."""
        assert self.may_write.wait(PATIENCE)
        self.batches.append(len(pks))
        return self._write(kind, pks, again=again)


@pytest.fixture
def uses(monkeypatch):
    uses = Uses()
    monkeypatch.setattr(
        _LastUses, "write", lambda kind, pks, *, again: uses.write(kind, pks, again=again)
    )
    return uses


def issue(count: int) -> list[str]:
    """Issue tokens to this many users, and return their headers."""
    return [f"Bearer {token_for(person(f'user {n}'))[1]}" for n in range(count)]


async def test_requests_do_not_wait_until_it_is_stored_that_a_token_was_used(uses):
    tokens = await in_thread(issue, 5)
    answers = await asyncio.gather(
        *(Peer("raw", token=token).send(request("ping", id=7)) for token in tokens)
    )
    assert [answer.status for answer in answers] == [400] * 5
    assert not uses.batches
    uses.may_write.set()
    assert await asyncio.to_thread(row_writer.flush)
    assert sum(uses.batches) == 5
    assert len(uses.batches) < 5
    assert not await AccessToken.objects.filter(last_used_at=None).aexists()


async def test_requests_do_not_wait_until_it_is_stored_that_a_session_was_seen(uses):
    peers = [await opened("raw") for _ in range(3)]
    await Session.objects.aupdate(seen_at=seconds_ago(RESOLUTION_SECONDS + 10))
    for _ in range(2):
        for peer in peers:
            assert await peer.result("ping") == {}
    uses.may_write.set()
    assert await asyncio.to_thread(row_writer.flush)
    recently = Session.objects.filter(seen_at__gt=seconds_ago(RESOLUTION_SECONDS))
    assert await recently.acount() == 3
    seen = sum(uses.batches)
    for peer in peers:
        assert await peer.result("ping") == {}
    assert await asyncio.to_thread(row_writer.flush)
    assert sum(uses.batches) == seen
