"""The files of the store on other databases than the one of all tests, each in a run of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.processes import REPOSITORY

HERE = Path(__file__).parent
TESTS = HERE.parent
TASKS = TESTS / "execution" / "tasks" / "test_store.py"
LOOKALIKES = TESTS / "oauth" / "test_lookalikes.py"
CONFIRMED = TESTS / "transports" / "http_session" / "test_confirmed.py"
STORE = [
    "cache",
    "cleanup",
    "inbox",
    "inbox_workers",
    "sessions",
    "streams",
    "streams_get",
    "versions",
]
FILES = [*(HERE / f"test_{name}.py" for name in STORE), CONFIRMED, TASKS]
POSTGRES_ALONE = [HERE / "test_streams_locked_rows.py"]
QUIET = ("-q", "-p", "no:cacheprovider")
RUN_SECONDS = 400
STOP_SECONDS = 8

pytestmark = [
    pytest.mark.outside,
    pytest.mark.heavy,
    pytest.mark.timeout(RUN_SECONDS + 2 * STOP_SECONDS),
]


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
def test_the_store_holds_on_postgresql():
    output = run_under("tests.kit.settings_postgres", *FILES, *POSTGRES_ALONE)
    assert "skipped" not in output, output


@pytest.mark.requires("shared")
def test_odd_texts_are_refused_or_cleaned_on_postgresql():
    output = run_under("tests.kit.settings_postgres", CONFIRMED.with_name("test_odd_texts.py"))
    assert "skipped" not in output, output


@pytest.mark.requires("shared")
def test_the_call_log_holds_on_postgresql():
    execution = TESTS / "execution"
    names = ("call_log", "call_record_values", "call_log_waiting", "call_log_writing")
    files = [HERE / "test_writer.py", *(execution / f"test_{name}.py" for name in names)]
    run_under("tests.kit.settings_postgres", *files)


@pytest.mark.requires("shared")
def test_sessions_are_opened_together_on_postgresql():
    files = (
        "test_sessions_opening.py",
        "test_streams_opening.py",
        "test_writer_last_use.py",
        "opening_on_postgresql.py",
    )
    output = run_under("tests.kit.settings_postgres", *(HERE / name for name in files))
    assert "skipped" not in output, output


@pytest.mark.requires("shared")
def test_texts_that_look_alike_are_different_on_postgresql():
    run_under("tests.kit.settings_postgres", LOOKALIKES)


@pytest.mark.requires("mariadb")
def test_texts_that_look_alike_are_different_on_mariadb():
    run_under("tests.kit.settings_mariadb", LOOKALIKES)


@pytest.mark.requires("mariadb")
def test_the_store_of_sessions_and_tasks_holds_on_mariadb():
    run_under(
        "tests.kit.settings_mariadb",
        HERE / "test_sessions.py",
        HERE / "test_cleanup.py",
        TASKS,
        TESTS / "overrides" / "test_sync.py",
        TESTS / "oauth" / "upstream" / "test_grants_logout.py",
    )


@pytest.mark.requires("shared")
def test_connections_are_kept_on_postgresql():
    execution = TESTS / "execution"
    files = ("test_threads_kept_connections.py", "kept_on_postgresql.py")
    output = run_under("tests.kit.settings_postgres", *(execution / name for name in files))
    assert "skipped" not in output, output


@pytest.mark.requires("shared")
def test_the_rows_of_the_admin_are_written_on_postgresql():
    overrides = TESTS / "overrides"
    files = ("test_sync.py", "test_sync_catalog_rows.py")
    run_under("tests.kit.settings_postgres", *(overrides / name for name in files))


def test_the_store_holds_on_sqlite_as_django_sets_it_up():
    run_under("tests.transports.http_session.settings_plain", *FILES)


def test_the_store_holds_without_time_zones():
    run_under("tests.transports.http_session.settings_naive", *FILES)
