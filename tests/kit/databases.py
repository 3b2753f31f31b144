"""A database that worker processes share, created for one test and removed after it."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal
from urllib.parse import urlsplit

from tests.conformance.shared import (
    DATABASE_SERVER,
    connect,
    database,
    existing_database,
    redis_url,
)
from tests.kit.processes import REPOSITORY

Kind = Literal["sqlite", "postgres"]
SETTINGS = "tests.transports.http_session.settings"
MIGRATE_SECONDS = 180
MEMORY = "/dev/shm"

_serial = count(1)


@contextmanager
def shared(
    kind: Kind, directory: Path, *, redis: bool = False, drop: float = 0.0
) -> Iterator[dict[str, str]]:
    """Yield the environment of processes that share a new database, and Redis if `redis`.

    `drop` is the share of pub/sub notifications that each process misses.
    """
    name = f"mcp_sessions_{os.getpid()}_{next(_serial)}"
    environ = {"MCP_TEST_DROP": str(drop)}
    if redis:
        environ |= {"MCP_TEST_REDIS_URL": redis_url(), "MCP_TEST_REDIS_PREFIX": name}
    if kind == "sqlite":
        with _memory(directory) as place:
            path = place / f"{name}.sqlite3"
            shutil.copy(_sqlite_template(SETTINGS), path)
            yield {**environ, "MCP_TEST_DATABASE": str(path)}
        return
    url = _postgres_url(name)
    with existing_database(url, template=_postgres_template(SETTINGS)):
        yield {**environ, "MCP_TEST_DATABASE_URL": url}


@cache
def _sqlite_template(settings: str) -> Path:
    """Return a migrated database, created once by each process of tests and removed at its end."""
    place = TemporaryDirectory(prefix="mcp-template-")
    atexit.register(place.cleanup)
    path = Path(place.name) / "template.sqlite3"
    _migrate(settings, MCP_TEST_DATABASE=str(path))
    return path


@cache
def _postgres_template(settings: str) -> str:
    """Return the name of a migrated database on PostgreSQL."""
    name = f"mcp_template_{os.getpid()}_{next(_serial)}"
    url = _postgres_url(name)
    stack = ExitStack()
    stack.enter_context(existing_database(url))
    atexit.register(stack.close)
    _migrate(settings, MCP_TEST_DATABASE_URL=url)
    return name


def _migrate(settings: str, **environ: str) -> None:
    environ["DJANGO_SETTINGS_MODULE"] = settings
    run(environ, "django", "migrate", "--verbosity", "0")


def _postgres_url(name: str) -> str:
    url = urlsplit(os.environ.get("MCP_TEST_DATABASE_URL") or DATABASE_SERVER)
    return url._replace(path=f"/{name}").geturl()


@contextmanager
def _memory(directory: Path) -> Iterator[Path]:
    """Yield a directory in memory if there is one, because the speed of a disk is not tested."""
    if not os.access(MEMORY, os.W_OK):
        yield directory
        return
    with TemporaryDirectory(prefix="mcp-sessions-", dir=MEMORY) as place:
        yield Path(place)


def cut(environ: Mapping[str, str]) -> int:
    """End every connection to a PostgreSQL database, as a restart does; return their number."""
    url = environ["MCP_TEST_DATABASE_URL"]
    query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s"
    with connect(url) as connection:
        row = connection.execute(query, [database(url)["NAME"]]).fetchone()
    return row[0] if row else 0


def run(environ: dict[str, str], *arguments: str) -> str:
    """Run a Python module with a shared database and return its output."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": SETTINGS, **environ},
        stdout=subprocess.PIPE,
        text=True,
        timeout=MIGRATE_SECONDS,
        check=True,
    )
    return done.stdout
