"""Fixed windows in the site's cache: what they count, and what happens without a cache."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_django.auth import limits
from mcp_django.auth.limits import PerMinute


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock at ten seconds past a minute, which a test can move."""
    moment = SimpleNamespace(now=60_000_010.0, since_start=0.0)
    fake = SimpleNamespace(time=lambda: moment.now, monotonic=lambda: moment.since_start)
    monkeypatch.setattr(limits, "time", fake)
    monkeypatch.setattr(limits, "_logged_at", {})
    return moment


def take(key: str = "a", **changes: Any) -> int:
    return limits.count_event("test", key, **{"limit": 2, "seconds": 60, **changes})


def look(key: str = "a", **changes: Any) -> int:
    return limits.check_limit("test", key, **{"limit": 2, "seconds": 60, **changes})


def test_within_the_limit_nothing_is_said_and_over_it_when_to_come_again():
    assert [take(), take(), take(), take()] == [0, 0, 50, 50]


def test_each_key_and_each_limit_has_a_count_of_its_own():
    assert [take(), take(), take()] == [0, 0, 50]
    assert take("b") == 0
    assert limits.count_event("other", "a", limit=2, seconds=60) == 0


def test_the_next_window_begins_from_nothing(clock):
    assert [take(), take(), take()] == [0, 0, 50]
    clock.now += 49
    assert take() == 1
    clock.now += 1
    assert [take(), take(), take()] == [0, 0, 60]


def test_a_look_counts_nothing():
    assert [look() for _ in range(5)] == [0] * 5
    assert [take(), look(), take(), look(), look()] == [0, 0, 0, 50, 50]
    assert take("b") == look("b") == 0


@pytest.mark.parametrize("key", ["", "x" * 10_000, "a b\r\n", "\ud800", "::1"])
def test_any_text_may_be_a_key(key):
    assert [take(key), take(key), take(key)] == [0, 0, 50]


class Broken:
    """A cache that is down."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionError("the cache is down")


def test_a_cache_that_is_down_limits_nothing_and_is_told_once_a_minute(clock, monkeypatch, caplog):
    monkeypatch.setattr(limits, "cache", Broken())
    caplog.set_level(logging.ERROR, "mcp_django.security")
    assert [take() for _ in range(5)] + [look() for _ in range(5)] == [0] * 10
    assert len(caplog.records) == 1
    clock.since_start += limits.LOG_INTERVAL_SECONDS
    assert take() == look() == 0
    assert len(caplog.records) == 2


def test_a_cache_that_keeps_nothing_limits_nothing(settings, caplog):
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
    assert [take() for _ in range(5)] + [look() for _ in range(5)] == [0] * 10
    assert caplog.records == []


# In the process ---------------------------------------------------------------------------------


def test_so_many_events_a_minute_and_no_more(clock):
    limiter = PerMinute(2)
    assert [limiter.allows() for _ in range(4)] == [True, True, False, False]
    clock.since_start += limits.MINUTE_SECONDS - 1
    assert not limiter.allows()
    clock.since_start += 1
    assert [limiter.allows() for _ in range(3)] == [True, True, False]


def test_each_key_has_a_limit_below_that_of_all():
    limiter = PerMinute(3, 2)
    assert [limiter.allows("a") for _ in range(3)] == [True, True, False]
    assert [limiter.allows(key) for key in "bc"] == [True, False]


def test_a_cleared_limiter_counts_from_zero():
    limiter = PerMinute(1)
    assert [limiter.allows(), limiter.allows()] == [True, False]
    limiter.clear()
    assert limiter.allows()
