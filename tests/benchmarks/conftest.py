"""The benchmarks' site on a port of its own, and its database."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.process import PROC, REPOSITORY, serve_asgi
from benchmarks.works import APP

# A server is measured through what the kernel of Linux says of it.
CAN_MEASURE = PROC.is_dir() and find_spec("uvicorn") is not None
collect_ignore = [] if CAN_MEASURE else ["test_site.py", "test_commands.py"]

TOOLS = 8


def run(*arguments: str, cache: Path, **environ: str) -> str:
    """What a command of the benchmarks prints.

    In a process of its own, since the site has settings of its own.
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
    """A directory for what the benchmarks keep."""
    return tmp_path_factory.mktemp("benchmarks")


@pytest.fixture(scope="session")
def database(cache):
    """The file with the thousand rows, made by the command that the site names."""
    path = cache / "prepared.sqlite3"
    run("-m", "benchmarks", "--prepare", str(path), cache=cache)
    return path


@pytest.fixture(scope="session")
def site(database):
    """The site, with default middleware."""
    environ = {"BENCH_DB": str(database), "BENCH_TOOLS": str(TOOLS)}
    with serve_asgi(
        APP, {"DJANGO_SETTINGS_MODULE": "benchmarks.site.settings", **environ}
    ) as server:
        yield server
