"""The test client's threads wait for each other where a test database in memory would not."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import ConnectionHandler

from mcp_django.testing import MCPClient, connection
from tests.testing.till import shop

pytestmark = pytest.mark.django_db(transaction=True)

ENGINE = "django.db.backends.sqlite3"
PATIENCE = 30


def insert(databases: ConnectionHandler) -> None:
    try:
        with databases["default"].cursor() as cursor:
            cursor.execute("INSERT INTO kept VALUES (1)")
    finally:
        BaseDatabaseWrapper.close(databases["default"])


@pytest.fixture
def databases():
    """Yield a database in memory that connections share; this thread has a lock on its table."""
    name = "file:locks?mode=memory&cache=shared"
    handler = ConnectionHandler({"default": {"ENGINE": ENGINE, "NAME": name}})
    mine = handler["default"]
    with mine.cursor() as cursor:
        cursor.execute("CREATE TABLE kept (number integer)")
    mine.set_autocommit(False)
    with mine.cursor() as cursor:
        cursor.execute("INSERT INTO kept VALUES (0)")
    yield handler
    # SQLite's own method does not close a database in memory.
    BaseDatabaseWrapper.close(mine)


@pytest.fixture
def elsewhere():
    """Yield a thread with a connection of its own."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_a_second_writer_waits_for_the_first(databases, elsewhere, monkeypatch):
    # No client has been made: the thread may have served an earlier test, which had none over HTTP.
    refused = threading.Event()
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: refused.set())
    monkeypatch.setattr(connection, "time", clock)
    writing = elsewhere.submit(insert, databases)
    assert refused.wait(PATIENCE)
    databases["default"].commit()
    writing.result(PATIENCE)
    with databases["default"].cursor() as cursor:
        assert cursor.execute("SELECT count(*) FROM kept").fetchone() == (2,)


@pytest.mark.usefixtures("client_of_the_site")
def test_it_does_not_wait_for_ever(databases, elsewhere, monkeypatch):
    monkeypatch.setattr(connection, "LOCKED_SECONDS", -1)
    with pytest.raises(OperationalError, match="locked"):
        elsewhere.submit(insert, databases).result(PATIENCE)


@pytest.mark.usefixtures("client_of_the_site")
def test_another_error_is_told_at_once(databases):
    with databases["default"].cursor() as cursor, pytest.raises(OperationalError, match="syntax"):
        cursor.execute("NO SQL")


@pytest.fixture
def client_of_the_site():
    """Yield a client whose server runs in threads of its own."""
    with MCPClient(server=shop, transport="http") as client:
        yield client
