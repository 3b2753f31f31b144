"""Starts `manage.py` the way a reader of the README does, and stops it without a trace."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
# Migrating and loading all airports takes seconds; this is the limit for an overloaded machine.
START_SECONDS = 180
STOP_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoServer:
    """A running demo, as its own output describes it.

    `url` and `token` go together, as do `staff_url` and `staff_token`; `site` is the address of
    the pages, `output` everything that was printed before it served.
    """

    site: str
    url: str
    staff_url: str
    token: str
    staff_token: str
    output: str
    errors: str
    """What it had written to standard error when it began to serve."""
    var: Path


def run_manage(var: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run one command of the demo to its end."""
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=REPOSITORY,
        env=_environ(var) | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=START_SECONDS,
    )


@contextmanager
def running_demo(var: Path, **environ: str) -> Iterator[DemoServer]:
    """Run `manage.py demo` on a free port, with everything that it writes under `var`."""
    var.mkdir(parents=True, exist_ok=True)
    with (
        (var / "stderr.txt").open("w+", encoding="utf-8") as errors,
        subprocess.Popen(
            [sys.executable, "manage.py", "demo", "--port", "0"],
            cwd=REPOSITORY,
            env=_environ(var) | environ,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            # A group of its own, so that the processes that it starts end with it.
            start_new_session=True,
        ) as process,
    ):
        try:
            output = _output_until_serving(process)
            if "Serving on" not in output:
                errors.seek(0)
                raise AssertionError(f"The demo did not start.\n{output}\n{errors.read()}")
            # Not read from the open file, whose position the process shares.
            complaints = (var / "stderr.txt").read_text(encoding="utf-8")
            yield _read_server(output, complaints, var)
        finally:
            _stop(process)


def _environ(var: Path) -> dict[str, str]:
    # pytest-django leaves the settings of the suite in the environment.
    demo = {"DEMO_VAR": str(var), "DJANGO_SETTINGS_MODULE": "demo_project.settings"}
    return {**os.environ, **demo, "PYTHONUNBUFFERED": ""}


def _output_until_serving(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    lines = []
    # Reading blocks; ending the process ends the reading.
    watchdog = threading.Timer(START_SECONDS, lambda: _signal(process, signal.SIGKILL))
    watchdog.start()
    try:
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Serving on"):
                break
    finally:
        watchdog.cancel()
    return "".join(lines)


def _read_server(output: str, errors: str, var: Path) -> DemoServer:
    site = _find(r"^Serving on (http://\S+)/ ", output)
    return DemoServer(
        site=site,
        url=f"{site}/mcp",
        staff_url=f"{site}/staff/mcp",
        token=_find(r"^  guest +(mcp_\S+)$", output),
        staff_token=_find(r"^  desk +(mcp_\S+)$", output),
        output=output,
        errors=errors,
        var=var,
    )


def _find(pattern: str, output: str) -> str:
    match = re.search(pattern, output, re.MULTILINE)
    assert match is not None, f"{pattern} is not in:\n{output}"
    return match.group(1)


def _stop(process: subprocess.Popen[str]) -> None:
    _signal(process, signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)
        process.wait(STOP_SECONDS)


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)
