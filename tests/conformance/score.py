"""Serve the fixture, run the official suite against it and print the results.

    python -m tests.conformance.score --revision 2025-11-25 --mount raw --server granian

Takes the options of `python -m tests.conformance`, except the port, and the revisions to test. All
are tested unless some are named; `all` runs every scenario, those of extensions too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conformance import suite
from tests.conformance.fixture import serving
from tests.conformance.options import read_options
from tests.conformance.suite import REVISIONS, Report
from tests.interop.wire import Wire
from tests.kit.processes import free_port
from tests.kit.services import missing

EACH = (*REVISIONS, suite.EVERYTHING)


def score(*options: str, directory: Path, revisions: Iterable[str]) -> dict[str, Report]:
    """Return the suite's report about a fixture with these options, by revision.

    Against a dead server, the suite counts scenarios as passed. So the server has to answer before
    and after.
    """
    reports = {}
    with serving(*options, directory=directory) as running, Wire(running.url) as wire:
        before = wire.result("server/discover")
        for revision in revisions:
            results = directory / "results" / revision
            reports[revision] = suite.run(running.url, results, revision=revision)
            assert wire.result("server/discover") == before
    return reports


def table(revision: str, report: Report) -> str:
    """Return a line for each scenario, and one for each check that fails or warns."""
    lines = [f"-- {revision}"]
    if revision == suite.EVERYTHING:
        required, unscored = tuple(report.scenarios), {}
    else:
        required, unscored = suite.required(revision), suite.unscored(revision)
    for name, checks in report.scenarios.items():
        reason = unscored.get(name, "required")
        lines.append(f"{'pass' if report.has_passed(name) else 'FAIL'}  {name} ({reason})")
        lines += [
            f"      {check.status} {check.id}: {check.message}"
            for check in checks
            if check.status in {"FAILURE", "WARNING"}
        ]
    passed = sum(map(report.has_passed, required))
    return "\n".join([*lines, f"{passed} of {len(required)} scenarios that count pass"])


def main() -> int:
    """Print the tables; return the worst exit status of the suite."""
    if reason := missing("node") or missing("conformance"):
        print(reason, file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.score", add_help=False)
    parser.add_argument("--revision", action="append", choices=EACH)
    arguments, options = parser.parse_known_args()
    # Errors in the options are reported here, and not by a fixture that does not start.
    read_options(["--port", str(free_port()), *options])
    with TemporaryDirectory(prefix="mcp-score-") as directory:
        reports = score(*options, directory=Path(directory), revisions=arguments.revision or EACH)
    for revision, report in reports.items():
        print(table(revision, report))
    return max(report.status for report in reports.values())


if __name__ == "__main__":
    sys.exit(main())
