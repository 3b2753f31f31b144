"""The test files about reading, run again on PostgreSQL in processes of their own."""

from pathlib import Path

import pytest

from tests.storage.test_other_databases import run_under

HERE = Path(__file__).parent
# Files whose results may depend on the database, in runs that each end well within their time on a
# busy machine.
RUNS = [
    ("columns_relations", "filtering", "filtering_refused", "filtering_search"),
    ("filtering_ordering", "list_get_cursors", "counting", "row_access", "non_interference"),
]


@pytest.mark.requires("shared")
@pytest.mark.parametrize("names", RUNS)
def test_models_are_read_on_postgresql_as_on_sqlite(names):
    output = run_under("tests.kit.settings_postgres", *(HERE / f"test_{n}.py" for n in names))
    assert "skipped" not in output, output
