"""The cache of what the database confirmed: how long it is valid, and what it never restores."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from mcp_django.protocol.envelope import MAX_CAPABILITIES_BYTES, MAX_CLIENT_BYTES
from mcp_django.storage import cache
from mcp_django.storage.cache import Confirmed, RefreshAheadCache
from mcp_django.storage.sessions import SessionRecord
from tests.kit.confirming import _clock, _serving  # noqa: F401 - fixtures
from tests.kit.drivers import PATIENCE

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]


class Table:
    """Rows with tags by their keys; `asked` lists the keys of each query."""

    def __init__(self, **rows: str) -> None:
        self.rows = rows
        self.asked: list[list[str]] = []
        self.seconds = float("inf")
        self.while_asking: Callable[[], object] = lambda: None

    def read_many(self, keys: Collection[str]) -> dict[str, Confirmed[str]]:
        """Query rows; `while_asking` is called before the rows are returned."""
        self.asked.append(sorted(keys))
        rows = {
            key: Confirmed(self.rows[key], frozenset({f"row:{key}", "all"}), self.seconds)
            for key in keys
            if key in self.rows
        }
        self.while_asking()
        return rows


@pytest.fixture
def table():
    return Table(a="1", b="2", c="3")


@pytest.fixture
def values(table):
    return RefreshAheadCache("values", table.read_many, size=3)


Values = RefreshAheadCache[str, str]


def test_a_value_is_used_for_a_second(values, table, clock):
    assert values.fetch("a") == "1"
    table.rows["a"] = "changed"
    clock.move(0.99)
    assert values.get("a") == values.fetch("a") == "1"
    assert table.asked == [["a"]]
    clock.move(0.01)
    assert values.get("a") is None
    assert values.fetch("a") == "changed"


def test_the_second_begins_with_the_question(values, table, clock):
    table.while_asking = lambda: clock.move(0.6)
    assert values.fetch("a") == "1"
    clock.move(0.39)
    assert values.get("a") == "1"
    clock.move(0.01)
    assert values.get("a") is None


def test_a_machine_that_was_suspended_uses_nothing_old(values, table, clock):
    values.fetch("a")
    clock.suspend(60)
    assert values.get("a") is None
    assert values.fetch("a") == "1"
    # A clock that is set back does not make a value last longer.
    clock.suspend(-3600)
    assert values.get("a") == "1"
    clock.move(1)
    assert values.get("a") is None


def test_a_value_may_hold_for_less(values, table, clock):
    table.seconds = 0.25
    values.fetch("a")
    clock.move(0.24)
    assert values.get("a") == "1"
    clock.move(0.01)
    assert values.get("a") is None


def test_what_does_not_exist_is_asked_for_each_time(values, table):
    assert values.fetch("x") is values.fetch("x") is None
    assert table.asked == [["x"], ["x"]]
    table.rows["x"] = "new"
    assert values.fetch("x") == "new"


# Changes ------------------------------------------------------------------------------------------


def test_what_is_forgotten_is_asked_for_at_once(values, table):
    values.read("ab")
    table.rows["a"] = "changed"
    cache.forget("row:a", "row:unknown")
    assert values.get("a") is None
    assert values.get("b") == "2"
    assert values.fetch("a") == "changed"
    cache.forget("all")
    assert len(values) == 0


def test_a_question_on_its_way_does_not_bring_back_what_was_forgotten(values, table):
    def revoke() -> None:
        table.rows.pop("a", None)
        cache.forget("row:a")

    table.while_asking = revoke
    # The first query still returned the row; the second one ran after the change.
    assert values.read("ab") == {"b": "2"}
    assert table.asked == [["a", "b"], ["a"]]
    assert values.get("a") is None
    # A change during a query affects only the values that it concerns.
    assert values.get("b") == "2"


def test_what_changes_all_the_time_is_answered_and_not_stored(values, table):
    table.while_asking = lambda: cache.forget("row:a")
    assert values.fetch("a") == "1"
    assert len(table.asked) == cache.ATTEMPTS
    assert values.get("a") is None


def test_nothing_on_its_way_is_stored_after_everything_was_forgotten(values, table):
    table.while_asking = cache.clear_caches
    assert values.fetch("a") == "1"
    assert values.get("a") is None


def test_a_question_that_takes_long_remembers_only_so_much(values, table):
    changes = iter([[f"row:{n}" for n in range(10)], []])
    table.while_asking = lambda: cache.forget(*next(changes))
    assert values.fetch("a") == "1"
    # It queried again, because otherwise it would have missed a change.
    assert table.asked == [["a"], ["a"]]
    assert values.get("a") == "1"


def test_a_question_that_failed_leaves_nothing_behind(values, table):
    def fail() -> None:
        raise OperationalError("away")

    table.while_asking = fail
    with pytest.raises(OperationalError):
        values.fetch("a")
    table.while_asking = lambda: None
    values.fetch("a")
    cache.forget("row:a")
    values.fetch("a")
    assert values.get("a") == "1"


# Confirming ---------------------------------------------------------------------------------------


def test_what_is_used_is_confirmed_together(values, table, clock):
    values.read("abc")
    for keys in (["a", "b"], ["c", "a", "b"]) * 4:
        clock.move(0.4)
        assert (values.get("a"), values.get("b")) == ("1", "2")
        table.asked.clear()
        assert values.confirm() == len(keys)
        # A value that was not used since is queried half as often.
        assert [sorted(question) for question in table.asked] == [sorted(keys)]


def test_a_caller_who_comes_back_soon_is_known(values, table, clock):
    values.read("a")
    for _ in range(12):
        clock.move(0.4)
        values.confirm()
    table.asked.clear()
    assert values.fetch("a") == "1"
    assert table.asked == []
    for _ in range(15):
        clock.move(0.4)
        values.confirm()
    # A caller that does not come back is no longer queried.
    assert len(values) == 0
    table.asked.clear()
    assert values.confirm() == 0
    assert table.asked == []


def test_what_is_gone_is_dropped_by_a_confirmation(values, table, clock):
    values.read("ab")
    assert values.get("a") == "1"
    del table.rows["a"]
    values.confirm()
    assert values.get("a") is None
    assert values.get("b") == "2"


def test_confirmations_come_in_parts(values, table, monkeypatch):
    monkeypatch.setattr(cache, "CHUNK", 2)
    values.read("abc")
    assert [values.get(key) for key in "abc"] == ["1", "2", "3"]
    table.asked.clear()
    assert values.confirm() == 3
    assert table.asked == [["a", "b"], ["c"]]


def test_what_was_not_used_is_not_kept(values, table, clock):
    values.read("ab")
    values.get("a")
    clock.move(5.1)
    assert values.confirm() == 0
    assert len(values) == 0


def test_the_least_recently_confirmed_makes_room(values, table):
    table.rows |= {"d": "4", "e": "5"}
    for key in "abc":
        values.fetch(key)
    values.get("a")
    values.confirm()
    values.fetch("d")
    assert [values.get(key) for key in "abcd"] == ["1", None, "3", "4"]
    assert len(values) == 3


def test_ten_thousand_sessions_of_talkative_clients_have_room():
    def read_many(keys: Collection[int]) -> dict[int, Confirmed[SessionRecord]]:
        return {key: Confirmed(record(key), frozenset({f"session:{key}"})) for key in keys}

    def record(pk: int) -> SessionRecord:
        return SessionRecord(
            pk=pk,
            digest=f"{pk:064x}",
            protocol_version="2025-11-25",
            client_info="x" * (MAX_CLIENT_BYTES - 8) + f"{pk:08}",
            capabilities="y" * (MAX_CAPABILITIES_BYTES - 8) + f"{pk:08}",
            log_level="debug",
            is_initialized=True,
            created_at=timezone.now(),
        )

    sessions = RefreshAheadCache("live", read_many)
    tracemalloc.start()
    try:
        for first in range(0, 12_000, 500):
            sessions.read(range(first, first + 500))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(sessions) == cache.MAX_ENTRIES
    assert size < 100 * 2**20


# Transactions and settings ------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_transaction_of_the_site_is_not_cached(values, table):
    values.fetch("a")
    table.rows["a"] = "uncommitted"
    with transaction.atomic():
        assert values.fetch("a") == "uncommitted"
    assert values.fetch("a") == "1"
    connection.set_autocommit(False)
    try:
        assert values.fetch("a") == "uncommitted"
    finally:
        connection.set_autocommit(True)


def test_with_a_setting_of_0_each_request_asks(values, table, settings):
    values.fetch("a")
    settings.MCP_DJANGO = {"CONFIRM_SECONDS": 0}
    assert values.fetch("a") == values.fetch("a") == "1"
    assert len(table.asked) == 3
    assert len(values) == 0


def test_a_forked_child_begins_anew(values, table):
    values.fetch("a")
    with values._lock:
        cache._begin_anew()
    assert values.get("a") is None
    assert values.fetch("a") == "1"


# The thread ---------------------------------------------------------------------------------------


class Door:
    """Makes a query wait until the test releases it."""

    def __init__(self, table: Table) -> None:
        self.is_asking = threading.Semaphore(0)
        self.may_answer = threading.Event()
        table.while_asking = self.wait

    def wait(self) -> None:
        """Wait until the test releases the query."""
        self.is_asking.release()
        assert self.may_answer.wait(PATIENCE)


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


@pytest.mark.usefixtures("serving")
def test_questions_that_come_together_are_asked_together(table, monkeypatch):
    values: Values = RefreshAheadCache("values", table.read_many)
    table.rows = {str(n): f"value {n}" for n in range(30)}
    door = Door(table)
    with ThreadPoolExecutor(61) as pool:
        first = pool.submit(values.fetch, "0")
        assert door.is_asking.acquire(timeout=PATIENCE)
        # Each value is requested twice.
        rest = [pool.submit(values.fetch, str(n % 30)) for n in range(60)]
        while cache._thread._questions.qsize() < 60:
            threading.Event().wait(0.001)
        door.may_answer.set()
        assert first.result(PATIENCE) == "value 0"
        assert [future.result(PATIENCE) for future in rest] == [
            f"value {n % 30}" for n in range(60)
        ]
    assert table.asked == [["0"], sorted(str(n) for n in range(1, 30))]


@pytest.mark.usefixtures("serving")
def test_a_failure_reaches_every_request_that_waits(values, table):
    def fail() -> None:
        raise OperationalError("away")

    def fetch(number: int) -> str | None:
        try:
            return values.fetch("abc"[number])
        except OperationalError as exc:
            return str(exc)

    table.while_asking = fail
    assert in_threads(3, fetch) == ["away"] * 3
    table.while_asking = lambda: None
    assert in_threads(3, fetch) == ["1", "2", "3"]


@pytest.mark.usefixtures("serving")
def test_a_key_that_cannot_be_asked_for_fails_alone(values, table):
    read_many = table.read_many

    def read_possible(keys: Collection[str]) -> dict[str, Confirmed[str]]:
        rows = read_many(keys)
        if "b" in keys:
            raise ValueError("b")
        return rows

    values._read_many = read_possible
    door = Door(table)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(values.fetch, "a")
        assert door.is_asking.acquire(timeout=PATIENCE)
        rest = [pool.submit(values.fetch, key) for key in "bc"]
        while cache._thread._questions.qsize() < 2:
            threading.Event().wait(0.001)
        door.may_answer.set()
        assert first.result(PATIENCE) == "1"
        with pytest.raises(ValueError, match="b"):
            rest[0].result(PATIENCE)
        assert rest[1].result(PATIENCE) == "3"
    assert table.asked == [["a"], ["b", "c"], ["b"], ["c"]]


@pytest.mark.usefixtures("serving")
def test_a_thread_that_does_not_respond_delays_a_request_only(values, table, monkeypatch, caplog):
    monkeypatch.setattr(cache, "ASK_SECONDS", 0.01)
    door = Door(table)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(values.fetch, "b")
        # Both the thread and the request that waited for it query the value.
        assert door.is_asking.acquire(timeout=PATIENCE)
        assert door.is_asking.acquire(timeout=PATIENCE)
        table.while_asking = lambda: None
        assert values.fetch("a") == "1"
        door.may_answer.set()
        assert other.result(PATIENCE) == "2"
    assert "does not respond" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.usefixtures("serving")
def test_a_thread_that_was_killed_is_started_again(values, monkeypatch):
    def die(*args: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(cache, "ASK_SECONDS", 0.01)
        patch.setattr(cache._thread, "_answer", die)
        # The thread dies during the query, and the request queries by itself.
        assert values.fetch("a") == "1"
        dead = cache._thread._thread
        assert dead is not None
        dead.join(PATIENCE)
        assert not dead.is_alive()
    assert values.fetch("b") == "2"
    assert cache._thread._thread is not dead
