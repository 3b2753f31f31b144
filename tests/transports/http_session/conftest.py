"""Sessions to try the store with, and other processes that are only numbers."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from django.db import connections

from mcp_django.models import Session, Worker
from mcp_django.storage import inbox, sessions
from mcp_django.storage.databases import seconds_ago
from mcp_django.transports import cancellation
from tests.transports.asgi import MOUNTS
from tests.transports.conftest import close_asgiref_connections
from tests.transports.mounts import EVERY_MOUNT
from tests.transports.stage import gates

T = TypeVar("T")

# A thread that looks after calls may still be there from the test before, and looks as often as it
# was told then.
cancellation.POLL_SECONDS = 0.05

HERE = 1001
ELSEWHERE = 2002


@contextmanager
def as_worker(number: int) -> Iterator[None]:
    """Be the process of this number for a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inbox, "_worker_id_of", lambda pid: number)
        patch.setattr(inbox, "_last_heartbeats", {})
        yield


@pytest.fixture
def here():
    """This process has a number that no other test knows."""
    with as_worker(HERE):
        yield


@pytest.fixture
def session(transactional_db, here):
    """A session of nobody."""
    return open_session()[0]


def open_session(principal: str = "anonymous", **changes: Any) -> tuple[Session, str]:
    """A session with its id."""
    values: dict[str, Any] = {
        "user_pk": None,
        "protocol_version": "2025-11-25",
        "client_info": {"name": "test", "version": "1"},
        "capabilities": {},
    }
    return sessions.open_session("store", principal, **{**values, **changes})


def silence(number: int, *, seconds: float = 3600) -> None:
    """Let a process have beaten for the last time so long ago."""
    # A transaction that begins with a read cannot wait for other writers on SQLite.
    if not Worker.objects.filter(pk=number).update(beat_at=seconds_ago(seconds)):
        Worker.objects.create(pk=number, beat_at=seconds_ago(seconds))


def at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """What the work returns in so many threads that begin together, each with its connection."""
    barrier = threading.Barrier(count)

    def run(number: int) -> T:
        barrier.wait(5)
        try:
            return work(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@pytest.fixture
def _stage(settings):
    """The stage has an address, and no connection of asgiref's thread is left open."""
    settings.ROOT_URLCONF = "tests.transports.urls"
    close_asgiref_connections()
    yield
    close_asgiref_connections()


@pytest.fixture(params=EVERY_MOUNT)
def mount(request, _stage, transactional_db):
    """The name of one mount after the other, WSGI included."""
    name: str = request.param
    return name


@pytest.fixture(params=MOUNTS)
def streaming(request, _stage, transactional_db):
    """The name of one mount after the other that has streams."""
    name: str = request.param
    return name


@pytest.fixture
def app(streaming):
    """The application of one mount after the other that has streams."""
    return MOUNTS[streaming]


@pytest.fixture
def gate():
    """A gate of the test's own, opened at the end so that no thread stays behind."""
    name = uuid.uuid4().hex
    yield name
    gates.pop(name).opened.set() if name in gates else None
