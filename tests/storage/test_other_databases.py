"""The tests of storage on databases other than the default, each in a run of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.processes import REPOSITORY

TESTS = Path(__file__).parents[1]


def files_of(folder, *names):
    """Return files of a folder. A moved file fails here, in every ring, not only in the slowest."""
    files = [TESTS / folder / f"{name}.py" for name in names]
    assert all(file.is_file() for file in files), files
    return files


LOOKALIKES = files_of("oauth", "test_lookalikes")
TASKS = files_of("storage", "test_task_rows")
STORE = [
    *files_of("storage", "test_cache", "test_cleanup", "test_inbox", "test_inbox_workers"),
    *files_of("storage", "test_sessions", "test_streams", "test_streams_get", "test_versions"),
    *files_of("transports/http_session", "test_confirmed"),
    *TASKS,
]
ODD_TEXTS = files_of("transports/http_session", "test_odd_texts")
LOCKED_ROWS = files_of("storage", "test_streams_locked_rows")
CALL_LOG = [
    *files_of("storage", "test_writer"),
    *files_of("execution", "test_call_log", "test_call_record_values"),
    *files_of("execution", "test_call_log_waiting", "test_call_log_writing"),
]
OPENING = files_of(
    "storage",
    "test_sessions_opening",
    "test_streams_opening",
    "test_writer_last_use",
    "opening_on_postgresql",
)
SESSIONS = [
    *files_of("storage", "test_sessions", "test_cleanup"),
    *TASKS,
    *files_of("overrides", "test_sync"),
    *files_of("oauth/upstream", "test_grants_logout"),
]
CONNECTIONS = files_of("execution", "test_threads_kept_connections", "kept_on_postgresql")
OVERRIDES = files_of("overrides", "test_sync", "test_sync_catalog_rows")
QUIET = ("-q", "-p", "no:cacheprovider")
RUN_SECONDS = 400
STOP_SECONDS = 8

pytestmark = [
    pytest.mark.outside,
    pytest.mark.heavy,
    pytest.mark.timeout(RUN_SECONDS + 2 * STOP_SECONDS),
]


def run_under(settings: str, *files: Path) -> str:
    """Run these files under other settings, assert that each passes, and return pytest's output."""
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", *QUIET, "--ring", "all", "--ds", settings, *files],
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = run.communicate(timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail(f"It took more than {RUN_SECONDS} seconds.\n{_interrupted(run)}")
    assert run.returncode == 0, output
    return output


def _interrupted(run: subprocess.Popen[str]) -> str:
    """Stop a run so that it still drops its database."""
    run.send_signal(signal.SIGINT)
    try:
        return run.communicate(timeout=STOP_SECONDS)[0]
    except subprocess.TimeoutExpired:
        run.kill()
        return run.communicate()[0]


@pytest.mark.requires("shared")
def test_the_store_holds_on_postgresql():
    output = run_under("tests.kit.settings_postgres", *STORE, *LOCKED_ROWS)
    assert "skipped" not in output, output


@pytest.mark.requires("shared")
def test_odd_texts_are_refused_or_cleaned_on_postgresql():
    output = run_under("tests.kit.settings_postgres", *ODD_TEXTS)
    assert "skipped" not in output, output


@pytest.mark.requires("shared")
def test_the_call_log_holds_on_postgresql():
    run_under("tests.kit.settings_postgres", *CALL_LOG)


@pytest.mark.requires("shared")
def test_sessions_are_opened_together_on_postgresql():
    output = run_under("tests.kit.settings_postgres", *OPENING)
    assert "skipped" not in output, output


@pytest.mark.requires("shared")
def test_texts_that_look_alike_are_different_on_postgresql():
    run_under("tests.kit.settings_postgres", *LOOKALIKES)


@pytest.mark.requires("mariadb")
def test_texts_that_look_alike_are_different_on_mariadb():
    run_under("tests.kit.settings_mariadb", *LOOKALIKES)


@pytest.mark.requires("mariadb")
def test_the_store_of_sessions_and_tasks_holds_on_mariadb():
    run_under("tests.kit.settings_mariadb", *SESSIONS)


@pytest.mark.requires("shared")
def test_connections_are_kept_on_postgresql():
    output = run_under("tests.kit.settings_postgres", *CONNECTIONS)
    assert "skipped" not in output, output


@pytest.mark.requires("shared")
def test_the_rows_of_the_admin_are_written_on_postgresql():
    run_under("tests.kit.settings_postgres", *OVERRIDES)


def test_the_store_holds_on_sqlite_as_django_sets_it_up():
    run_under("tests.transports.http_session.settings_plain", *STORE)


def test_the_store_holds_without_time_zones():
    run_under("tests.transports.http_session.settings_naive", *STORE)
