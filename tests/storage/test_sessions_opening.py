"""Sessions that are opened at the same time are stored together, each with its own response."""

from __future__ import annotations

import asyncio

import pytest
from django.contrib.auth.models import User
from django.db.models.functions import Now

from mcp_django.models import Session
from mcp_django.storage import sessions, writer
from mcp_django.storage.writer import BatchWriter, row_writer
from tests.kit.drivers import Answer
from tests.kit.gates import Gate
from tests.kit.servers import person, token_for
from tests.transports.conftest import close_asgiref_connections
from tests.transports.http_session.handshakes import INITIALIZED, D, Peer, initialize
from tests.transports.mounts import in_thread

pytestmark = [
    pytest.mark.every_mount,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("_serving"),
]


@pytest.fixture
def _serving(monkeypatch):
    """Write rows as in a process that serves."""
    monkeypatch.setattr(BatchWriter, "is_inline", lambda self: self is not row_writer)
    yield
    row_writer.flush()
    close_asgiref_connections()


class SessionGate(Gate):
    """A gate before the database, which stores sessions when the test opens it."""

    async def open(self, mount: str, count: int, *tokens: str) -> list[asyncio.Task[Answer]]:
        """Open this many sessions without credentials, and one for each token."""
        callers = [*[None] * count, *tokens]
        return await self.gather(
            *(Peer(mount, token=token).send(initialize(D)) for token in callers)
        )


def issue(name: str = "ada") -> tuple[User, str]:
    """Return a user and the `Authorization` header of a token."""
    user = person(name)
    return user, f"Bearer {token_for(user)[1]}"


@pytest.fixture
def gate(monkeypatch):
    made = SessionGate(sessions.NEW_SESSIONS)
    monkeypatch.setattr(sessions.NEW_SESSIONS, "write", made.write)
    yield made
    made.may_write.set()


@pytest.mark.parametrize("mount", ["raw", "lane"])
async def test_what_is_opened_together_is_stored_together(mount, gate):
    opening = await gate.open(mount, 10)
    gate.may_write.set()
    answers = await asyncio.gather(*opening)
    assert [answer.status for answer in answers] == [200] * 10
    ids = {answer.headers["mcp-session-id"] for answer in answers}
    assert len(ids) == 10
    assert gate.batches == [1, 9]
    assert await Session.objects.acount() == 10
    for answer in answers:
        peer = Peer(mount)
        peer.headers = {
            "mcp_session_id": answer.headers["mcp-session-id"],
            "mcp_protocol_version": D,
        }
        assert (await peer.send(INITIALIZED)).status == 202
    assert await Session.objects.filter(is_initialized=True).acount() == 10


async def test_an_opened_session_is_there_when_its_id_is_sent(mount):
    answer = await Peer(mount).send(initialize(D))
    assert answer.status == 200
    digest = sessions._digest(answer.headers["mcp-session-id"])
    row = await Session.objects.aget(digest=digest)
    assert not row.is_initialized


@pytest.mark.parametrize("mount", ["raw", "lane"])
async def test_a_user_who_is_deleted_meanwhile_costs_no_other_a_session(mount, gate):
    gone, token = await in_thread(issue)
    opening = await gate.open(mount, 9, token)
    await in_thread(gone.delete)
    gate.may_write.set()
    *others, mine = await asyncio.gather(*opening)
    assert [answer.status for answer in others] == [200] * 9
    assert mine.status == 500
    assert "mcp-session-id" not in mine.headers
    assert await Session.objects.acount() == 9


@pytest.mark.parametrize("mount", ["raw", "lane"])
async def test_too_many_waiting_sessions_are_refused(mount, gate, monkeypatch):
    opening = await gate.open(mount, 3)
    monkeypatch.setattr(writer, "MAX_WAITING", 2)
    answer = await Peer(mount).send(initialize(D))
    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    assert "mcp-session-id" not in answer.headers
    gate.may_write.set()
    assert [response.status for response in await asyncio.gather(*opening)] == [200] * 3


@pytest.mark.parametrize("mount", ["raw", "lane"])
async def test_more_than_a_caller_may_have_are_not_opened_together(mount, gate, settings):
    settings.MCP_DJANGO = {"SESSIONS_PER_PRINCIPAL": 3}
    others = [await in_thread(issue, name) for name in ("ada", "grace")]
    opening = await gate.open(mount, 9, *(token for _, token in others))
    gate.may_write.set()
    assert {answer.status for answer in await asyncio.gather(*opening)} == {200}
    live = Session.objects.filter(expires_at__gt=Now())
    assert await live.filter(principal="anonymous").acount() == 3
    assert await live.acount() == 3 + 2


@pytest.mark.parametrize("mount", ["raw", "lane"])
async def test_too_many_sessions_without_credentials_are_refused_one_by_one(mount, gate, settings):
    settings.MCP_DJANGO = {
        "SESSIONS_PER_PRINCIPAL": 5,
        "ANONYMOUS_FACTOR": 1,
        "SESSION_RATE": (),
    }
    opening = await gate.open(mount, 8)
    gate.may_write.set()
    answers = await asyncio.gather(*opening)
    assert sorted(answer.status for answer in answers) == [200] * 5 + [429] * 3
    assert await Session.objects.acount() == 5
