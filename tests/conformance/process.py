"""The server process of the fixture: started, waited for, and ended with its workers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException

HOST = "127.0.0.1"
APPLICATION = "tests.conformance.asgi:application"
# Limits for an overloaded machine; no test asserts how long a server takes.
START_SECONDS = 180
STOP_SECONDS = 30

COMMANDS = {
    "uvicorn": (
        "uvicorn",
        *("--host", HOST, "--port", "{port}", "--workers", "{workers}"),
        *("--log-level", "warning"),
    ),
    "daphne": ("daphne", "-b", HOST, "-p", "{port}", "--verbosity", "0"),
    "granian": (
        "granian",
        *("--interface", "asginl", "--host", HOST, "--port", "{port}", "--workers", "{workers}"),
        # A worker that gets the signal while it starts misses it, and is killed after this time.
        *("--log-level", "warning", "--workers-kill-timeout", "2"),
    ),
}


def is_taken(port: int) -> bool:
    """Return whether a process listens on a port."""
    with closing(socket.socket()) as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def running(
    kind: str, environ: Mapping[str, str], *, port: int, workers: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of `COMMANDS`, and yield its process once it answers; end it with all its workers.

    Raises:
        RuntimeError: the server ended, or did not answer within `START_SECONDS`.
    """
    arguments = [part.format(port=port, workers=workers) for part in COMMANDS[kind]]
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments, APPLICATION],
        env=environ,
        # Standard output is for the line that reports that the fixture serves.
        stdout=sys.stderr,
        # A group of its own, so that its workers can be ended with it.
        start_new_session=True,
    )
    try:
        _wait_until_answering(process, port)
        yield process
    finally:
        # A second request to stop must not interrupt this one.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        _end(process)


def _wait_until_answering(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"The server ended with status {process.returncode}.")
        if _answers(port):
            return
        time.sleep(0.05)
    raise RuntimeError(f"The server did not answer within {START_SECONDS} seconds.")


def _answers(port: int) -> bool:
    """Return whether an application answers, with any status, and not only a socket."""
    with closing(HTTPConnection(HOST, port, timeout=START_SECONDS)) as connection:
        try:
            connection.request("GET", "/mcp")
            return bool(connection.getresponse().status)
        except (OSError, HTTPException):
            return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    # Processes that ignored the signal, and workers that outlived their manager.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)
