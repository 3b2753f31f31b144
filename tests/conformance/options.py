"""The command-line options of the fixture."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tests.conformance.process import COMMANDS, HOST, is_taken

MOUNTS = ("fast", "raw", "view")


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options: `port`, `workers`, `shared`, `mount` and `server`.

    Several workers always share PostgreSQL and Redis.

    Raises:
        SystemExit: the options are invalid, or the port is in use.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("--port", type=int, required=True, help=f"on {HOST}")
    parser.add_argument("--workers", type=int, default=1, help="worker processes")
    parser.add_argument("--shared", action="store_true", help="PostgreSQL and Redis for one, too")
    parser.add_argument("--mount", choices=MOUNTS, default="fast")
    parser.add_argument("--server", choices=COMMANDS, default="uvicorn")
    options = parser.parse_args(arguments)
    if options.workers < 1:
        parser.error("--workers: one at least")
    if options.server == "daphne" and options.workers > 1:
        parser.error("--workers: daphne is one process; take uvicorn or granian for several")
    if is_taken(options.port):
        parser.error(f"--port: something listens on {options.port} already")
    options.shared |= options.workers > 1
    return options
