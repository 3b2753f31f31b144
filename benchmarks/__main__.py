"""``python -m benchmarks``: start the site, send requests, and print the cost of each."""

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
from benchmarks.cache import cache_directory
from benchmarks.peers.compare import compare_peers
from benchmarks.process import SERVERS as ASGI_SERVERS, Process, serve_asgi
from benchmarks.rounds import QUICK, THOROUGH, Plan, RowResult, measure_rows
from benchmarks.rows import APP, SERVERS, Row, rows
from benchmarks.streams import KINDS, StreamFigures, measure_streams


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that the arguments select."""
    options = build_parser().parse_args(arguments)
    if options.prepare:
        prepare_database(options.prepare)
        print_result(f"{options.prepare} is ready.")
        return
    before = report.describe_environment()
    print_result(", ".join(f"{name} {value}" for name, value in before.items()))
    plan = QUICK if options.quick else THOROUGH
    bearers = prepare_database(options.database or cache_directory() / "rows.sqlite3")
    database = os.environ["BENCH_DB"]
    if options.peers:
        document = run_peers(plan, database, bearers[0])
    else:
        document = run_rows(plan, database, select_rows(rows(*bearers), options.only), options)
    print_result(f"load at the end {report.describe_environment()['load']}")
    if options.json:
        document["environment"] = before
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the argument parser of the command."""
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    made.add_argument(
        "--quick", action="store_true", help="short rounds, for a rough impression only"
    )
    made.add_argument(
        "--json", metavar="FILE", type=Path, help="also write all figures to this file"
    )
    made.add_argument(
        "--only", metavar="TEXT", help="rows whose name contains this, and their baselines"
    )
    made.add_argument("--no-streams", action="store_true", help="do not measure open streams")
    made.add_argument(
        "--streams", type=int, help="number of open streams (1000, or 100 with --quick)"
    )
    made.add_argument("--server", choices=[*ASGI_SERVERS], default="uvicorn", help="ASGI server")
    made.add_argument("--prepare", metavar="FILE", help="create this database and exit")
    made.add_argument(
        "--database",
        metavar="URL",
        help="an empty PostgreSQL database (postgres://…) instead of a SQLite file; no streams",
    )
    made.add_argument("--peers", action="store_true", help="compare with other Python servers")
    return made


def prepare_database(database: str | Path) -> tuple[str, str, str]:
    """Create the tables; return bearer tokens for the servers that require one."""
    is_url = "://" in str(database)
    os.environ["BENCH_DB"] = str(database) if is_url else str(Path(database).resolve())
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.site.settings"
    import django

    django.setup()
    from benchmarks.site.database import create_rows as make

    return make()


def run_rows(plan: Plan, database: str, wanted: Sequence[Row], options: argparse.Namespace) -> Any:
    """Measure the rows and the streams and print them; return all figures for JSON."""
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(start_site(options.server, database, name))
            for name in {row.server for row in wanted}
        }
        results = measure_rows(wanted, servers, plan, say=print_progress)
    has_streams = not (options.no_streams or options.database)
    streams = stream_figures(plan, database, options) if has_streams else []
    show_results(results)
    if streams:
        print_result(report.stream_table(streams))
    return report.build_document(plan, results, streams)


def start_site(server: str, database: str, name: str) -> AbstractContextManager[Process]:
    """Start the site with one of the environments that rows use."""
    return serve_asgi(APP, {"BENCH_DB": database, **SERVERS[name]}, server=server)


def run_peers(plan: Plan, database: str, bearer: str) -> Any:
    """Measure other servers and this package and print them; return all figures for JSON."""
    results, versions = compare_peers(plan, database, bearer, say=print_progress)
    show_results(results)
    return {**report.build_document(plan, results, []), "peers": versions}


def show_results(results: Sequence[RowResult]) -> None:
    """Print the ratios and the figures that they are computed from."""
    print_result(report.ratio_table(results))
    print_result(report.figure_table(results))


def select_rows(every: Sequence[Row], text: str | None) -> Sequence[Row]:
    """Return the rows whose name contains the text, and all rows they are compared with."""
    needed: set[str] = set()
    # A baseline comes before the rows that are compared with it.
    for row in reversed(every):
        if not text or text in row.name or row.name in needed:
            needed |= {row.name, row.against}
    return [row for row in every if row.name in needed]


def stream_figures(plan: Plan, database: str, options: argparse.Namespace) -> list[StreamFigures]:
    """Measure each kind of stream on the fast handler and the raw mount, on new servers."""
    quick = plan is QUICK
    streams = options.streams or (100 if quick else 1000)
    found = []
    for kind, mount in product(KINDS, ("/mcp", "/raw")):
        print_progress(f"{streams} streams of {kind} on {mount}")
        with start_site(options.server, database, "channel_layer") as server:
            measuring = measure_streams(
                server, Path(database), mount, kind, streams=streams, changes=5 if quick else 20
            )
            found.append(asyncio.run(measuring))
    return found


def print_progress(text: str) -> None:
    """Print progress to stderr."""
    sys.stderr.write(f"{text}\n")


def print_result(text: str) -> None:
    """Print a result to stdout."""
    sys.stdout.write(f"{text}\n\n")


if __name__ == "__main__":
    main()
