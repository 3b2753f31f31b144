"""The signal handler that ends streams: installed once, and run before the server's own."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import Any

import pytest

from mcp_django.storage.call_rows import CallLog
from mcp_django.storage.writer import BatchWriter
from mcp_django.transports import drain as process
from mcp_django.transports.drain import Drain
from mcp_django.transports.request_checks import wait_for_first
from tests.transports.stage import PATIENCE


@pytest.fixture
def received():
    """The signals that the server's own handlers get."""
    numbers: list[int] = []

    def handle(number: int, frame: Any) -> None:
        numbers.append(number)

    previous = {n: signal.signal(n, handle) for n in (signal.SIGTERM, signal.SIGINT)}
    yield numbers
    for number, handler in previous.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_server_gets_its_signal_after_the_streams(number, received, monkeypatch):
    # The drain would wait for rows that another test has this process write.
    monkeypatch.setattr("mcp_django.transports.drain.call_log", CallLog())
    monkeypatch.setattr("mcp_django.transports.drain.row_writer", BatchWriter("none"))
    drain = Drain()
    woken: list[bool] = []
    with drain.watch(lambda: woken.append(True)) as ending:
        drain.install_signal_handlers()
        drain.install_signal_handlers()
        signal.raise_signal(number)
        assert received == [number]
        async with asyncio.timeout(PATIENCE):
            await ending.wait()
    assert woken == [True]
    assert not drain._wakers


async def test_a_server_may_install_its_handler_later(received, monkeypatch):
    monkeypatch.setattr("mcp_django.transports.drain.call_log", CallLog())
    monkeypatch.setattr("mcp_django.transports.drain.row_writer", BatchWriter("none"))
    drain, now = Drain(), time.monotonic()
    drain.install_signal_handlers()
    signal.signal(signal.SIGTERM, lambda number, frame: received.append(-number))
    monkeypatch.setattr("mcp_django.transports.drain.time.monotonic", lambda: now + 2)
    drain.install_signal_handlers()
    signal.raise_signal(signal.SIGTERM)
    assert drain.draining
    assert received == [-signal.SIGTERM]


async def test_what_begins_during_the_drain_ends_at_once():
    drain = Drain()
    drain.begin()
    woken: list[bool] = []
    with drain.watch(lambda: woken.append(True)) as ending:
        assert ending.is_set()
    assert woken == [True]


async def test_another_thread_does_not_touch_the_signals(received):
    before = signal.getsignal(signal.SIGTERM)
    await asyncio.to_thread(Drain().install_signal_handlers)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_loop_that_is_closed_is_left_alone():
    drain = Drain()

    async def hold() -> None:
        drain.watch(lambda: None).__enter__()

    thread = threading.Thread(target=lambda: asyncio.run(hold()))
    thread.start()
    thread.join()
    drain.begin()
    assert drain.draining


async def test_a_server_that_cancels_its_requests_is_put_off_only_while_draining(monkeypatch):
    done = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(wait_for_first(done))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    monkeypatch.setattr(process._drain, "draining", True)
    waiting = asyncio.create_task(wait_for_first(done))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    done.set_result(None)
    await waiting
