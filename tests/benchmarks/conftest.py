"""The benchmarks' site on a port of its own, and its database."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.process import PROC, REPOSITORY, serve_asgi
from benchmarks.works import APP

# The figures of a server are read from /proc, which only Linux has.
CAN_MEASURE = PROC.is_dir() and find_spec("uvicorn") is not None
collect_ignore = [] if CAN_MEASURE else ["test_site.py", "test_commands.py"]

TOOLS = 8


def run(*arguments: str, cache: Path, **environ: str) -> str:
    """Return the output of a command of the benchmarks.

    It runs in a process of its own, since the site has settings of its own.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        check=False,
        env={"PATH": "", "BENCH_CACHE": str(cache), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Return a directory for the cache of the benchmarks."""
    return tmp_path_factory.mktemp("benchmarks")


@pytest.fixture(scope="session")
def database(cache):
    """Return the database file with the thousand rows, made by the command that the site names."""
    path = cache / "prepared.sqlite3"
    run("-m", "benchmarks", "--prepare", str(path), cache=cache)
    return path


@pytest.fixture(scope="session")
def site(database):
    """Yield the site, with default middleware."""
    environ = {"BENCH_DB": str(database), "BENCH_TOOLS": str(TOOLS)}
    with serve_asgi(
        APP, {"DJANGO_SETTINGS_MODULE": "benchmarks.site.settings", **environ}
    ) as server:
        yield server
