"""Serves the fixture for the official conformance suite until it is told to stop.

    python -m tests.conformance --port 8000 --workers 2 --mount raw --server granian

It makes and migrates its own database and prints one line once its port answers. SIGTERM and
SIGINT end it and every process that it started; what the server logs goes to standard error.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from tests.conformance.options import read_options
from tests.conformance.process import HOST, running
from tests.conformance.shared import database_url, existing_database, redis_url
from tests.conformance.workers import working


def main() -> int:
    """Serve; the exit status is 0 only if a signal stopped the server."""
    options = read_options()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    with ExitStack() as stack:
        directory = stack.enter_context(TemporaryDirectory(prefix="mcp-conformance-"))
        environ = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.conformance.settings",
            "MCP_TEST_DATABASE": str(Path(directory) / "db.sqlite3"),
            "MCP_TEST_MOUNT": options.mount,
        }
        if options.shared:
            environ["MCP_TEST_SHARED"] = "yes"
            environ["MCP_TEST_DATABASE_URL"] = url = database_url(options.port)
            environ["MCP_TEST_REDIS_URL"] = redis_url()
            stack.enter_context(existing_database(url))
        migrate(environ)
        child = stack.enter_context(
            running(options.server, environ, port=options.port, workers=options.workers)
        )
        if options.shared:
            stack.enter_context(working(environ))
        print(f"Serving http://{HOST}:{options.port}/mcp", flush=True)
        # A server that ends by itself has failed, even with status 0.
        return child.wait() or 1


def migrate(environ: dict[str, str]) -> None:
    """Bring the database up to date."""
    command = [sys.executable, "-m", "django", "migrate", "--verbosity", "0"]
    subprocess.run(command, env=environ, stdout=sys.stderr, check=True)


def stop(number: int, frame: object) -> NoReturn:
    """Exit through every `with` block, the innermost first."""
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
