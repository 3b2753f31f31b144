"""Calls that may write wait for their rows, in batches, and none of them runs without one."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connections, transaction

from mcp_django.execution import call_log as keeping
from mcp_django.models import Call
from mcp_django.storage import writer
from mcp_django.storage.call_rows import CALL_ROWS, CallLog
from mcp_django.transports.asgi_handler import RawASGIMount
from tests.kit.drivers import PATIENCE, connect, message
from tests.kit.gates import Gate
from tests.kit.servers import open_to_all
from tests.transports.caller import Caller
from tests.transports.conftest import close_asgiref_connections
from tests.transports.mounts import in_thread

pytestmark = pytest.mark.django_db(transaction=True)

RAN: list[str] = []


def write_now() -> str:
    """Write in a thread."""
    RAN.append("now")
    return "written"


async def write_later() -> str:
    """Write on a loop."""
    RAN.append("later")
    return "written"


@pytest.fixture
def log(call_log, monkeypatch):
    """A call log as in a process that serves, without calls of earlier tests."""
    assert keeping.call_log is call_log
    monkeypatch.setattr(CallLog, "is_inline", lambda self: False)
    made = CallLog()
    monkeypatch.setattr(keeping, "call_log", made)
    RAN.clear()
    yield made
    made.close()
    close_asgiref_connections()


@pytest.fixture
def gate(monkeypatch, log):
    made = Gate(CALL_ROWS)
    monkeypatch.setattr(CALL_ROWS, "write", made.write)
    yield made
    made.may_write.set()


@pytest.fixture
def server():
    """A server with two tools that may write."""
    made = open_to_all()
    made.tool(write_now)
    made.tool(write_later)
    return made


@pytest.fixture
def caller(server):
    return Caller(server.asgi, "/mcp", "2026-07-28")


async def outcomes(log: CallLog) -> list[tuple[str, str]]:
    """Return the component and outcome of each row."""

    def read() -> list[tuple[str, str]]:
        assert log.flush(PATIENCE)
        return sorted(Call.objects.values_list("component", "outcome"))

    return await in_thread(read)


@pytest.fixture
async def queued(log, monkeypatch):
    """A semaphore that is released for each row that a call waits for."""
    semaphore = asyncio.Semaphore(0)
    put, loop = log._put, asyncio.get_running_loop()

    def count(job: Any) -> None:
        put(job)
        loop.call_soon_threadsafe(semaphore.release)

    monkeypatch.setattr(log, "_put", count)
    return semaphore


async def test_calls_that_wait_together_are_written_together(log, gate, caller, queued):
    first = asyncio.create_task(caller.texts("write_later"))
    await gate.begun()
    others = [asyncio.create_task(caller.texts(tool)) for tool in 4 * ("write_later",)]
    for _ in range(5):
        await queued.acquire()
    assert RAN == []
    gate.may_write.set()
    assert await asyncio.gather(first, *others) == 5 * [["written"]]
    # The first call waits alone; the others are written together.
    assert gate.batches[:2] == [1, 4] or gate.batches[:2] == [1, 5]
    assert await outcomes(log) == 5 * [("write_later", "ok")]


@pytest.mark.parametrize("tool", ["write_now", "write_later"])
async def test_a_full_queue_answers_503(log, gate, caller, queued, monkeypatch, tool):
    monkeypatch.setattr(writer, "MAX_WAITING", 1)
    written = asyncio.create_task(caller.texts("write_later"))
    await gate.begun()
    waiting = asyncio.create_task(caller.texts("write_later"))
    for _ in range(2):
        await queued.acquire()
    answer = await caller.ask("tools/call", name=tool, arguments={})
    assert answer.status == 503
    assert b"call log" in answer.body
    assert answer.headers["retry-after"]
    assert log.refused == 1
    assert RAN == []
    monkeypatch.setattr(writer, "MAX_WAITING", 100)
    gate.may_write.set()
    assert [await written, await waiting] == 2 * [["written"]]
    expected = [("write_later", "ok"), ("write_later", "ok"), (tool, "refused")]
    assert await outcomes(log) == sorted(expected)


@pytest.mark.parametrize("tool", ["write_now", "write_later"])
async def test_a_call_that_waits_too_long_for_its_line_does_not_run(
    log, gate, caller, settings, tool
):
    settings.MCP_DJANGO = {"QUEUE_SECONDS": 0.05}
    answer = await caller.ask("tools/call", name=tool, arguments={})
    assert answer.status == 503
    assert RAN == []
    gate.may_write.set()
    assert await outcomes(log) == [(tool, "refused")]


@pytest.mark.parametrize("leaving", ["client", "server"])
@pytest.mark.parametrize("is_taken", [False, True])
async def test_a_call_that_is_left_while_it_waits_for_its_line_does_not_run(
    log, gate, server, caller, queued, leaving, is_taken
):
    before = []
    if not is_taken:
        before = [asyncio.create_task(caller.texts("write_later"))]
        await queued.acquire()
        await gate.begun()
    body = message("tools/call", {"name": "write_later", "arguments": {}})
    async with connect(RawASGIMount(server), "/mcp", body) as connection:
        await queued.acquire()
        if is_taken:
            await gate.begun()
        if leaving == "client":
            connection.disconnect()
        else:
            connection.task.cancel()
        await asyncio.wait([connection.task])
        if leaving == "server":
            connection.task = asyncio.create_task(asyncio.sleep(0))
    gate.may_write.set()
    await asyncio.gather(*before)
    assert len(before) * ["later"] == RAN
    expected = [("write_later", "cancelled"), *len(before) * [("write_later", "ok")]]
    assert await outcomes(log) == expected


@pytest.mark.parametrize("tool", ["write_now", "write_later"])
async def test_the_last_line_of_a_call_survives_the_database(log, caller, monkeypatch, tool):
    write = CALL_ROWS.write
    failed: list[Any] = []

    def fail(rows: Any, *, again: bool) -> Any:
        if any(row.is_end for row in rows) and len(failed) < 2:
            failed.append(rows)
            raise OperationalError("gone")
        return write(rows, again=again)

    monkeypatch.setattr(CALL_ROWS, "write", fail)
    assert await caller.texts(tool) == ["written"]
    assert await outcomes(log)
    assert await outcomes(log) == [(tool, "ok")]
    assert len(failed) == 2


async def test_a_transaction_of_the_site_delays_a_call_and_loses_nothing(log, caller):
    is_held, go = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Group.objects.create(name="held")
                is_held.set()
                assert go.wait(PATIENCE)
        finally:
            connections.close_all()

    holding = asyncio.create_task(asyncio.to_thread(hold))
    assert await asyncio.to_thread(is_held.wait, PATIENCE)
    calls = [asyncio.create_task(caller.texts(tool)) for tool in ("write_now", "write_later")]
    go.set()
    await holding
    assert await asyncio.gather(*calls) == 2 * [["written"]]
    assert await outcomes(log) == [("write_later", "ok"), ("write_now", "ok")]
