"""The database decides races, so these run on one that lets two writers in at the same time."""

from pathlib import Path

import pytest

from tests.storage.test_other_databases import run_under

HERE = Path(__file__).parent
# In separate runs, each of which ends well within its time limit on a busy machine.
FILES = ["on_postgresql.py", "test_token_codes.py", "test_token_refreshing.py"]


@pytest.mark.requires("shared")
@pytest.mark.parametrize("name", FILES)
def test_threats_15_16_and_25_are_met_on_postgresql_as_well(name):
    output = run_under("tests.kit.settings_postgres", HERE / name)
    assert "skipped" not in output, output
