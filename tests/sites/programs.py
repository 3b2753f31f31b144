"""Commands of the sites, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from tests.kit.processes import REPOSITORY


def run(environ: Mapping[str, str], *arguments: str) -> str:
    """Return what a command of the site prints; it must not fail."""
    done = subprocess.run(
        [sys.executable, "-m", "django", *arguments],
        cwd=REPOSITORY,
        env=dict(environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def migrate(environ: Mapping[str, str]) -> None:
    """Create the tables of the site in an empty database; apps without migrations have theirs."""
    run(environ, "migrate", "--run-syncdb", "--verbosity", "0")
