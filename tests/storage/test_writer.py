"""Many callers write in one transaction, and each of them learns the outcome of its row."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import Error, IntegrityError, OperationalError, connections, transaction

from mcp_django.exceptions import Busy
from mcp_django.storage import writer
from mcp_django.storage.writer import BatchWriter
from tests.kit.drivers import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)


class Groups:
    """Rows of a table with unique names."""

    lock_seconds: float | None = None

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.may_write = threading.Event()
        self.may_write.set()
        self.is_writing = threading.Semaphore(0)

    def alias(self) -> str:
        return "default"

    def write(self, rows: Sequence[Any], *, again: bool) -> Sequence[Any]:
        self.batches.append(list(rows))
        self.is_writing.release()
        assert self.may_write.wait(PATIENCE)
        known = set(Group.objects.values_list("name", flat=True)) if again else set()
        Group.objects.bulk_create(Group(name=name) for name in rows if name not in known)
        return [f"wrote {name}" for name in rows]


@pytest.fixture
def groups():
    return Groups()


@pytest.fixture
def made(monkeypatch):
    """A writer as in a process that serves."""
    monkeypatch.setattr(BatchWriter, "is_inline", lambda self: False)
    batch_writer = BatchWriter("test-writer")
    yield batch_writer
    batch_writer.close()


class Callers:
    """Threads, each of which writes one row."""

    def __init__(self, made: BatchWriter, groups: Groups) -> None:
        self._made, self._groups = made, groups
        self._threads = ThreadPoolExecutor(20)
        self._running: list[Any] = []
        self._queued = threading.Semaphore(0)
        self._put = made._put

    def put(self, job: Any) -> None:
        """Queue a row."""
        self._put(job)
        self._queued.release()

    def write(self, name: Any) -> None:
        """Start one more write, and return when its row is queued."""
        self._running.append(self._threads.submit(self._write, name))
        assert self._queued.acquire(timeout=PATIENCE)

    def _write(self, name: Any) -> Any:
        try:
            return self._made.write(self._groups, name, seconds=PATIENCE)
        except Error as exc:
            return type(exc)
        finally:
            connections.close_all()

    def gather(self, names: Sequence[Any]) -> None:
        """Let the first row hold the writer's thread while the other rows are queued."""
        self._groups.may_write.clear()
        self.write(names[0])
        assert self._groups.is_writing.acquire(timeout=PATIENCE)
        for name in names[1:]:
            self.write(name)

    def outcomes(self) -> list[Any]:
        """Return the outcome of each caller, in the order in which they came."""
        self._groups.may_write.set()
        return [future.result(PATIENCE) for future in self._running]


@pytest.fixture
def callers(made, groups, monkeypatch):
    callers = Callers(made, groups)
    monkeypatch.setattr(made, "_put", callers.put)
    yield callers
    groups.may_write.set()
    callers._threads.shutdown()


def stored() -> str:
    return "".join(Group.objects.order_by("name").values_list("name", flat=True))


def test_what_gathers_is_written_together(callers, groups):
    callers.gather("abcdef")
    assert callers.outcomes() == [f"wrote {name}" for name in "abcdef"]
    assert groups.batches == [["a"], list("bcdef")]


def test_a_row_without_a_caller_is_written_after_one_that_a_caller_waited_for(made, groups):
    made._flush_delay = 0.01
    for name in "abc":
        assert made.write(groups, name, seconds=PATIENCE) == f"wrote {name}"
        assert groups.is_writing.acquire(timeout=PATIENCE)
        made.enqueue(groups, name.upper())
        assert groups.is_writing.acquire(timeout=PATIENCE), "the thread was not woken for it"
    assert groups.batches == [["a"], ["A"], ["b"], ["B"], ["c"], ["C"]]


def test_one_bad_row_costs_no_other(callers, groups):
    Group.objects.create(name="e")
    callers.gather("abcdefghij")
    groups.may_write.set()
    expected: list[Any] = [f"wrote {name}" for name in "abcdefghij"]
    expected[4] = IntegrityError
    # A row that is written alone may exist already, so it counts as stored.
    assert callers.outcomes() in (expected, [f"wrote {name}" for name in "abcdefghij"])
    assert stored() == "abcdefghij"


def lose_commit(groups: Groups, monkeypatch: pytest.MonkeyPatch, *, batch: int) -> list[str]:
    """Make the connection fail after the COMMIT of a batch, before its response.

    Return a list that shows whether it failed.
    """
    database: Any = type(connections["default"])
    commit, lost = database._commit, []

    def lose(self: Any) -> None:
        commit(self)
        is_writer = threading.current_thread().name == "test-writer"
        if is_writer and len(groups.batches) == batch and not lost:
            lost.append("lost")
            self.connection.close()
            self.connection = None if self.vendor == "sqlite" else self.connection
            raise OperationalError("The connection was lost.")

    monkeypatch.setattr(database, "_commit", lose)
    return lost


@pytest.mark.parametrize("batch", [1, 2])
def test_a_lost_answer_to_a_commit_loses_nothing_and_repeats_nothing(
    callers, groups, monkeypatch, batch
):
    # The writer opens a transaction, even for a single row.
    groups.lock_seconds = 1.0
    lost = lose_commit(groups, monkeypatch, batch=batch)
    callers.gather("abcdef")
    assert callers.outcomes() == [f"wrote {name}" for name in "abcdef"]
    assert lost == ["lost"]
    assert stored() == "abcdef"


