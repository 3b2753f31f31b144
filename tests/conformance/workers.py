"""Worker processes of the site's task backend, which run tasks where several processes serve."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

# Each worker runs one task at a time, and the suite abandons some that would take a minute.
COUNT = 2
COMMAND = ("db_worker", "--interval", "0.1", "--no-startup-delay", "--queue-name", "*")


@contextmanager
def working(environ: Mapping[str, str]) -> Iterator[None]:
    """Run tasks in workers; a task that still runs at the end is killed."""
    with ExitStack() as stack:
        for _ in range(COUNT):
            stack.enter_context(_worker(environ))
        yield


@contextmanager
def _worker(environ: Mapping[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "django", *COMMAND],
        env=dict(environ),
        # Standard output is for the line that reports that the fixture serves.
        stdout=sys.stderr,
        # An interrupt from the terminal is for the process that ends all of them.
        start_new_session=True,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
