"""Writing on PostgreSQL, which locks single rows: each file in a run of its own."""

from pathlib import Path

import pytest

from tests.storage.test_other_databases import run_under

HERE = Path(__file__).parent


@pytest.mark.requires("shared")
@pytest.mark.parametrize(
    "file",
    [
        "test_write_forms_required.py",
        "test_writing_update.py",
        "test_writing_preview.py",
        "test_write_forms_hostile.py",
    ],
)
def test_it_holds_on_postgresql(file):
    output = run_under("tests.kit.settings_postgres", HERE / file)
    assert "skipped" not in output, output
