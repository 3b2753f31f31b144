"""The peers: their virtual environments, and how their servers are started."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.process import (
    Process,
    cache_directory,
    free_port,
    run_server,
    serve_asgi,
    serve_wsgi,
)
from benchmarks.works import (
    BOLT,
    FASTMCP,
    MCPZ,
    MCPZ_GUNICORN,
    SDK,
    Row,
    mcpz_rows,
    peer_rows,
)

UVICORN = "uvicorn[standard]>=0.35"
DJANGO = "django>=5.2,<6.1"
MODULE = "benchmarks.peer_site"


class NotInstalled(Exception):
    """A peer cannot be measured here; the text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another library, in a virtual environment that is created once and kept in the cache."""

    title: str
    name: str
    """The name of the peer in ``benchmarks.peer_site``."""
    distribution: str
    """The distribution whose version the results name."""
    requirements: Sequence[str]
    server: str = "uvicorn"
    python: tuple[int, int] = (3, 11)
    """The oldest Python that it supports."""

    def rows(self, process: str, suffix: str = "") -> Sequence[Row]:
        """Return the rows of the peer."""
        if self.name == "mcpz":
            return mcpz_rows(process, on_gunicorn=self.server == "gunicorn", suffix=suffix)
        return peer_rows(self.title, process, suffix)

    @property
    def _python(self) -> Path:
        return cache_directory() / "peers" / self.name / "bin" / "python"

    def install(self) -> str:
        """Install missing requirements; return the version.

        Raises:
            NotInstalled: this Python is too old for the peer, or it cannot be installed.
        """
        if sys.version_info[:2] < self.python:
            raise NotInstalled("it needs Python {}.{} or newer".format(*self.python))
        try:
            if not self._python.exists():
                _run(sys.executable, "-m", "venv", str(self._python.parents[1]))
            _run(str(self._python), "-m", "pip", "install", "-q", *self.requirements)
            code = f"from importlib.metadata import version; print(version({self.distribution!r}))"
            return _run(str(self._python), "-c", code).strip()
        except (OSError, subprocess.CalledProcessError) as exc:
            raise NotInstalled(f"{self.distribution} cannot be installed here ({exc})") from exc

    def start(self, database: str) -> AbstractContextManager[Process]:
        """Start the server with one worker and a database.

        Raises:
            NotStarted: the server exited, or did not listen in time.
        """
        environ = {"BENCH_PEER": self.name, "BENCH_DB": database}
        python = str(self._python)
        if self.server == "uvicorn":
            return serve_asgi(f"{MODULE}:application", environ, python=python)
        if self.server == "gunicorn":
            return serve_wsgi(f"{MODULE}:wsgi", environ, python=python)
        port = free_port()
        code = f"from {MODULE} import run_bolt; run_bolt({port})"
        return run_server([python, "-c", code], environ, port=port)


def _run(*command: str) -> str:
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return process.stdout


POSTGRES = "psycopg[binary]>=3.2"
PEERS = (
    Peer(
        title=MCPZ_GUNICORN,
        name="mcpz",
        distribution="django-mcpz",
        requirements=("django-mcpz>=1,<2", DJANGO, UVICORN, "gunicorn>=23", POSTGRES),
        server="gunicorn",
    ),
    Peer(
        title=MCPZ,
        name="mcpz",
        distribution="django-mcpz",
        requirements=("django-mcpz>=1,<2", DJANGO, UVICORN, "gunicorn>=23", POSTGRES),
    ),
    Peer(
        title=SDK,
        name="sdk",
        distribution="mcp",
        requirements=("mcp>=2,<3", DJANGO, UVICORN, POSTGRES),
    ),
    Peer(
        title=FASTMCP,
        name="fastmcp",
        distribution="fastmcp",
        requirements=("fastmcp>=4,<5", DJANGO, UVICORN, POSTGRES),
    ),
    Peer(
        title=BOLT,
        name="bolt",
        distribution="bolt-mcp",
        requirements=("bolt-mcp>=0.2,<0.3", DJANGO, POSTGRES),
        server="runbolt",
        python=(3, 12),
    ),
)
