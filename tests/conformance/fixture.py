"""Starts `python -m tests.conformance` as anybody would, and ends it."""

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

# It ends its own server within its own bound first.
STOP_SECONDS = 2 * process.STOP_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """A running fixture; `line` is what it said when it was ready."""

    process: subprocess.Popen[str]
    port: int
    line: str

    @property
    def url(self) -> str:
        return f"http://{process.HOST}:{self.port}/mcp"

    def end(self, number: signal.Signals = signal.SIGTERM) -> str:
        """Tell it to stop; returns whatever else it printed.

        Raises:
            subprocess.TimeoutExpired: it did not end.
        """
        if self.process.poll() is None:
            self.process.send_signal(number)
        printed, _ = self.process.communicate(timeout=STOP_SECONDS)
        return printed


@contextmanager
def serving(*options: str, directory: Path, port: int | None = None) -> Iterator[Fixture]:
    """The fixture with these options; what it and its server log is kept under `directory`."""
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
