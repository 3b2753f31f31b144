"""Processes as owners: their heartbeats, and the clock that all of them use."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from django.db import OperationalError
from django.utils import timezone

from mcp_django.models import Worker
from mcp_django.storage import inbox
from tests.transports.http_session.conftest import ELSEWHERE, HERE, as_worker, at_once, silence

# The original, before any test replaces it.
number_of = inbox._worker_id_of

pytestmark = pytest.mark.usefixtures("transactional_db", "here")


def test_a_process_lives_as_long_as_its_lease():
    with as_worker(ELSEWHERE):
        inbox.write_heartbeat()
    assert inbox.is_alive(ELSEWHERE)
    silence(ELSEWHERE, seconds=inbox.LEASE_SECONDS - 5)
    assert inbox.is_alive(ELSEWHERE)
    silence(ELSEWHERE, seconds=inbox.LEASE_SECONDS + 1)
    assert not inbox.is_alive(ELSEWHERE)


def test_a_process_that_never_beat_is_dead_and_this_one_lives():
    assert not inbox.is_alive(ELSEWHERE)
    assert inbox.is_alive(HERE)


def test_the_clock_of_the_process_does_not_matter(monkeypatch):
    with as_worker(ELSEWHERE):
        monkeypatch.setattr(timezone, "now", lambda: datetime(2001, 1, 1, tzinfo=UTC))
        inbox.write_heartbeat()
    monkeypatch.setattr(timezone, "now", lambda: datetime(2101, 1, 1, tzinfo=UTC))
    assert inbox.is_alive(ELSEWHERE)


def test_threads_that_come_first_at_once_are_of_one_process(monkeypatch):
    together = threading.Barrier(2)
    drawn = iter([1, 2])

    def draw(bits: int) -> int:
        together.wait(5)
        return next(drawn)

    monkeypatch.setattr(inbox, "_numbers", {})
    monkeypatch.setattr(inbox.secrets, "randbits", draw)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(number_of, [4711, 4711])
    assert first == second == number_of(4711)


def test_a_beat_that_was_said_a_moment_ago_is_not_repeated():
    inbox.ensure_heartbeat()
    silence(HERE)
    inbox.ensure_heartbeat()
    with as_worker(ELSEWHERE):
        assert not inbox.is_alive(HERE)
    inbox.write_heartbeat()
    with as_worker(ELSEWHERE):
        assert inbox.is_alive(HERE)


def test_a_beat_that_failed_was_not_said(monkeypatch):
    def away(model: object) -> object:
        raise OperationalError

    with monkeypatch.context() as patch:
        patch.setattr(inbox, "rows", away)
        with pytest.raises(OperationalError):
            inbox.ensure_heartbeat()
    inbox.ensure_heartbeat()
    with as_worker(ELSEWHERE):
        assert inbox.is_alive(HERE)


def test_the_first_beats_of_one_process_make_one_row():
    at_once(8, lambda _: inbox.write_heartbeat())
    assert Worker.objects.filter(pk=HERE).count() == 1


def test_only_the_first_beat_of_a_process_is_written_soon(monkeypatch):
    wanted: list[bool] = []
    monkeypatch.setattr(inbox.row_writer, "store", lambda kind, row, *, soon: wanted.append(soon))
    monkeypatch.setattr(inbox, "_last_heartbeats", {})
    assert not inbox.is_registered()
    inbox.write_heartbeat()
    assert inbox.is_registered()
    inbox._last_heartbeats[HERE] -= inbox.HEARTBEAT_SECONDS
    assert inbox.is_registered()
    assert wanted == [True, False]
