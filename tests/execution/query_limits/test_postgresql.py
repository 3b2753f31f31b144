"""The files of this directory on PostgreSQL, in runs of their own."""

from pathlib import Path

import pytest

from tests.storage.test_other_databases import run_under

HERE = Path(__file__).parent
RUNS = [
    ["test_writes.py"],
    ["test_nested.py", "test_going_on.py", "test_threads.py"],
    ["test_limits.py", "test_unenforced.py"],
    ["on_postgresql.py"],
]


@pytest.mark.requires("shared")
@pytest.mark.parametrize("files", RUNS)
def test_it_holds_on_postgresql(files):
    pytest.importorskip("psycopg")
    output = run_under("tests.kit.settings_postgres", *(HERE / file for file in files))
    assert "skipped" not in output, output
