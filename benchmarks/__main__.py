"""``python -m benchmarks``: start the site, drive it, print what it costs."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.cache import directory
from benchmarks.peers.compare import compare_peers
from benchmarks.process import SERVERS as ASGI_SERVERS, Process, serving
from benchmarks.rounds import QUICK, THOROUGH, Plan, Result, measure
from benchmarks.rows import APP, SERVERS, Row, rows
from benchmarks.streams import KINDS, StreamFigures, measure_streams


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what was asked for."""
    options = parser().parse_args(arguments)
    if options.prepare:
        prepare(options.prepare)
        show(f"{options.prepare} is ready.")
        return
    before = report.environment()
    show(", ".join(f"{name} {value}" for name, value in before.items()))
    plan = QUICK if options.quick else THOROUGH
    database = directory() / "rows.sqlite3"
    bearers = prepare(database)
    if options.peers:
        document = peers(plan, database)
    else:
        document = run(plan, database, chosen(rows(*bearers), options.only), options)
    show(f"load at the end {report.environment()['load']}")
    if options.json:
        document["environment"] = before
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    made.add_argument("--quick", action="store_true", help="short rounds: a look, no figure")
    made.add_argument("--json", metavar="FILE", type=Path, help="write all figures there too")
    made.add_argument("--only", metavar="TEXT", help="rows whose name has this, and yardsticks")
    made.add_argument("--no-streams", action="store_true", help="leave the open streams out")
    made.add_argument("--streams", type=int, help="how many (1000, or 100 with --quick)")
    made.add_argument("--server", choices=[*ASGI_SERVERS], default="uvicorn", help="ASGI server")
    made.add_argument("--prepare", metavar="FILE", type=Path, help="make that database and end")
    made.add_argument("--peers", action="store_true", help="other servers for Python, beside ours")
    return made


def prepare(path: Path) -> tuple[str, str, str]:
    """Make the database; returns bearers for the servers that want one."""
    os.environ["BENCH_DB"] = str(path.resolve())
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.site.settings"
    import django

    django.setup()
    from benchmarks.site.database import prepare as make

    return make()


def run(plan: Plan, database: Path, wanted: Sequence[Row], options: argparse.Namespace) -> Any:
    """Measure the rows and the streams and print them; returns everything for JSON."""
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(start(options.server, database, name))
            for name in {row.server for row in wanted}
        }
        results = measure(wanted, servers, plan, say=say)
    streams = [] if options.no_streams else stream_figures(plan, database, options)
    show_results(results)
    if streams:
        show(report.stream_table(streams))
    return report.document(plan, results, streams)


def start(server: str, database: Path, name: str) -> AbstractContextManager[Process]:
    """The site under one of the environments that rows ask for."""
    return serving(APP, {"BENCH_DB": str(database), **SERVERS[name]}, server=server)


def peers(plan: Plan, database: Path) -> Any:
    """Measure other servers beside ours and print them; returns everything for JSON."""
    results, versions = compare_peers(plan, database, say=say)
    show_results(results)
    return {**report.document(plan, results, []), "peers": versions}


def show_results(results: Sequence[Result]) -> None:
    """Print the ratios and the figures that they were made of."""
    show(report.ratio_table(results))
    show(report.figure_table(results))


def chosen(every: Sequence[Row], text: str | None) -> Sequence[Row]:
    """The rows whose name has the text, with what they are compared with, and that with."""
    needed: set[str] = set()
    # A yardstick comes before what it measures.
    for row in reversed(every):
        if not text or text in row.name or row.name in needed:
            needed |= {row.name, row.against}
    return [row for row in every if row.name in needed]


def stream_figures(plan: Plan, database: Path, options: argparse.Namespace) -> list[StreamFigures]:
    """Streams of each kind on the lane and on the raw mount, each on a server of their own."""
    quick = plan is QUICK
    streams = options.streams or (100 if quick else 1000)
    found = []
    for kind, mount in product(KINDS, ("/mcp", "/raw")):
        say(f"{streams} streams of {kind} on {mount}")
        with start(options.server, database, "bell") as server:
            measuring = measure_streams(
                server, database, mount, kind, streams=streams, changes=5 if quick else 20
            )
            found.append(asyncio.run(measuring))
    return found


def say(text: str) -> None:
    """Tell whoever waits how far it is."""
    sys.stderr.write(f"{text}\n")


def show(text: str) -> None:
    """Print a result."""
    sys.stdout.write(f"{text}\n\n")


if __name__ == "__main__":
    main()
