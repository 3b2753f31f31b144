"""Run a server in its own process, and read its resource usage from ``/proc`` (Linux)."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from benchmarks.load import HOST

REPOSITORY = Path(__file__).parents[1]
PROC = Path("/proc")
START_SECONDS = 60
STOP_SECONDS = 15
# With logging disabled: output for each request would be measured too.
SERVERS: dict[str, Sequence[str]] = {
    "uvicorn": (
        *("--host", HOST, "--port", "{port}"),
        *("--log-level", "warning", "--no-access-log", "{app}"),
    ),
    "granian": (
        *("--interface", "asginl", "--host", HOST, "--port", "{port}"),
        *("--workers", "1", "--log-level", "warning", "{app}"),
    ),
    "daphne": ("-b", HOST, "-p", "{port}", "-v", "0", "{app}"),
}
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class NotStarted(Exception):
    """The server did not start; the text is its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A running server."""

    popen: subprocess.Popen[bytes]
    port: int

    @property
    def _all(self) -> list[Path]:
        """The ``/proc`` directories of the process and of its workers."""
        main_pid = str(self.popen.pid)
        workers = (PROC / main_pid / "task" / main_pid / "children").read_text().split()
        return [PROC / pid for pid in (main_pid, *workers)]

    @property
    def cpu_seconds(self) -> float:
        """User and system time of all threads so far, with a resolution of 0.01 seconds."""
        return sum(_ticks(directory / "stat") for directory in self._all) / TICKS

    @property
    def memory(self) -> int:
        """Physical memory in bytes."""
        return (
            sum(int((directory / "statm").read_text().split()[1]) for directory in self._all) * PAGE
        )

    @property
    def threads(self) -> int:
        """Number of threads."""
        return sum(len(list((directory / "task").iterdir())) for directory in self._all)

    def open_files(self, path: Path) -> int:
        """Return how often a file is open; for a SQLite database, its number of connections."""
        target, count = path.resolve(), 0
        for file in (file for directory in self._all for file in (directory / "fd").iterdir()):
            # The file may have been closed meanwhile.
            with suppress(FileNotFoundError):
                count += file.readlink() == target
        return count


def _ticks(stat: Path) -> int:
    # The program name comes first and may contain any characters, including parentheses.
    fields = stat.read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@contextmanager
def serve_asgi(
    app: str,
    environ: Mapping[str, str],
    *,
    server: str = "uvicorn",
    python: str = sys.executable,
) -> Iterator[Process]:
    """Run an ASGI application on one of ``SERVERS``, with one worker.

    Raises:
        NotStarted: the server exited or did not listen in time; the text is its output.
    """
    port = free_port()
    arguments = [part.format(port=port, app=app) for part in SERVERS[server]]
    with run_server([python, "-m", server, *arguments], environ, port=port) as process:
        yield process


# The number of threads in docs/howto/deploy.md.
GUNICORN_THREADS = 8


@contextmanager
def serve_wsgi(
    app: str, environ: Mapping[str, str], *, python: str = sys.executable
) -> Iterator[Process]:
    """Run a WSGI application on gunicorn with one worker that has threads.

    Raises:
        NotStarted: the server exited or did not listen in time; the text is its output.
    """
    port = free_port()
    worker = ["-w", "1", "-k", "gthread", "--threads", str(GUNICORN_THREADS)]
    options = ["-b", f"{HOST}:{port}", "--log-level", "error", "--keep-alive", "30"]
    command = [python, "-m", "gunicorn", *worker, *options, app]
    with run_server(command, environ, port=port) as process:
        yield process


@contextmanager
def run_server(
    command: Sequence[str], environ: Mapping[str, str], *, port: int
) -> Iterator[Process]:
    """Run a server that listens on a port; stop it when the block ends."""
    raise_file_limit()
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # Its own process group: an interrupt in the terminal is for the benchmark only.
        start_new_session=True,
    ) as popen:
        try:
            _wait_until_listening(popen, port)
            yield Process(popen=popen, port=port)
        finally:
            _stop_process(popen)


def raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit, for this process and its children."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def free_port() -> int:
    """Return a port that is free at this moment."""
    with closing(socket.socket()) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_listening(popen: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and popen.poll() is None:
        with closing(socket.socket()) as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.05)
    _stop_process(popen)
    assert popen.stderr is not None
    raise NotStarted(popen.stderr.read().decode(errors="replace"))


def _stop_process(popen: subprocess.Popen[bytes]) -> None:
    popen.terminate()
    try:
        popen.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(popen.pid, signal.SIGKILL)
        popen.wait(STOP_SECONDS)


def cache_directory() -> Path:
    """Return the directory, created if missing: ``BENCH_CACHE``, or one in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(os.environ.get("BENCH_CACHE") or Path(base) / "mcp-django-benchmarks")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def database_file() -> Path:
    """Return the SQLite file for the current migrations; delete the files of other migrations."""
    migrations = sorted((REPOSITORY / "mcp_django").glob("**/migrations/*.py"))
    digest = sha256(b"".join(path.read_bytes() for path in migrations)).hexdigest()[:12]
    database = cache_directory() / f"rows-{digest}.sqlite3"
    for path in cache_directory().glob("rows*.sqlite3*"):
        if not path.name.startswith(database.name):
            path.unlink()
    return database
