"""``python -m benchmarks.screens``: the admin's lists with a thousand components, a million calls,
and the tasks of a busy hour.

Django's test client opens each page a few times, so the time is that of the whole request without
a network. The command prints the queries and the time of each page, and fails if a page exceeds a
limit. A busy machine makes a page slower and never faster, so the limit applies to the fastest
round.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import markdown_table
from benchmarks.rounds import Spread, format_number, spread

COMPONENTS = 1_000
CALLS = 1_000_000
TASKS = 10_000
ROUNDS = 5
ADMIN = "/admin/mcp_django"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of the admin, with its limits of queries and time."""

    name: str
    path: str
    queries: int
    milliseconds: float = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class PageMeasurement:
    """The measured queries and times of a page."""

    page: Page
    shown: int
    """Number of rows on the page."""
    queries: int
    """Number of queries in the round with the most queries."""
    milliseconds: Spread

    def faults(self, *, timed: bool = True) -> Iterator[str]:
        """Yield a message for each limit that the page exceeded."""
        name, page = self.page.name, self.page
        if self.queries > page.queries:
            yield f"{name}: {self.queries} queries, limit is {page.queries}"
        if timed and self.milliseconds.least > page.milliseconds:
            yield f"{name}: {self.milliseconds} ms, limit is {format_number(page.milliseconds)}"


