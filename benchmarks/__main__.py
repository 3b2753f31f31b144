"""``python -m benchmarks``: what each work costs this package and its peers, in the same run.

The site is served with a SQLite file, and with ``--postgres`` also with PostgreSQL.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.peers import PEERS, NotInstalled
from benchmarks.process import (
    REPOSITORY,
    SERVERS,
    NotStarted,
    Process,
    database_file,
    serve_asgi,
    serve_wsgi,
)
from benchmarks.rounds import QUICK, THOROUGH, Plan, measure_rows
from benchmarks.streams import KINDS, StreamFigures, measure_streams
from benchmarks.works import (
    ADD,
    APP,
    FLOOR,
    ON_POSTGRES,
    OWN,
    WSGI_APP,
    Processes,
    Row,
    own_rows,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that the arguments select."""
    options = build_parser().parse_args(arguments)
    if options.prepare:
        print_result(prepare_database(options.prepare))
        return
    before = report.describe_environment()
    print_result(", ".join(f"{name} {value}" for name, value in before.items()))
    plan = QUICK if options.quick else THOROUGH
    document = run(plan, options)
    print_result(f"load at the end {report.describe_environment()['load']}")
    if options.json:
        document["environment"] = before
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the argument parser of the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="short rounds, for a rough impression only"
    )
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="also write all figures to this file"
    )
    parser.add_argument(
        "--only", metavar="TEXT", help="rows whose block, work or column contains this"
    )
    parser.add_argument("--no-peers", action="store_true", help="measure this package only")
    parser.add_argument("--no-streams", action="store_true", help="do not measure open streams")
    parser.add_argument(
        "--streams", type=int, help="number of open streams (1000, or 100 with --quick)"
    )
    parser.add_argument("--server", choices=[*SERVERS], default="uvicorn", help="ASGI server")
    parser.add_argument(
        "--postgres",
        metavar="URL",
        help="also measure on this empty PostgreSQL database (postgres://…)",
    )
    parser.add_argument(
        "--prepare", metavar="FILE", help="create this database, print an access token, and exit"
    )
    return parser


def prepare_database(database: str | Path) -> str:
    """Create the tables; return an access token for the server that requires one."""
    is_url = "://" in str(database)
    os.environ["BENCH_DB"] = str(database) if is_url else str(Path(database).resolve())
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.site.settings"
    import django

    django.setup()
    from benchmarks.site.database import create_rows

    return create_rows()


def prepared(database: str) -> str:
    """Prepare a database in its own process; return a token.

    A process can set up Django for one database only.

    Raises:
        subprocess.CalledProcessError: the database cannot be prepared; stderr has the reason.
    """
    command = [sys.executable, "-m", "benchmarks", "--prepare", database]
    process = subprocess.run(command, check=True, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    return process.stdout.strip()


def run(plan: Plan, options: argparse.Namespace) -> Any:
    """Measure and print everything; return all figures for JSON."""
    database = str(database_file())
    databases = {"": database, **({ON_POSTGRES: options.postgres} if options.postgres else {})}
    with ExitStack() as stack:
        rows: list[Row] = []
        servers: dict[str, Process] = {}
        versions: dict[str, str] = {}
        for suffix, address in databases.items():
            processes = Processes(f"{OWN}, gunicorn{suffix}", f"{OWN}, {options.server}{suffix}")
            rows += own_rows(prepared(address), processes, suffix)
            environ = {"BENCH_DB": address}
            servers[processes.gunicorn] = stack.enter_context(serve_wsgi(WSGI_APP, environ))
            servers[processes.uvicorn] = stack.enter_context(start_site(options.server, address))
        own = {*servers}
        for peer, (suffix, address) in product(PEERS, databases.items()):
            if options.no_peers:
                break
            name = peer.title + suffix
            print_progress(f"preparing {name}")
            try:
                versions[peer.distribution] = peer.install()
                servers[name] = stack.enter_context(peer.start(address))
            except (NotInstalled, NotStarted) as exc:
                print_progress(f"{name} is skipped: {exc}")
                continue
            rows += peer.rows(name, suffix)
        chosen = [row for row in rows if is_chosen(row, options.only)]
        results = measure_rows(chosen, servers, plan, say=print_progress, may_fail={*servers} - own)
        memory = {name: server.memory / 2**20 for name, server in servers.items()}
    streams = [] if options.no_streams else stream_figures(plan, database, options)
    for block, table in report.block_tables(results, streams):
        print_result(f"**{block}**\n\n{table}")
    print_result(report.memory_table(memory))
    print_result(report.figure_table(results))
    if streams:
        print_result(report.stream_table(streams))
    if versions:
        print_result(", ".join(f"{name} {value}" for name, value in versions.items()))
    return {**report.build_document(plan, results, streams, memory), "peers": versions}


def is_chosen(row: Row, text: str | None) -> bool:
    """Return whether a row will be measured: by a part of its block, work and column.

    The floors of ``add`` are always measured, because other rows are compared with them.
    """
    return not text or text in str(row) or (row.column == FLOOR and row.work == ADD)


def start_site(server: str, database: str, **environ: str) -> AbstractContextManager[Process]:
    """Start the site with a database."""
    return serve_asgi(APP, {"BENCH_DB": database, **environ}, server=server)


def stream_figures(plan: Plan, database: str, options: argparse.Namespace) -> list[StreamFigures]:
    """Measure each kind of stream on the fast handler and the raw mount, on new servers."""
    quick = plan is QUICK
    streams = options.streams or (100 if quick else 1000)
    figures = []
    for kind, mount in product(KINDS, ("/mcp", "/raw")):
        print_progress(f"{streams} streams of {kind} on {mount}")
        with start_site(options.server, database, BENCH_LAYER="memory") as server:
            measuring = measure_streams(
                server, Path(database), mount, kind, streams=streams, changes=5 if quick else 20
            )
            figures.append(asyncio.run(measuring))
    return figures


def print_progress(text: str) -> None:
    """Print progress to stderr."""
    sys.stderr.write(f"{text}\n")


def print_result(text: str) -> None:
    """Print a result to stdout."""
    sys.stdout.write(f"{text}\n\n")


if __name__ == "__main__":
    main()
