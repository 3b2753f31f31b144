"""Start a server in its own process, and end it with all processes that it started.

The output of a server is not parsed: a server is ready when its port accepts connections.
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
"""The directory of clients, suites and sites outside of the repository (`.ci/cache.sh`)."""
HOST = "127.0.0.1"
# Limits for an overloaded machine; no test asserts how long a server takes.
START_SECONDS = 120
STOP_SECONDS = 30

COMMANDS = {
    # By default, uvicorn keeps an idle connection for as long as the clients do, and a connection
    # that is used again at that moment is closed without an answer.
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


# WSGI servers with one process.
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
    # The HTTP router of uWSGI is a process of its own; it needs an option for chunked bodies.
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
        """Return the exit status; fail if the process does not end."""
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"The server did not stop.\n{self.output}") from None


@contextmanager
def serving(
    kind: str, app: str, directory: Path, *, settings: str, port: int | None = None, **environ: str
) -> Iterator[Server]:
    """Run an application with one of `COMMANDS`, `FLEETS` or `WSGI`.

    Its output goes to a file in `directory`. `port` is given if the application has to know its own
    address.
    """
    port = port or free_port()
    parts = {**COMMANDS, **FLEETS, **WSGI}[kind]
    program, *arguments = (part.format(port=port, app=app) for part in parts)
    # uWSGI embeds Python, and is not a Python module.
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
            # Its own process group, so that the processes that it starts end with it.
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
    """Run a program of this repository and return its output; fail if the program fails."""
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
    """Return a port that is free at this moment."""
    with closing(socket.socket()) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_answering(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until a process listens on a port; fail with its output if it does not."""
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
