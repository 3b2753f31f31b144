"""Format the figures as tables and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.figures import Spread, format_number, ratios
from benchmarks.rounds import Comparison, Plan, RowResult, compare_results
from benchmarks.rows import BARE
from benchmarks.streams import StreamFigures

PACKAGES = ("django", "asgiref", "uvicorn", "uvloop", "httptools", "msgspec", "pydantic")


def describe_environment() -> dict[str, str]:
    """Return the versions and the machine that the figures depend on, and its load."""
    found = {
        "python": platform.python_version(),
        "processors": str(os.cpu_count()),
        "load": format_number(os.getloadavg()[0]),
    }
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def markdown_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is text, the others are numbers."""
    rows = [head, *lines]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    rule = [
        "-" * widths[0],
        *("-" * (width - 1) + ":" for width in widths[1:]),
    ]
    return "\n".join(_line(row, widths) for row in (rows[0], rule, *rows[1:]))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
    return f"| {' | '.join(padded)} |"


def compare_to_baseline(result: RowResult, by_name: Mapping[str, RowResult]) -> Comparison | None:
    """Compare a row with its baseline; return None if it does not have one or is one."""
    against = result.row.against
    return (
        compare_results(result, by_name[against]) if against not in {"", result.row.name} else None
    )


def multiple_of_bare(result: RowResult, by_name: Mapping[str, RowResult]) -> Spread | None:
    """Return a row's CPU as a multiple of the bare ASGI answer's, if that was measured too."""
    bare = by_name.get(BARE)
    if bare is None:
        return None
    return ratios((one.cpu for one in result.samples), (one.cpu for one in bare.samples))


def ratio_table(results: Sequence[RowResult]) -> str:
    """Return the table of ratios to the baselines; above 1, the row is better."""
    by_name = {result.row.name: result for result in results}
    lines = []
    for result in results:
        row = result.row
        found = compare_to_baseline(result, by_name)
        if found is not None:
            lines.append((row.name, row.against, str(found.rate), str(found.cpu), row.target))
    return markdown_table(("row", "compared with", "requests/s", "CPU", "target"), lines)


def figure_table(results: Sequence[RowResult]) -> str:
    """Return the table of absolute figures, which are medians of the rounds."""
    by_name = {result.row.name: result for result in results}
    lines = [
        (
            result.row.name,
            str(multiple_of_bare(result, by_name) or ""),
            str(result.cpu),
            format_number(result.rate.median),
            format_number(result.p50.median),
            format_number(result.p99.median),
        )
        for result in results
    ]
    head = ("row", "times bare", "CPU µs/request", "requests/s", "p50 ms", "p99 ms")
    return markdown_table(head, lines)


def stream_table(figures: Sequence[StreamFigures]) -> str:
    """Return the table of the costs of streams."""
    head = (
        "mount",
        "kind",
        "streams",
        "KiB each",
        "threads more",
        "database connections",
        "CPU µs to open",
        "CPU µs/event",
        "ms to the last",
        "s to stop",
    )
    lines = [
        (
            one.mount,
            one.kind,
            str(one.streams),
            format_number(one.bytes_each / 1024),
            str(one.threads),
            str(one.database_connections),
            format_number(one.open_cpu),
            format_number(one.event_cpu),
            format_number(one.event_ms),
            format_number(one.stop_seconds),
        )
        for one in figures
    ]
    return markdown_table(head, lines)


def build_document(
    plan: Plan, results: Sequence[RowResult], figures: Sequence[StreamFigures]
) -> Any:
    """Return all figures as a JSON-serializable object."""
    by_name = {result.row.name: result for result in results}
    return {
        "plan": asdict(plan),
        "rows": [
            {
                "name": result.row.name,
                "times_bare": asdict(times)
                if (times := multiple_of_bare(result, by_name))
                else None,
                "cpu_us": asdict(result.cpu),
                "requests_per_second": asdict(result.rate),
                "p50_ms": asdict(result.p50),
                "p99_ms": asdict(result.p99),
                "against": result.row.against,
                "ratio": asdict(found) if (found := compare_to_baseline(result, by_name)) else None,
                "target": result.row.target,
            }
            for result in results
        ],
        "streams": [asdict(one) for one in figures],
    }