@pytest.mark.parametrize("is_stopping", [False, True])
def test_an_exception_among_the_outcomes_is_raised_to_its_caller(
    made, groups, monkeypatch, is_stopping
):
    write = groups.write

    def refuse(rows: Sequence[Any], *, again: bool) -> Sequence[Any]:
        return [LookupError("no room") for _ in write(rows, again=again)]

    monkeypatch.setattr(groups, "write", refuse)
    made.is_stopping = is_stopping
    with pytest.raises(LookupError, match="no room"):
        made.write(groups, "a", seconds=PATIENCE)
    assert stored() == "a"


def test_in_a_transaction_a_thread_writes_by_itself(made, groups):
    with transaction.atomic():
        assert made.write(groups, "a", seconds=PATIENCE) == "wrote a"
        assert stored() == "a"
        with pytest.raises(IntegrityError):
            made.write(groups, "a", seconds=PATIENCE)
        # The transaction of the site still works.
        assert stored() == "a"
        transaction.set_rollback(True)
    assert stored() == ""
    assert made._thread is None


def test_a_process_that_stops_writes_immediately(made, groups):
    stopped = threading.Event()
    made.flush_and_stop(stopped.set)
    assert stopped.wait(PATIENCE)
    assert made.write(groups, "a", seconds=PATIENCE) == "wrote a"
    assert made._thread is None


def test_a_full_queue_refuses(callers, made, groups, monkeypatch):
    monkeypatch.setattr(writer, "MAX_WAITING", 2)
    callers.gather("abc")
    with pytest.raises(Busy) as caught:
        made.write(groups, "d", seconds=PATIENCE)
    assert caught.value.data == {"retryAfter": 1}
    assert made.refused == 1
    assert callers.outcomes() == [f"wrote {name}" for name in "abc"]
    assert stored() == "abc"


def test_who_waits_too_long_is_refused(callers, made, groups):
    callers.gather("a")
    with pytest.raises(Busy):
        made.write(groups, "late", seconds=0.01)
    callers.outcomes()
    # No caller waits for this row any longer, so it is not written.
    assert made.write(groups, "b", seconds=PATIENCE) == "wrote b"
    assert stored() == "ab"


async def test_many_wait_on_a_loop(made, groups):
    groups.may_write.clear()
    first = asyncio.ensure_future(made.awrite(groups, "a", seconds=PATIENCE))
    assert await asyncio.to_thread(groups.is_writing.acquire, timeout=PATIENCE)
    others = [asyncio.ensure_future(made.awrite(groups, n, seconds=PATIENCE)) for n in "bcdef"]
    left = asyncio.ensure_future(made.awrite(groups, "x", seconds=PATIENCE))
    late = asyncio.ensure_future(made.awrite(groups, "y", seconds=0.001))
    with pytest.raises(Busy):
        await late
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    groups.may_write.set()
    assert await asyncio.gather(first, *others) == [f"wrote {name}" for name in "abcdef"]
    assert [len(batch) for batch in groups.batches] == [1, 5]


def test_rows_that_somebody_waits_for_do_not_wait_for_others(made, groups, monkeypatch):
    monkeypatch.setattr(writer, "FLUSH_SECONDS", 3600.0)
    made._flush_delay = 3600.0
    for name in "abc":
        made.enqueue(groups, name)
    assert made.write(groups, "d", seconds=PATIENCE) == "wrote d"
    assert stored() == "d"
    assert made.flush()
    assert stored() == "abcd"


def test_a_row_that_is_wanted_soon_does_not_wait_for_others(made, groups, monkeypatch):
    monkeypatch.setattr(writer, "FLUSH_SECONDS", 1000)
    made._flush_delay = 1000
    made.store(groups, "later")
    made.store(groups, "soon", soon=True)
    assert groups.is_writing.acquire(timeout=PATIENCE)
    assert groups.batches == [["soon"]]


def test_they_are_written_between_the_batches_of_others(made, groups, callers, monkeypatch):
    monkeypatch.setattr(writer, "FLUSH_ROWS", 2)
    groups.may_write.clear()
    for name in "abcdef":
        made.enqueue(groups, name)
    assert groups.is_writing.acquire(timeout=PATIENCE)
    callers.write("x")
    assert callers.outcomes() == ["wrote x"]
    assert made.flush()
    assert ["x"] in groups.batches[:3]
    assert stored() == "abcdefx"


def test_others_are_written_although_there_is_always_a_row_that_somebody_waits_for(
    made, groups, monkeypatch
):
    monkeypatch.setattr(writer, "FLUSH_SECONDS", 0.01)
    made._flush_delay = 0.01
    write_urgent, is_over = made._write_urgent, threading.Event()

    def once_more() -> None:
        write_urgent()
        if not is_over.is_set():
            made._wake_queue.put(writer._URGENT)

    monkeypatch.setattr(made, "_write_urgent", once_more)
    made.enqueue(groups, "a")
    try:
        assert groups.is_writing.acquire(timeout=PATIENCE)
    finally:
        is_over.set()
    assert made.flush()
    assert stored() == "a"


@pytest.fixture
def held():
    """Another transaction that holds the database's lock until the test releases it."""
    is_held, go = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Group.objects.create(name="held")
                is_held.set()
                assert go.wait(PATIENCE)
        finally:
            connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_held.wait(PATIENCE)
    yield go.set
    go.set()
    thread.join()


def test_a_transaction_of_the_site_delays_and_loses_nothing(held, callers, groups):
    for name in "abc":
        callers.write(name)
    assert groups.is_writing.acquire(timeout=PATIENCE)
    held()
    assert callers.outcomes() == ["wrote a", "wrote b", "wrote c"]
    assert stored() == "abcheld"
