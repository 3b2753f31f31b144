"""Threads keep their connections while they are busy, and a call finds no state of another."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.signals import request_finished, request_started
from django.db import connection, connections
from django.db.backends.signals import connection_created
from django.test import override_settings

from mcp_django.execution import threads
from mcp_django.storage import databases
from tests.kit.drivers import PATIENCE
from tests.kit.servers import open_to_all
from tests.transports.caller import Caller

HERE = Path(__file__).parent
KEEPING: dict[str, Any] = {"THREADS": 1, "KEEP_CONNECTIONS": True}


@pytest.fixture(autouse=True)
def _keep(settings):
    """One thread, which ends with the test."""
    settings.MCP_DJANGO = KEEPING
    yield
    for name in list(threads._pools):
        threads._pools.pop(name).close(seconds=PATIENCE)


def count() -> int:
    """Count the groups."""
    return Group.objects.count()


@pytest.fixture
def server():
    """A server with a tool that uses the database."""
    made = open_to_all()
    made.tool(read_only=True)(count)
    return made


@pytest.fixture
def opened():
    """The connections that tool threads have opened so far."""
    new_connections: list[Any] = []

    def note(*, connection: Any, **kwargs: Any) -> None:
        if threading.current_thread().name.startswith("mcp-tool"):
            new_connections.append(connection)

    connection_created.connect(note)
    yield new_connections
    connection_created.disconnect(note)


@pytest.fixture
def call(server):
    """A function that calls a tool over the raw mount."""
    return Caller(server.asgi, "/mcp", "2026-07-28").texts


@pytest.mark.django_db(transaction=True)
async def test_a_busy_thread_keeps_its_connection(call, opened):
    for _ in range(3):
        assert await call("count") == ["0"]
    assert len(opened) == 1


@pytest.mark.django_db(transaction=True)
async def test_a_thread_without_work_closes_its_connection(call, opened, monkeypatch):
    monkeypatch.setattr(threads, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(threads, "IDLE_SECONDS", 0.02)
    closed = threading.Event()
    original = type(connections["default"]).close

    def close(self: Any) -> None:
        original(self)
        if self in opened:
            closed.set()

    monkeypatch.setattr(type(connections["default"]), "close", close)
    for number in (1, 2):
        closed.clear()
        assert await call("count") == ["0"]
        assert closed.wait(PATIENCE)
        assert len(opened) == number
        assert opened[-1].connection is None


@pytest.mark.django_db(transaction=True)
async def test_a_site_may_have_them_closed_after_each_call(call, opened, settings):
    settings.MCP_DJANGO = {**KEEPING, "KEEP_CONNECTIONS": False}
    for number in (1, 2):
        assert await call("count") == ["0"]
        assert len(opened) == number


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"CONN_MAX_AGE": 60}, False),
        ({"CONN_MAX_AGE": None}, False),
        ({"AUTOCOMMIT": False}, False),
        ({"OPTIONS": {"pool": True}}, False),
        ({"OPTIONS": {"pool": {"max_size": 4}}}, False),
        ({"OPTIONS": {"pool": False}}, True),
    ],
)
def test_what_the_site_has_decided_is_left_to_it(changes, expected):
    database = {**connections["default"].settings_dict, "OPTIONS": {}, **changes}
    assert databases.is_keepable(database) is expected


def test_nothing_is_kept_in_a_test_unless_it_says_so():
    with override_settings(MCP_DJANGO={}):
        assert not databases.is_keepable(connections["default"].settings_dict)


@pytest.mark.django_db(transaction=True)
async def test_a_call_finds_nothing_of_the_one_before(call, server):
    def leave() -> str:
        """Leave a transaction open, with a row in it."""
        connection.set_autocommit(False)
        Group.objects.create(name="left")
        return "left"

    server.tool("leave")(leave)
    assert await call("leave") == ["left"]
    assert await call("count") == ["0"]


@pytest.mark.django_db(transaction=True)
async def test_the_signals_of_requests_are_sent_as_ever(call):
    heard: list[str] = []

    def started(**kwargs: Any) -> None:
        if threading.current_thread().name.startswith("mcp-tool"):
            heard.append("started")

    def finished(**kwargs: Any) -> None:
        if threading.current_thread().name.startswith("mcp-tool"):
            heard.append("finished")

    request_started.connect(started)
    request_finished.connect(finished)
    try:
        await call("count", "count")
    finally:
        request_started.disconnect(started)
        request_finished.disconnect(finished)
    assert heard == ["started", "finished"] * 2
