"""Starts `python -m tests.conformance` as a user would, and stops it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.conformance import process
from tests.kit.processes import REPOSITORY, free_port

# The fixture first stops its own server, which has a limit of its own.
STOP_SECONDS = 2 * process.STOP_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """A running fixture; `line` is what it printed when it was ready."""

    process: subprocess.Popen[str]
    port: int
    line: str

    @property
    def url(self) -> str:
        return f"http://{process.HOST}:{self.port}/mcp"

    def end(self, number: signal.Signals = signal.SIGTERM) -> str:
        """Stop the fixture, and return the rest of its output.

        Raises:
            subprocess.TimeoutExpired: it did not end.
        """
        if self.process.poll() is None:
            self.process.send_signal(number)
        printed, _ = self.process.communicate(timeout=STOP_SECONDS)
        return printed


@contextmanager
def serving(*options: str, directory: Path, port: int | None = None) -> Iterator[Fixture]:
    """Yield the fixture with these options; its log and its server's are under `directory`."""
    port = port or free_port()
    log = directory / f"fixture-{port}.txt"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.conformance", "--port", str(port), *options],
            cwd=REPOSITORY,
            env={**os.environ, "TMPDIR": str(directory)},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as started,
    ):
        try:
            line = _first_line(started)
            if not line.startswith("Serving "):
                raise AssertionError(f"The fixture did not start.\n{log.read_text()}")
            yield (running := Fixture(process=started, port=port, line=line))
            running.end()
        finally:
            with suppress(ProcessLookupError):
                started.kill()


def _first_line(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    # Reading blocks; ending the process ends the reading.
    watchdog = threading.Timer(2 * process.START_SECONDS, started.kill)
    watchdog.start()
    try:
        return started.stdout.readline()
    finally:
        watchdog.cancel()
