"""The server process of the fixture: started, known to answer, and ended with its workers."""

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
# Bounds for a machine in distress; nothing is asserted about how long a server takes.
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
        # A worker that is told to stop while it still starts does not hear it, and is waited for.
        *("--log-level", "warning", "--workers-kill-timeout", "2"),
    ),
}


def is_taken(port: int) -> bool:
    """Whether somebody listens on a port."""
    with closing(socket.socket()) as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def running(
    kind: str, environ: Mapping[str, str], *, port: int, workers: int
) -> Iterator[subprocess.Popen[bytes]]:
    """One of `COMMANDS`, answering; it is gone at the end, workers and all.

    Raises:
        RuntimeError: the server ended, or did not answer within `START_SECONDS`.
    """
    arguments = [part.format(port=port, workers=workers) for part in COMMANDS[kind]]
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments, APPLICATION],
        env=environ,
        # Standard output is for the line that says that we serve.
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
    """Whether an application answers, not only a socket: any status will do."""
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
    # Whoever did not listen, and workers that outlived their manager.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)
