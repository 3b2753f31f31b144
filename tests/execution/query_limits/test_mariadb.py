"""The files of this directory on MariaDB, in runs of their own."""

from pathlib import Path

import pytest

from tests.storage.test_other_databases import run_under

HERE = Path(__file__).parent
RUNS = [
    ["test_writes.py"],
    ["test_nested.py", "test_going_on.py", "test_threads.py"],
    ["test_limits.py", "test_unenforced.py"],
    ["on_mariadb.py"],
]


@pytest.mark.requires("mariadb")
@pytest.mark.parametrize("files", RUNS)
def test_it_holds_on_mariadb(files):
    output = run_under("tests.kit.settings_mariadb", *(HERE / file for file in files))
    assert "skipped" not in output, output
