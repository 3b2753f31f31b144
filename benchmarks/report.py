"""Format the figures as tables and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.rounds import Plan, RowResult, Spread, format_number, ratios, spread
from benchmarks.streams import GET, StreamFigures
from benchmarks.works import BARE, EVENT, GOALS, OWN, STREAM

PACKAGES = ("django", "asgiref", "uvicorn", "uvloop", "httptools", "msgspec", "pydantic")
MEMORY = "memory of the worker, MB"
MEMORY_GOAL = "≤ 78"


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


# Times bare ---------------------------------------------------------------------------------------


def times_bare(
    results: Sequence[RowResult], streams: Sequence[StreamFigures]
) -> Mapping[tuple[str, str], Spread]:
    """Return the CPU of each work of each server as a multiple of that of the bare response.

    Rows are compared round by round, streams with the median.
    """
    bare = next(result for result in results if result.row.work == BARE)
    base = [one.cpu for one in bare.samples]
    found = {
        (one.row.work, one.row.server): ratios((sample.cpu for sample in one.samples), base)
        for one in results
        if one is not bare
    }
    standing = [one for one in streams if one.kind == GET]
    for work, costs in (
        (STREAM, [one.open_cpu for one in standing]),
        (EVENT, [one.event_cpu for one in standing]),
    ):
        if costs:
            found[work, OWN] = spread(cost / bare.cpu.median for cost in costs)
    return found


def work_table(
    results: Sequence[RowResult],
    streams: Sequence[StreamFigures],
    memory: Mapping[str, float],
) -> str:
    """Return the table of the works beside the servers, as multiples of the bare response."""
    found = times_bare(results, streams)
    servers = list(dict.fromkeys((OWN, *(one.row.server for one in results))))
    lines = []
    for work, goal in GOALS.items():
        cells = [str(found.get((work, server), "-")) for server in servers]
        if any(cell != "-" for cell in cells):
            lines.append((work, *cells, "" if goal is None else f"≤ {goal:g}"))
    cells = [f"{memory[server]:.0f}" if server in memory else "-" for server in servers]
    return markdown_table(("times bare", *servers, "goal"), [*lines, (MEMORY, *cells, MEMORY_GOAL)])


# Figures ------------------------------------------------------------------------------------------


def figure_table(results: Sequence[RowResult]) -> str:
    """Return the table of absolute figures, which are medians of the rounds."""
    lines = [
        (
            f"{result.row.work}: {result.row.server}",
            str(result.cpu),
            format_number(result.rate.median),
            format_number(result.p50.median),
            format_number(result.p99.median),
        )
        for result in results
    ]
    return markdown_table(("row", "CPU µs/request", "requests/s", "p50 ms", "p99 ms"), lines)


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
    plan: Plan,
    results: Sequence[RowResult],
    figures: Sequence[StreamFigures],
    memory: Mapping[str, float],
) -> Any:
    """Return all figures as a JSON-serializable object."""
    found = times_bare(results, figures)
    return {
        "plan": asdict(plan),
        "rows": [
            {
                "work": result.row.work,
                "server": result.row.server,
                "times_bare": asdict(times)
                if (times := found.get((result.row.work, result.row.server)))
                else None,
                "cpu_us": asdict(result.cpu),
                "requests_per_second": asdict(result.rate),
                "p50_ms": asdict(result.p50),
                "p99_ms": asdict(result.p99),
                "goal": GOALS.get(result.row.work),
            }
            for result in results
        ],
        "streams": [asdict(one) for one in figures],
        "memory_mb": dict(memory),
    }
