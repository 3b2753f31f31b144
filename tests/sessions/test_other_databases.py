"""The files of the store on other databases than the one of all tests, each in a run of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import REPOSITORY

HERE = Path(__file__).parent
TASKS = HERE.parent / "tasks" / "test_store.py"
LOOKALIKES = HERE.parent / "oauth" / "test_lookalikes.py"
OTHERS = [HERE / "test_confirmed.py", HERE / "test_pruning.py", TASKS]
FILES = sorted([*HERE.glob("test_*_store.py"), *OTHERS])
POSTGRES_ALONE = [HERE / "test_locked_rows.py"]
QUIET = ("-q", "-p", "no:cacheprovider")
JOURNAL = ("", "_values", "_waiting", "_writing")
RUN_SECONDS = 400
STOP_SECONDS = 8

pytestmark = [pytest.mark.outside, pytest.mark.timeout(RUN_SECONDS + 2 * STOP_SECONDS)]


def run_under(settings: str, *files: Path) -> str:
    """What pytest says of these files under other settings; each of them has to pass."""
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", *QUIET, "--ring", "all", "--ds", settings, *files],
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = run.communicate(timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail(f"It took more than {RUN_SECONDS} seconds.\n{_interrupted(run)}")
    assert run.returncode == 0, said
    return said


def _interrupted(run: subprocess.Popen[str]) -> str:
    """End a run in the way in which it still drops its database."""
    run.send_signal(signal.SIGINT)
    try:
        return run.communicate(timeout=STOP_SECONDS)[0]
    except subprocess.TimeoutExpired:
        run.kill()
        return run.communicate()[0]


@pytest.mark.requires("shared")
def test_the_store_holds_on_postgresql() -> None:
    output = run_under("tests.sessions.settings_postgres", *FILES, *POSTGRES_ALONE)
    assert "skipped" not in output, output


@pytest.mark.requires("shared")
def test_odd_texts_are_refused_or_cleaned_on_postgresql() -> None:
    output = run_under("tests.sessions.settings_postgres", HERE / "test_odd_texts.py")
    assert "skipped" not in output, output


@pytest.mark.requires("shared")
def test_the_call_log_holds_on_postgresql() -> None:
    runtime = HERE.parent / "runtime"
    files = ("test_writer.py", *(f"test_journal{name}.py" for name in JOURNAL))
    run_under("tests.sessions.settings_postgres", *(runtime / name for name in files))


@pytest.mark.requires("shared")
def test_sessions_are_opened_together_on_postgresql() -> None:
    files = (
        "test_opening.py",
        "test_opening_streams.py",
        "test_last_use.py",
        "opening_on_postgresql.py",
    )
    output = run_under("tests.sessions.settings_postgres", *(HERE / name for name in files))
    assert "skipped" not in output, output


@pytest.mark.requires("shared")
def test_texts_that_look_alike_are_different_on_postgresql() -> None:
    run_under("tests.sessions.settings_postgres", LOOKALIKES)


@pytest.mark.requires("mariadb")
def test_texts_that_look_alike_are_different_on_mariadb() -> None:
    run_under("tests.sessions.settings_mariadb", LOOKALIKES)


@pytest.mark.requires("mariadb")
def test_the_store_of_sessions_and_tasks_holds_on_mariadb() -> None:
    run_under(
        "tests.sessions.settings_mariadb",
        HERE / "test_sessions_store.py",
        HERE / "test_pruning.py",
        TASKS,
        HERE.parent / "managed" / "test_syncing.py",
        HERE.parent / "oauth" / "upstream" / "test_logout.py",
    )


@pytest.mark.requires("shared")
def test_connections_are_kept_on_postgresql() -> None:
    runtime = HERE.parent / "runtime"
    files = ("test_kept_connections.py", "kept_on_postgresql.py")
    output = run_under("tests.sessions.settings_postgres", *(runtime / name for name in files))
    assert "skipped" not in output, output


@pytest.mark.requires("shared")
def test_the_rows_of_the_admin_are_written_on_postgresql() -> None:
    managed = HERE.parent / "managed"
    files = ("test_syncing.py", "test_catalog_rows.py")
    run_under("tests.sessions.settings_postgres", *(managed / name for name in files))


def test_the_store_holds_on_sqlite_as_django_sets_it_up() -> None:
    run_under("tests.sessions.settings_plain", *FILES)


def test_the_store_holds_without_time_zones() -> None:
    run_under("tests.sessions.settings_naive", *FILES)
