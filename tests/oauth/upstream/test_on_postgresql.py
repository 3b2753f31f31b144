"""Guarantees about upstream access, tested where each writer has a connection of its own."""

from pathlib import Path

import pytest

from tests.storage.test_other_databases import run_under

HERE = Path(__file__).parent


@pytest.mark.requires("shared")
@pytest.mark.spec("AUT-31")
def test_threat_26_access_is_honored_and_renewed_once_on_postgresql():
    output = run_under("tests.kit.settings_postgres", HERE / "on_postgresql.py")
    assert "skipped" not in output, output
