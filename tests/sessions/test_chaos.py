"""Real processes in trouble: whatever happens to them, no client sees a hole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sessions import chaos
from tests.sessions.chaos import Plan, Report
from tests.sessions.databases import Kind, shared
from tests.sessions.duration import SECONDS
from tests.spec import spec

pytestmark = [
    pytest.mark.requires("outside"),
    pytest.mark.alone,
    pytest.mark.timeout(SECONDS + 400),
]

on_postgres = pytest.mark.requires("shared")
# Where processes share SQLite they poll; where they share PostgreSQL they have a bell.
DATABASES = [pytest.param("sqlite"), pytest.param("postgres", marks=on_postgres)]


async def trouble(plan: Plan, kind: Kind, directory: Path, *, drop: float) -> Report:
    with shared(kind, directory, redis=kind == "postgres", drop=drop) as environ:
        return await chaos.run(plan, environ, directory)


@spec("RSM-3", "RSM-4", "HTTP-16")
@pytest.mark.parametrize("kind", DATABASES)
async def test_killed_and_halted_workers_cost_a_terminal_error_at_most(
    kind: Kind, tmp_path: Path
) -> None:
    report = await trouble(Plan(seconds=SECONDS), kind, tmp_path, drop=0.5)
    assert report.failures == []
    assert report.complaints == []
    assert report.kills
    assert report.halts
    assert report.figures["complete"]


@spec("RSM-2", "RSM-9")
@pytest.mark.parametrize("kind", DATABASES)
async def test_a_client_that_leaves_and_comes_back_anywhere_misses_nothing(
    kind: Kind, tmp_path: Path
) -> None:
    plan = Plan(seconds=SECONDS, kills=False, halts=False, lease=30)
    report = await trouble(plan, kind, tmp_path, drop=1)
    assert report.failures == []
    assert report.complaints == []
    assert report.figures["complete"] == report.figures["calls"] > 0


@on_postgres
async def test_a_database_that_breaks_off_leaves_no_hole(tmp_path: Path) -> None:
    plan = Plan(seconds=SECONDS, kills=False, halts=False, cuts=True, lease=30)
    report = await trouble(plan, "postgres", tmp_path, drop=0.5)
    assert report.failures == []
    assert report.cuts
    figures = report.figures
    assert figures["complete"]
    assert figures["complete"] + figures["unsent"] == figures["calls"]
