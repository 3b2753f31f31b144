"""Connections that PostgreSQL ends: `tests/storage/test_other_databases.py` runs this file."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from mcp_django.execution import threads
from tests.execution.test_threads_kept_connections import (  # noqa: F401 - fixtures
    _keep,
    call,
    opened,
    server,
)
from tests.kit.drivers import PATIENCE
from tests.transports.mounts import in_thread


def end(ended: Any) -> None:
    """Terminate the connection of another thread."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [ended.connection.info.backend_pid])


@pytest.mark.django_db(transaction=True)
async def test_a_connection_that_ended_in_a_pause_is_replaced(call, opened, monkeypatch):  # noqa: F811
    monkeypatch.setattr(threads, "CHECK_SECONDS", 0)
    assert await call("count") == ["0"]
    await in_thread(end, opened[0])
    assert await call("count") == ["0"]
    assert len(opened) == 2


@pytest.mark.django_db(transaction=True)
async def test_a_connection_that_ends_without_a_pause_costs_one_call(call, opened, monkeypatch):  # noqa: F811
    monkeypatch.setattr(threads, "CHECK_SECONDS", PATIENCE)
    monkeypatch.setattr(threads, "IDLE_SECONDS", 2 * PATIENCE)
    assert await call("count") == ["0"]
    await in_thread(end, opened[0])
    assert "server error" in (await call("count"))[0]
    assert await call("count") == ["0"]
    assert len(opened) == 2
