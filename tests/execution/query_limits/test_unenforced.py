"""Databases without a read-only mode: the limits are still counted."""

from __future__ import annotations

import pytest

from mcp_django.execution import query_limits
from tests.execution.query_limits.reading import count_names, groups, read, write_name
from tests.execution.query_limits.test_limits import (
    TOO_MANY_ROWS,
    TOO_MANY_STATEMENTS,
    by_list,
    limited,
)


@pytest.fixture
def _another_database(monkeypatch):
    """A database without a read-only mode, such as Oracle."""
    monkeypatch.setattr(query_limits, "ENFORCEMENT_BY_VENDOR", {})


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_another_database")
def test_another_database_is_counted_and_writes():
    groups(21)
    with limited(rows=20):
        assert read(by_list).text == TOO_MANY_ROWS
    with limited(statements=10):
        assert read(eleven_statements).text == TOO_MANY_STATEMENTS
    with limited(seconds=1e-9):
        assert read(count_names).text == "21"
        assert "more than 1e-09 seconds" in read(eleven_statements).text
    assert read(write_name).text == "written"


def eleven_statements() -> int:
    return sum(count_names() for _ in range(11))
