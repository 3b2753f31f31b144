"""The threads of a process: which job gets one, in which order, and what happens to the others."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.test import override_settings

from mcp_django.auth.limits import Member
from mcp_django.exceptions import Busy
from mcp_django.execution import threads
from mcp_django.execution.threads import BoundedPool, count_job_for

PATIENCE = 10

# How long a factory waits for a call by a second thread.
MOMENT_SECONDS = 0.2


def slowly(made: list[object]) -> Callable[..., Any]:
    """Return a factory that waits a moment for a call by another thread."""
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


def test_there_is_one_pool_of_each_name(monkeypatch):
    made: list[object] = []
    monkeypatch.setattr(threads, "_pools", {})
    monkeypatch.setattr(threads, "_create_pool", slowly(made))
    first, second = at_once(lambda: threads.get_pool("tool"))
    assert first is second
    assert len(made) == 1


def test_a_test_that_changes_the_sizes_has_such_pools_and_no_other_has():
    usual = threads.get_pool("tool")
    with override_settings(MCP_DJANGO={"THREADS": 1}):
        assert threads.get_pool("tool").sizes["threads"] == 1
        assert threads.get_pool("short").sizes["threads"] == threads.SHORT_TASK_THREADS
    assert threads.get_pool("tool").sizes == usual.sizes
    with override_settings(MCP_DJANGO={"PAGE_SIZE": 7}):
        kept = threads.get_pool("tool")
    assert threads.get_pool("tool") is kept


@pytest.fixture
def make():
    """A function that creates pools, which are closed after the test."""
    made: list[BoundedPool] = []

    def make_pool(threads: int = 4, queue: int = 8, seconds: float = PATIENCE, **more: Any) -> Any:
        made.append(
            BoundedPool("test", threads=threads, queue=queue, queue_seconds=seconds, **more)
        )
        return made[-1]

    yield make_pool
    for pool in made:
        assert pool.close(seconds=PATIENCE)


class Works:
    """Jobs that record that they began, and end when the test lets them."""

    def __init__(self, pool: BoundedPool) -> None:
        self._pool = pool
        self.began: list[str] = []
        self._begun, self._go = threading.Semaphore(0), threading.Semaphore(0)

    def submit(self, name: str, key: str | None) -> Future[None]:
        def work() -> None:
            self.began.append(name)
            self._begun.release()
            assert self._go.acquire(timeout=PATIENCE)

        return self._pool.submit(work, key=key)

    def wait_for(self, count: int) -> None:
        """Wait until this many more jobs have begun."""
        for _ in range(count):
            assert self._begun.acquire(timeout=PATIENCE)

    def let_go(self, count: int = 1) -> None:
        """Let this many jobs end."""
        self._go.release(count)


def test_as_many_run_at_once_as_there_are_threads(make):
    pool = make(threads=3, queue=0)
    together = threading.Barrier(3)
    running = [pool.submit(lambda: together.wait(PATIENCE)) for _ in range(3)]
    assert sorted(future.result(PATIENCE) for future in running) == [0, 1, 2]


def test_a_share_is_free_when_its_caller_learns_of_the_result(make):
    pool = make(threads=2, queue=0)
    running: list[int] = []
    for _ in range(20):
        job = pool.submit(lambda: None, key="alice")
        job.add_done_callback(lambda _: running.append(pool._running.get("alice", 0)))
        job.result(PATIENCE)
    assert set(running) == {0}


def test_threads_start_as_they_are_needed_and_are_used_again(make):
    pool = make(threads=3)
    names = {
        pool.submit(lambda: threading.current_thread().name).result(PATIENCE) for _ in range(9)
    }
    # The thread that has just finished may not be free yet when the next job is submitted.
    assert names <= {f"mcp-test_{n}" for n in range(3)}
    works = Works(pool)
    for n in range(3):
        works.submit(str(n), None)
    works.wait_for(3)
    works.let_go(3)


def test_nobody_has_more_than_half_of_the_threads(make):
    pool = make(threads=4, queue=20)
    works = Works(pool)
    for n in range(6):
        works.submit(f"mallory {n}", "mallory")
    works.wait_for(2)
    for n in range(2):
        works.submit(f"alice {n}", "alice")
    works.wait_for(2)
    assert set(works.began[:2]) == {"mallory 0", "mallory 1"}
    assert set(works.began[2:]) == {"alice 0", "alice 1"}
    works.let_go(8)
    works.wait_for(4)
    assert sorted(works.began[4:]) == [f"mallory {n}" for n in range(2, 6)]


def test_nobody_has_more_than_half_of_the_queue(make):
    pool = make(threads=2, queue=6)
    works = Works(pool)
    for n in range(1 + 3):
        works.submit(str(n), "mallory")
    with pytest.raises(Busy, match="All workers are busy") as caught:
        works.submit("one too many", "mallory")
    assert caught.value.data == {"retryAfter": PATIENCE}
    works.submit("alice", "alice")
    works.wait_for(2)
    assert set(works.began) == {"0", "alice"}
    works.let_go(5)
    works.wait_for(3)


def test_the_queue_has_an_end_for_all_together(make):
    pool = make(threads=2, queue=2)
    works = Works(pool)
    for n in range(4):
        works.submit(str(n), f"user:{n}")
    with pytest.raises(Busy):
        works.submit("5", "user:5")
    works.let_go(4)
    works.wait_for(4)
    works.submit("5", "user:5")
    works.let_go()
    works.wait_for(1)


def test_one_after_the_other_has_a_turn(make):
    pool = make(threads=1, queue=40)
    works = Works(pool)
    works.submit("first", None)
    works.wait_for(1)
    for name, count in (("a", 5), ("b", 2), ("c", 1)):
        for n in range(count):
            works.submit(f"{name}{n}", name)
    works.let_go(9)
    works.wait_for(8)
    assert works.began[1:] == ["a0", "b0", "c0", "a1", "b1", "a2", "a3", "a4"]


def test_the_processs_own_work_has_all_threads(make):
    pool = make(threads=4)
    works = Works(pool)
    for n in range(4):
        works.submit(str(n), None)
    works.wait_for(4)
    works.let_go(4)


def test_work_counts_for_whoever_is_found_to_call(make):
    pool = make(threads=4, queue=20)
    begun = threading.Semaphore(0)
    counted, go = threading.Semaphore(0), threading.Event()

    def work() -> str:
        begun.release()
        count_job_for("mallory")
        counted.release()
        assert go.wait(PATIENCE)
        return "done"

    futures = [pool.submit(work, key="unproven") for _ in range(4)]
    # Jobs of Mallory use a full share, and the rest wait; none counts as unproven any longer.
    for _ in futures:
        assert begun.acquire(timeout=PATIENCE)
    for _ in range(2):
        assert counted.acquire(timeout=PATIENCE)
    assert pool.submit(lambda: "served", key="unproven").result(PATIENCE) == "served"
    assert pool.submit(lambda: "served", key="alice").result(PATIENCE) == "served"
    assert not counted.acquire(blocking=False)
    go.set()
    assert [future.result(PATIENCE) for future in futures] == ["done"] * 4


async def test_what_has_to_wait_as_somebody_elses_waits_no_longer_than_it_may(make):
    pool = make(threads=4, queue=8, seconds=0.01)
    works = Works(pool)
    for n in range(2):
        works.submit(str(n), "mallory")
    works.wait_for(2)
    is_late = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, is_late.set)

    def work() -> None:
        # The time limit is reached before the job's caller is known.
        asyncio.run_coroutine_threadsafe(is_late.wait(), loop).result(PATIENCE)
        count_job_for("mallory")
        works.began.append("late")

    with pytest.raises(Busy):
        await pool.run(work, key="unproven")
    with pytest.raises(Busy):
        await pool.run(lambda: count_job_for("mallory"), key="unproven")
    for n in range(4):
        works.submit(f"waiting {n}", "mallory")
    with pytest.raises(Busy):
        await pool.run(lambda: count_job_for("mallory"), key="unproven")
    works.let_go(6)
    works.wait_for(4)
    assert "late" not in works.began


def test_outside_of_a_pool_nothing_is_counted():
    count_job_for("mallory")


def test_what_is_cancelled_before_it_begins_never_does(make):
    pool = make(threads=1, queue=4)
    works = Works(pool)
    works.submit("first", "a")
    works.wait_for(1)
    second = works.submit("second", "a")
    assert second.cancel()
    for n in range(2):
        works.submit(f"later {n}", "a")
    # Its place in the queue is free again.
    with pytest.raises(Busy):
        works.submit("one too many", "a")
    works.let_go(3)
    works.wait_for(2)
    assert works.began == ["first", "later 0", "later 1"]
    running = works.submit("running", "b")
    works.wait_for(1)
    assert not running.cancel()
    works.let_go()


async def test_what_waits_too_long_is_told_and_never_begins(make):
    pool = make(threads=1, queue=4, seconds=0.01)
    works = Works(pool)
    works.submit("first", "a")
    works.wait_for(1)
    with pytest.raises(Busy):
        await pool.run(lambda: works.began.append("late"), key="b")
    works.let_go()
    assert await pool.run(lambda: "served", key="b") == "served"
    assert works.began == ["first"]


async def test_who_leaves_takes_the_work_along_that_has_not_begun(make):
    pool = make(threads=1)
    works = Works(pool)
    works.submit("first", "a")
    works.wait_for(1)
    left = asyncio.ensure_future(pool.run(lambda: works.began.append("left"), key="b"))
    await asyncio.sleep(0)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    works.let_go()
    assert await pool.run(lambda: "served") == "served"
    assert works.began == ["first"]


async def test_work_has_the_context_of_whoever_asks_and_its_failure_goes_there(make):
    pool = make()
    who = contextvars.ContextVar("who", default="nobody")
    who.set("ada")
    assert await pool.run(who.get) == "ada"

    def change() -> None:
        who.set("bob")

    await pool.run(change)
    assert who.get() == "ada"
    for error in (ValueError("wrong"), SystemExit(3), StopIteration()):

        def fail(error: BaseException = error) -> None:
            raise error

        expected = RuntimeError if isinstance(error, StopIteration) else type(error)
        with pytest.raises(expected):
            await pool.run(fail)
        assert await pool.run(lambda: "served") == "served"


async def test_a_loop_is_woken_once_for_all_that_is_done(make, monkeypatch):
    pool = make(threads=4, queue=100)
    loop, woken = asyncio.get_running_loop(), []
    original = loop.call_soon_threadsafe

    def counted(*args: Any, **kwargs: Any) -> Any:
        woken.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    all_done = threading.Semaphore(0)
    running = [asyncio.ensure_future(pool.run(all_done.release)) for _ in range(50)]
    await asyncio.sleep(0)
    for _ in running:
        assert all_done.acquire(timeout=PATIENCE)
    # The loop was blocked until all jobs were done, except for the end of the last ones.
    await asyncio.gather(*running)
    assert 1 <= len(woken) <= 5


def run_apart(script: str) -> str:
    """Run a script in another process, and return its output."""
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    begin = "import django; django.setup()\nfrom mcp_django.execution.threads import get_pool\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + script],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.outside
def test_a_process_that_was_forked_has_threads_of_its_own():
    output = run_apart(
        "import os, threading\n"
        "go = threading.Event()\n"
        "get_pool('tool').submit(go.wait, key='a')\n"
        "if (pid := os.fork()) == 0:\n"
        "    print(get_pool('tool').submit(lambda: 'served', key='a').result(10), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0); go.set()\n"
    )
    assert output == "served\n"


@pytest.mark.outside
def test_a_process_ends_when_its_calls_have_and_waits_for_no_task():
    output = run_apart(
        "import threading\n"
        "begun, never = threading.Semaphore(0), threading.Event()\n"
        "def call(): begun.release(); threading.main_thread().join(10); print('call')\n"
        "def task(): begun.release(); never.wait(); print('task')\n"
        "get_pool('tool').submit(call); get_pool('task').submit(task)\n"
        "begun.acquire(); begun.acquire()\n"
    )
    assert output == "call\n"


# Callers that count as one ------------------------------------------------------------------------

A, B, C = (Member("strangers", name) for name in "abc")


def assert_empty(pool: BoundedPool) -> None:
    """Assert that no job is left, neither running nor waiting."""
    assert pool.close(seconds=PATIENCE)
    assert (pool._running, pool._queued, pool._waiting_count) == ({}, {}, 0)
    assert not pool.is_crowded


@pytest.mark.parametrize(
    ("size", "share", "member_share"),
    [(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 2, 1), (5, 2, 1), (7, 3, 1), (8, 4, 2), (16, 8, 4)],
)
def test_as_many_run_at_once_as_the_share_says(size, share, member_share, make):
    pool = make(threads=size, queue=1000)
    assert [pool.share_of(key) for key in (None, "alice", A)] == [size, share, member_share]
    for keys, most in ((["alice"], share), ([A], member_share), ([A, B, C, "strangers"], share)):
        works = Works(pool)
        jobs = [works.submit(str(key), key) for key in keys for _ in range(size)]
        works.wait_for(most)
        # Jobs of the process itself take the rest, so that no other job can begin.
        for _ in range(size - most):
            works.submit("own", None)
        works.wait_for(size - most)
        assert len(works.began) == size
        works.let_go(len(jobs) + size - most)
        works.wait_for(len(jobs) - most)
    assert_empty(pool)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_as_many_wait_as_the_share_says_whoever_has_the_threads(size, make):
    pool = make(threads=size, queue=8)
    works = Works(pool)
    for _ in range(size):
        works.submit("own", None)
    works.wait_for(size)

    def fill(key: Any) -> int:
        count = 0
        try:
            while True:
                works.submit(str(key), key)
                count += 1
        except Busy:
            return count

    # All strangers get half of the queue, and one of them half of that.
    assert [fill(key) for key in (A, B, C, "strangers", "alice", "bob", None)] == [
        *(2, 2, 0, 0, 4, 0, 0),
    ]
    works.let_go(size + 8)
    works.wait_for(8)
    assert_empty(pool)


def test_one_that_is_not_told_apart_has_what_all_have_together(make):
    pool = make(threads=8, queue=8)
    works = Works(pool)
    for _ in range(8):
        works.submit("unknown", "strangers")
    works.wait_for(4)
    with pytest.raises(Busy):
        works.submit("unknown", "strangers")
    with pytest.raises(Busy):
        works.submit("a", A)
    works.let_go(8)
    works.wait_for(4)
    assert_empty(pool)


def test_a_member_with_all_its_threads_leaves_the_others_theirs(make):
    pool = make(threads=8, queue=64)
    works = Works(pool)
    for n in range(2 + 16):
        works.submit(f"a{n}", A)
    works.wait_for(2)
    with pytest.raises(Busy):
        works.submit("a one too many", A)
    for n in range(3):
        works.submit(f"b{n}", B)
    works.wait_for(2)
    # All strangers have reached their half, so a third one waits for its turn.
    works.submit("c", C)
    works.submit("alice", "alice")
    works.wait_for(1)
    # Jobs of one member begin in two threads, in either order.
    assert sorted(works.began) == ["a0", "a1", "alice", "b0", "b1"]
    works.let_go(18 + 3 + 2)
    works.wait_for(18)
    assert works.began.index("c") < works.began.index("a4")
    assert_empty(pool)


def test_members_take_turns_within_the_turns_of_all_callers(make):
    pool = make(threads=1, queue=40)
    works = Works(pool)
    works.submit("first", None)
    works.wait_for(1)
    for name, key, count in (("a", A, 4), ("alice ", "alice", 4), ("b", B, 2), ("c", C, 1)):
        for n in range(count):
            works.submit(f"{name}{n}", key)
    works.let_go(12)
    works.wait_for(11)
    # Alice does not wait for the strangers, however many there are.
    assert works.began[1:] == [
        *("a0", "alice 0", "b0", "alice 1", "c0", "alice 2", "a1", "alice 3", "b1", "a2", "a3"),
    ]
    assert_empty(pool)


def test_a_member_that_is_withdrawn_leaves_its_place_to_others(make):
    pool = make(threads=1, queue=4)
    works = Works(pool)
    works.submit("first", None)
    works.wait_for(1)
    waiting = works.submit("a", A)
    with pytest.raises(Busy):
        works.submit("a", A)
    assert waiting.cancel()
    works.submit("a again", A)
    works.submit("b", B)
    works.let_go(3)
    works.wait_for(2)
    assert works.began == ["first", "a again", "b"]
    assert_empty(pool)


def test_work_counts_for_another_member_of_the_same_callers(make):
    pool = make(threads=4, queue=20)
    counted, go = threading.Semaphore(0), threading.Event()

    def work() -> None:
        count_job_for(B)
        counted.release()
        assert go.wait(PATIENCE)

    # All strangers together get two threads, and each of them one.
    first = pool.submit(work, key=A)
    assert counted.acquire(timeout=PATIENCE)
    second = pool.submit(work, key=A)
    other = pool.submit(lambda: "served", key=C)
    assert other.result(PATIENCE) == "served"
    assert not counted.acquire(blocking=False)
    go.set()
    for future in (first, second):
        assert future.result(PATIENCE) is None
    assert_empty(pool)


def test_a_job_knows_whether_it_waited(make):
    pool = make(threads=1)
    works = Works(pool)
    assert pool.submit(threads.has_waited, key="a").result(PATIENCE) is False
    works.submit("first", None)
    works.wait_for(1)
    waiting = pool.submit(threads.has_waited, key="a")
    works.let_go()
    assert waiting.result(PATIENCE) is True
    assert threads.has_waited() is False
