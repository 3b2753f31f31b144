"""Start a server in a process of its own, and end it without leaving anything behind.

Nothing is parsed from what a server prints: it is ready when its port answers.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
CACHE = Path(
    os.environ.get("MCP_TEST_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mcp_django"
)
"""What is installed outside of the repository: clients, suites, sites (`.ci/cache.sh`)."""
HOST = "127.0.0.1"
# Bounds for a machine in distress; nothing is asserted about how long a server takes.
START_SECONDS = 120
STOP_SECONDS = 30

COMMANDS = {
    # The clients keep an idle connection for as long as uvicorn does by default, and one that is
    # used again at that moment is closed without an answer.
    "uvicorn": (
        *("uvicorn", "--host", HOST, "--port", "{port}", "--log-level", "info"),
        *("--timeout-keep-alive", "60", "{app}"),
    ),
    "daphne": ("daphne", "-b", HOST, "-p", "{port}", "{app}"),
    "granian": (
        "granian",
        *("--interface", "asginl", "--host", HOST, "--port", "{port}", "--workers", "1"),
        "{app}",
    ),
    "hypercorn": (
        *("hypercorn", "--workers", "0", "--bind", f"{HOST}:{{port}}"),
        *("--graceful-timeout", "30", "{app}"),
    ),
    "gunicorn": (
        *("gunicorn", "--worker-class", "uvicorn_worker.UvicornWorker"),
        *("--bind", f"{HOST}:{{port}}", "--workers", "1", "{app}"),
    ),
}
# Several processes behind one port.
FLEETS = {
    "uvicorn, two workers": (*COMMANDS["uvicorn"], "--workers", "2"),
    "gunicorn, preloaded": (
        *("gunicorn", "--preload", "--worker-class", "uvicorn_worker.UvicornWorker"),
        *("--bind", f"{HOST}:{{port}}", "--workers", "2", "{app}"),
    ),
    "gunicorn, threads": (
        *("gunicorn", "--worker-class", "gthread", "--threads", "8"),
        *("--bind", f"{HOST}:{{port}}", "--workers", "2", "{app}"),
    ),
    "gunicorn, greenlets": (
        *("gunicorn", "--worker-class", "gevent"),
        *("--bind", f"{HOST}:{{port}}", "--workers", "2", "{app}"),
    ),
}


# Servers of WSGI, in one process.
WSGI = {
    "runserver": ("django", "runserver", "--noreload", f"{HOST}:{{port}}"),
    "gunicorn, sync": ("gunicorn", "--bind", f"{HOST}:{{port}}", "{app}"),
    "gunicorn, gthread": ("gunicorn", "--threads", "4", "--bind", f"{HOST}:{{port}}", "{app}"),
    "granian, WSGI": (
        *("granian", "--interface", "wsgi", "--host", HOST, "--port", "{port}"),
        *("--workers", "1", "{app}"),
    ),
    "uWSGI": (
        *("uwsgi", "--http-socket", f"{HOST}:{{port}}", "--module", "{app}"),
        *("--need-app", "--die-on-term"),
    ),
    # The HTTP router of uWSGI is a process of its own, which passes on what it is told to.
    "uWSGI, router": (
        *("uwsgi", "--http", f"{HOST}:{{port}}", "--http-chunked-input", "--module", "{app}"),
        *("--need-app", "--die-on-term"),
    ),
    "uWSGI, router without its option": (
        *("uwsgi", "--http", f"{HOST}:{{port}}", "--module", "{app}"),
        *("--need-app", "--die-on-term"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server; `output` is everything that it has printed so far."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def terminate(self) -> None:
        """Tell the process to stop, as a process manager does."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """The exit status; fails when the process does not end."""
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"The server did not stop.\n{self.output}") from None


@contextmanager
def serving(
    kind: str, app: str, directory: Path, *, settings: str, port: int | None = None, **environ: str
) -> Iterator[Server]:
    """An application behind one of `COMMANDS`, `FLEETS` or `WSGI`.

    Its output is kept under `directory`.
    A `port` is given where the application has to know its own address.
    """
    port = port or free_port()
    parts = {**COMMANDS, **FLEETS, **WSGI}[kind]
    program, *arguments = (part.format(port=port, app=app) for part in parts)
    # uWSGI embeds Python, and is no module of it.
    is_binary = program == "uwsgi"
    start = (
        [Path(sys.executable).with_name(program)] if is_binary else [sys.executable, "-m", program]
    )
    log = directory / f"{kind}-{port}.txt"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [*start, *arguments],
            cwd=REPOSITORY,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": settings, **environ},
            stdout=output,
            stderr=subprocess.STDOUT,
            # A group of its own, so that whatever it starts ends with it.
            start_new_session=True,
        ) as process,
    ):
        server = Server(process=process, port=port, log=log)
        try:
            wait_until_answering(process, port, log)
            yield server
        finally:
            _kill_group(process)


def run_python(*arguments: str) -> str:
    """What a program of this repository prints; fails when it does not succeed."""
    program = subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert program.returncode == 0, program.stderr
    return program.stdout


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with closing(socket.socket()) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_answering(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until somebody listens on a port, and show what was printed if nobody will."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with closing(socket.socket()) as probe:
            probe.settimeout(1)
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.05)
    output = log.read_text(encoding="utf-8", errors="replace")
    raise AssertionError(f"The server did not start.\n{output}")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)
