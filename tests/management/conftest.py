"""The commands use every server of the process, so servers of other tests are removed."""

import pytest

from tests.management.shell.running import shell


@pytest.fixture(autouse=True)
def _no_strangers(only_declared_servers):
    """Remove the servers that tests of other modules have left behind."""


@pytest.fixture(scope="module")
def shell_database(tmp_path_factory):
    """Return the path of a database with tables, for the site in a process."""
    path = str(tmp_path_factory.mktemp("shell") / "db.sqlite3")
    done = shell('"$@"', ["manage.py", "migrate", "-v0", "--skip-checks"], SHELL_DATABASE=path)
    assert done.returncode == 0, done.stderr
    return path
