"""Real processes in trouble: whatever happens to them, no client sees a gap in a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.databases import Kind, shared
from tests.spec import spec
from tests.transports.http_session import chaos
from tests.transports.http_session.chaos import CALLS, ROUNDS, Plan, Report

pytestmark = [
    pytest.mark.outside,
    pytest.mark.heavy(turn=2),
    # Ends a test that hangs.
    pytest.mark.timeout(1200),
]

on_postgres = pytest.mark.requires("shared")
# Processes that share SQLite poll; those that share PostgreSQL have a channel layer.
DATABASES = [
    pytest.param("sqlite", marks=pytest.mark.heavy(turn=1)),
    pytest.param("postgres", marks=[on_postgres, pytest.mark.heavy(turn=3)]),
]


async def trouble(plan: Plan, kind: Kind, directory: Path, *, drop: float) -> Report:
    with shared(kind, directory, redis=kind == "postgres", drop=drop) as environ:
        return await chaos.run(plan, environ, directory)


@spec("RSM-3", "RSM-4", "HTTP-16")
@pytest.mark.parametrize("kind", DATABASES)
async def test_killed_and_halted_workers_cost_a_terminal_error_at_most(kind, tmp_path):
    report = await trouble(Plan(), kind, tmp_path, drop=0.5)
    assert report.failures == []
    assert report.complaints == []
    assert (report.kills, report.halts) == (ROUNDS, ROUNDS)
    assert report.figures["complete"]


@spec("RSM-2", "RSM-9")
@pytest.mark.parametrize("kind", DATABASES)
async def test_a_client_that_leaves_and_comes_back_anywhere_misses_nothing(kind, tmp_path):
    plan = Plan(calls=CALLS, kills=0, halts=0, lease=30)
    report = await trouble(plan, kind, tmp_path, drop=1)
    assert report.failures == []
    assert report.complaints == []
    assert report.figures["complete"] == report.figures["calls"] >= CALLS


@on_postgres
async def test_a_database_that_breaks_off_leaves_no_hole(tmp_path):
    plan = Plan(calls=ROUNDS, kills=0, halts=0, cuts=6 * ROUNDS, lease=30)
    report = await trouble(plan, "postgres", tmp_path, drop=0.5)
    assert report.failures == []
    assert report.cuts == 6 * ROUNDS
    figures = report.figures
    assert figures["complete"]
    assert figures["complete"] + figures["unsent"] == figures["calls"]