def pages(*, last_of_components: int, last_of_calls: int, server: int = 1) -> Sequence[Page]:
    """Return every page to open.

    The arguments are the numbers of the last pages, and the key of the server whose pages to open.
    """
    calls, components = f"{ADMIN}/call/", f"{ADMIN}/component/"
    last, last_counted = f"?p={last_of_components}", f"?p={last_of_calls}"
    return (
        Page(name="front page", path=f"{ADMIN}/", queries=20),
        Page(name="servers", path=f"{ADMIN}/server/", queries=12),
        Page(name="charts of a day", path=f"{calls}charts/?range=day", queries=10),
        Page(name="charts of a week", path=f"{calls}charts/?range=week", queries=10),
        Page(
            name="tool quality",
            path=f"{ADMIN}/server/{server}/report/",
            queries=10,
            milliseconds=1000,
        ),
        Page(name="what a client sees", path=f"{ADMIN}/server/{server}/seen/", queries=10),
        Page(name="one component", path=f"{components}42/change/", queries=12),
        Page(name="components", path=components, queries=14),
        Page(name="components, the last page", path=f"{components}{last}", queries=14),
        Page(name="components, all", path=f"{components}?all=", queries=14, milliseconds=5000),
        Page(name="components, searched", path=f"{components}?q=tool-1042", queries=14),
        Page(name="components, overridden", path=f"{components}?overridden=yes", queries=14),
        Page(name="calls, the newest", path=calls, queries=5),
        Page(name="calls, the last counted page", path=f"{calls}{last_counted}", queries=5),
        Page(name="calls, one outcome", path=f"{calls}?outcome=failed", queries=5),
        Page(name="calls, one server", path=f"{calls}?server__exact=server-3", queries=5),
        Page(name="calls, past 24 hours", path=f"{calls}?since=day", queries=5),
        Page(name="calls, one component of a thousand", path=f"{calls}?q=tool-1042", queries=12),
        Page(name="calls, a common beginning", path=f"{calls}?q=tool-10*", queries=10),
        Page(name="calls, one user", path=f"{calls}?q=user-1234", queries=12),
        Page(name="calls, one trace", path=f"{calls}?q={'0' * 16}1000000000000042", queries=10),
        Page(
            name="calls, failures of a tool and a user",
            path=f"{calls}?q=tool:tool-1042+user:User-1234+outcome:failures",
            queries=14,
        ),
        Page(name="calls, yesterday", path=f"{calls}?since=yesterday", queries=5),
        Page(name="calls, an unknown user", path=f"{calls}?q=unknown", queries=10),
        Page(name="tasks", path=f"{ADMIN}/task/", queries=6),
        Page(name="tasks, one user", path=f"{ADMIN}/task/?q=user-7", queries=6),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Create the rows in a new database, open the pages, and print the measurements."""
    options = build_parser().parse_args(arguments)
    with temporary_database(options.postgres):
        from django.contrib.admin import site

        from benchmarks.screen_rows import create_calls, create_components, create_tasks
        from mcp_django.admin.call_filters import MAX_COUNTED
        from mcp_django.models import Call, Component, Server

        create_components(options.components)
        create_calls(options.calls)
        create_tasks(options.tasks)
        components_per_page, calls_per_page = (
            site._registry[model].list_per_page for model in (Component, Call)
        )
        admin_pages = pages(
            last_of_components=max(1, options.components // components_per_page),
            last_of_calls=max(1, min(MAX_COUNTED, options.calls) // calls_per_page),
            server=Server.objects.get(name="server-1").pk,
        )
        measurements = measure_pages(admin_pages, options.rounds)
    sys.stdout.write(f"{build_report(measurements)}\n")
    faults = [
        fault
        for measurement in measurements
        for fault in measurement.faults(timed=not options.untimed)
    ]
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    return 1 if faults else 0


def build_parser() -> argparse.ArgumentParser:
    """Return the argument parser of the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.screens", description=__doc__)
    parser.add_argument("--components", type=int, default=COMPONENTS)
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--untimed", action="store_true", help="check the limits of queries only")
    parser.add_argument(
        "--postgres", metavar="URL", help="use a temporary database on this PostgreSQL server"
    )
    return parser


@contextmanager
def temporary_database(server: str | None) -> Iterator[None]:
    """Set up the site with a temporary database."""
    with tempfile.TemporaryDirectory() as directory:
        file = str(Path(directory) / "screens.sqlite3")
        os.environ["BENCH_DB"] = f"{server.rstrip('/')}/screens_{os.getpid()}" if server else file
        os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.site.settings"
        import django

        django.setup()
        from django.core.management import call_command
        from django.db import connection

        if not server:
            call_command("migrate", run_syncdb=True, verbosity=0)
            yield
            connection.close()
            return
        name = str(connection.settings_dict["NAME"])
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        try:
            yield
        finally:
            connection.creation.destroy_test_db(name, verbosity=0)


def measure_pages(pages: Sequence[Page], rounds: int) -> list[PageMeasurement]:
    """Open every page once to warm up, then measure all pages round by round."""
    from django.contrib.auth import get_user_model
    from django.test import Client, override_settings

    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root"))
    samples_by_page: dict[Page, list[tuple[int, int, float]]] = {page: [] for page in pages}
    with override_settings(ROOT_URLCONF="benchmarks.site.mcp", ALLOWED_HOSTS=["*"]):
        for number in range(rounds + 1):
            for page, samples in samples_by_page.items():
                sample = _open(client, page)
                if number:
                    samples.append(sample)
    return [
        PageMeasurement(
            page=page,
            shown=samples[-1][0],
            queries=max(queries for _, queries, _ in samples),
            milliseconds=spread(milliseconds for _, _, milliseconds in samples),
        )
        for page, samples in samples_by_page.items()
    ]


def _open(client: Any, page: Page) -> tuple[int, int, float]:
    """Return the number of rows and queries, and the milliseconds, of one request.

    Raises:
        RuntimeError: the status of the response is not 200.
    """
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        began = time.perf_counter()
        response = client.get(page.path)
        took = time.perf_counter() - began
    if response.status_code != 200:
        raise RuntimeError(
            f"The response to {page.path} has the status {response.status_code}; expected 200."
        )
    changelist = response.context_data.get("cl")
    return len(changelist.result_list) if changelist else 1, len(captured), took * 1000


def build_report(measurements: Sequence[PageMeasurement]) -> str:
    """Return the table of the pages with their measurements and limits."""
    lines = [
        (
            measurement.page.name,
            str(measurement.shown),
            f"{measurement.queries} of {measurement.page.queries}",
            str(measurement.milliseconds),
            format_number(measurement.page.milliseconds),
        )
        for measurement in measurements
    ]
    return markdown_table(("page", "rows shown", "queries", "ms", "limit"), lines)


if __name__ == "__main__":
    sys.exit(main())
