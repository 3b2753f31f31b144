"""Sessions for tests of the storage, and other processes that are only worker numbers."""

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

# The thread that polls for cancellations may still run from the test before, with the interval of
# that test; so all tests have the same one.
cancellation.POLL_SECONDS = 0.05

HERE = 1001
ELSEWHERE = 2002


@contextmanager
def as_worker(number: int) -> Iterator[None]:
    """Give this process a worker number within the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inbox, "_worker_id_of", lambda pid: number)
        patch.setattr(inbox, "_last_heartbeats", {})
        yield


@pytest.fixture
def here():
    """Give this process the worker number `HERE`."""
    with as_worker(HERE):
        yield


@pytest.fixture
def session(transactional_db, here):
    """A session of an anonymous caller."""
    return open_session()[0]


def open_session(principal: str = "anonymous", **changes: Any) -> tuple[Session, str]:
    """Open a session, and return it with its id."""
    values: dict[str, Any] = {
        "user_pk": None,
        "protocol_version": "2025-11-25",
        "client_info": {"name": "test", "version": "1"},
        "capabilities": {},
    }
    return sessions.open_session("store", principal, **{**values, **changes})


def silence(number: int, *, seconds: float = 3600) -> None:
    """Set the last heartbeat of a process to this many seconds ago."""
    # A transaction that begins with a read cannot wait for other writers on SQLite.
    if not Worker.objects.filter(pk=number).update(beat_at=seconds_ago(seconds)):
        Worker.objects.create(pk=number, beat_at=seconds_ago(seconds))


def at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """Run the work in threads that begin together, each with its connection; return the results."""
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
    """Mount the stage, and leave no connection of asgiref's thread open."""
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
    """The name of a gate for this test alone, opened at the end so that no thread keeps waiting."""
    name = uuid.uuid4().hex
    yield name
    gates.pop(name).opened.set() if name in gates else None
