"""A database of the call log that another connection has locked."""

import json

import pytest

from tests.kit.processes import run_python

# The value in `locked_log.py`.
QUEUE_SECONDS = 1


@pytest.mark.outside
def test_calls_that_read_go_on_and_those_that_write_are_refused(tmp_path):
    report = json.loads(
        run_python("-m", "tests.execution.locked_log", str(tmp_path / "db.sqlite3"))
    )
    answers = report["answers"]
    assert answers["read"] == answers["read_later"] == "done"
    assert answers["write"].startswith("The call log cannot be written")
    assert answers["write_later"] == answers["write"]
    # A rejected call waits for one attempt, not forever.
    assert report["seconds"] < 2 * (QUEUE_SECONDS + 1)
    assert report["again"] == "done"
    # The rejected calls have not run, and each call has its row.
    assert report["ran"] == ["read", "read_later", "write"]
    assert report["rows"] == sorted(
        [
            *(["read", "ok"], ["read", "ok"], ["read_later", "ok"]),
            *(["write", "refused"], ["write", "ok"], ["write_later", "refused"]),
        ]
    )
    assert report["lost"] == 0
