"""Print which user each package recorded: a table of kinds of tools and transports."""

from __future__ import annotations

import io
import sys
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parent / "test_recorded_users.py"


class Collector:
    """Collects what the test recorded, whether it passed or not."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, list[tuple[str, Any]], str]] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call":
            parameters = report.nodeid.partition("[")[2].removesuffix("]")
            self.rows.append((parameters, report.user_properties, report.outcome))


def _cell(properties: list[tuple[str, Any]], outcome: str) -> str:
    """Return which packages recorded whom in place of the caller; `right` if all are right."""
    wrong: dict[str, list[str]] = {}
    for caller, users in properties:
        if isinstance(users, dict):
            for package, user in users.items():
                if user != caller:
                    wrong.setdefault(package, []).append(f"{user} for {caller}")
    if not wrong:
        return "right" if outcome == "passed" else "FAILED BEFORE A RECORD"
    return "; ".join(f"{package}: {', '.join(users)}" for package, users in wrong.items())


def main(settings: str = "tests.sites.audit.settings") -> None:
    """Run the test and print the table."""
    collector = Collector()
    quiet = ["-q", "--no-header", "--no-summary", "--tb=no", "-p", "no:randomly"]
    with redirect_stdout(io.StringIO()):
        pytest.main(
            [str(FILE), "--ring", "all", "--ds", settings, "-n", "0", *quiet], plugins=[collector]
        )
    for parameters, properties, outcome in sorted(collector.rows):
        streamed = dict(properties).get("is_stream")
        kind = {True: "stream", False: "one answer", None: "?"}[streamed]
        print(f"{parameters} | {kind} | {_cell(properties, outcome)}")
    print(dict(Counter(outcome for *_, outcome in collector.rows)))


if __name__ == "__main__":
    main(*sys.argv[1:])
