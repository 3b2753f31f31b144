"""The commands look at every server of the process, so those of other tests have to be gone."""

import pytest

from tests.management.shell.running import shell


@pytest.fixture(autouse=True)
def _no_strangers(only_declared_servers):
    """What tests of other modules have declared and let go is not there."""


@pytest.fixture(scope="module")
def shell_database(tmp_path_factory):
    """The path of a database with tables, for the site in a process."""
    path = str(tmp_path_factory.mktemp("shell") / "db.sqlite3")
    done = shell('"$@"', ["manage.py", "migrate", "-v0", "--skip-checks"], SHELL_DATABASE=path)
    assert done.returncode == 0, done.stderr
    return path
