"""A test names the services that it needs, and a complete run fails without them."""

from __future__ import annotations

import pytest

from tests.conftest import pytest_runtest_setup
from tests.kit import services


class Item:
    """A stand-in for a collected test, with what the hook reads."""

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [getattr(pytest.mark, name)("redis").mark]


@pytest.fixture
def without_redis(monkeypatch):
    monkeypatch.setattr("tests.conftest.missing", {"redis": "not here"}.get)


def test_an_unknown_service_is_named_with_the_known_ones():
    with pytest.raises(LookupError, match=r"No service named 'tape'; known: node, npm, postgres"):
        services.missing("tape")


def test_a_missing_service_skips_the_test_that_requires_it(without_redis, monkeypatch):
    monkeypatch.delenv("MCP_TEST_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="requires redis: not here"):
        pytest_runtest_setup(Item())


def test_a_missing_service_fails_the_test_where_everything_is_demanded(without_redis, monkeypatch):
    monkeypatch.setenv("MCP_TEST_REQUIRE", "all")
    with pytest.raises(pytest.fail.Exception, match="requires redis: not here"):
        pytest_runtest_setup(Item())


def test_a_present_service_lets_the_test_run(monkeypatch):
    monkeypatch.setattr("tests.conftest.missing", {}.get)
    pytest_runtest_setup(Item())
