"""What a process has one of, whichever threads come first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mcp_django.runtime import pools
from mcp_django.runtime.tasks import engine

PATIENCE = 10

# As long as the second thread is given to begin a second one.
MOMENT_SECONDS = 0.2


def slowly(made: list[object]) -> Callable[..., Any]:
    """Makes something, and lets another thread make one meanwhile if it can."""
    twice = threading.Event()

    def make(*args: object) -> object:
        made.append(object())
        if len(made) > 1:
            twice.set()
        twice.wait(MOMENT_SECONDS)
        return made[0] if len(made) == 1 else object()

    return make


def at_once(work: Callable[[], object]) -> list[object]:
    together = threading.Barrier(2)

    def begin(_: int) -> object:
        together.wait(5)
        return work()

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(begin, range(2)))


def test_there_is_one_pool_of_each_name(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(pools, "_pools", {})
    monkeypatch.setattr(pools, "_make", slowly(made))
    first, second = at_once(lambda: pools.pool("work"))
    assert first is second
    assert len(made) == 1


def test_as_many_run_at_once_as_there_are_threads() -> None:
    pool = pools.BoundedPool("test", threads=3, queue=0, queue_seconds=1)
    # What CPython does by mistake: it takes threads for idle that do not exist.
    for _ in range(3):
        pool._executor._idle_semaphore.release()
    together = threading.Barrier(3)
    running = [pool.submit(lambda: together.wait(PATIENCE)) for _ in range(3)]
    assert sorted(one.result(PATIENCE) for one in running) == [0, 1, 2]
    pool._executor.shutdown()


def test_there_is_one_set_of_threads_for_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    engine._made.cache_clear()
    monkeypatch.setattr(engine, "Threads", slowly(made))
    try:
        first, second = at_once(engine.threads)
    finally:
        engine._made.cache_clear()
    assert first is second
    assert len(made) == 1
