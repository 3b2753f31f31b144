"""Format the figures as tables and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any, NamedTuple

from benchmarks.rounds import Plan, RowResult, Spread, format_number, ratios, spread
from benchmarks.streams import GET, StreamFigures
from benchmarks.works import (
    ADD,
    BOLT,
    EVENT,
    FASTMCP,
    FLOOR,
    GOALS,
    MCPZ,
    MCPZ_GUNICORN,
    ON_POSTGRES,
    OWN,
    RAW,
    SDK,
    STREAM,
    WORKS,
    Goal,
)

PACKAGES = ("django", "asgiref", "uvicorn", "uvloop", "httptools", "msgspec", "pydantic")
COLUMNS = (MCPZ, MCPZ_GUNICORN, SDK, FASTMCP, BOLT)


def describe_environment() -> dict[str, str]:
    """Return the versions and the machine that the figures depend on, and its load."""
    environment = {
        "python": platform.python_version(),
        "processors": str(os.cpu_count()),
        "load": format_number(os.getloadavg()[0]),
    }
    for name in PACKAGES:
        try:
            environment[name] = version(name)
        except PackageNotFoundError:
            environment[name] = "not installed"
    return environment


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


# Blocks -------------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """A work in a column of a block."""

    block: str
    work: str
    column: str


def cpu_of(
    results: Sequence[RowResult], streams: Sequence[StreamFigures]
) -> Mapping[Cell, Sequence[float]]:
    """Return the microseconds of CPU of each cell, by round."""
    cpu: dict[Cell, Sequence[float]] = {
        Cell(result.row.block, result.row.work, result.row.column): [
            sample.cpu for sample in result.samples
        ]
        for result in results
    }
    opened = [figures for figures in streams if figures.kind == GET]
    if opened:
        cpu[Cell(RAW, STREAM, OWN)] = [figures.open_cpu for figures in opened]
        cpu[Cell(RAW, EVENT, OWN)] = [figures.event_cpu for figures in opened]
    return cpu


def ratio(cpu: Mapping[Cell, Sequence[float]], cell: Cell, column: str) -> Spread | None:
    """Return how many times the CPU of another column a work costs.

    The columns are compared round by round, so that a slow machine affects both. If they do not
    have the same number of rounds, the other column's median is used. A work without a floor of its
    own is compared with the floor of ``add``.
    """
    other = cpu.get(cell._replace(column=column))
    if other is None and column == FLOOR:
        other = cpu.get(cell._replace(column=column, work=ADD))
    if other is None or cell not in cpu:
        return None
    if len(cpu[cell]) == len(other):
        return ratios(cpu[cell], other)
    return spread(value / median(other) for value in cpu[cell])


def block_tables(
    results: Sequence[RowResult], streams: Sequence[StreamFigures]
) -> Sequence[tuple[str, str]]:
    """Return the name and the table of each block: works beside columns, in microseconds of CPU."""
    cpu = cpu_of(results, streams)
    tables = []
    for block in dict.fromkeys(cell.block for cell in cpu):
        cells = [cell for cell in cpu if cell.block == block]
        columns = sorted({cell.column for cell in cells}, key=[OWN, *COLUMNS, FLOOR].index)
        lines = [
            (
                work,
                *(
                    str(spread(cpu[cell])) if (cell := Cell(block, work, column)) in cpu else "-"
                    for column in columns
                ),
                _describe_goal(cpu, Cell(block, work, OWN)),
            )
            for work in WORKS
            if any(cell.work == work for cell in cells)
        ]
        tables.append((block, markdown_table(("CPU µs/request", *columns, "goal"), lines)))
    return tables


def _describe_goal(cpu: Mapping[Cell, Sequence[float]], cell: Cell) -> str:
    goal = goal_of(cell)
    if goal is None:
        return ""
    times = ratio(cpu, cell, goal.of)
    limit = f"≤ {goal.times:g} times {goal.of}"
    return limit if times is None else f"{times}, {limit}"


def goal_of(cell: Cell) -> Goal | None:
    """Return the goal of a work, on any database."""
    return GOALS.get((cell.block.removesuffix(ON_POSTGRES), cell.work))


def memory_table(memory: Mapping[str, float]) -> str:
    """Return the table of the memory of each process."""
    return markdown_table(
        ("process", "MB"), [(name, f"{size:.0f}") for name, size in memory.items()]
    )


# Figures ------------------------------------------------------------------------------------------


def figure_table(results: Sequence[RowResult]) -> str:
    """Return the table of absolute figures, which are medians of the rounds."""
    lines = [
        (
            str(result.row),
            str(result.cpu),
            format_number(result.rate.median),
            format_number(result.p50.median),
            format_number(result.p99.median),
        )
        for result in results
    ]
    return markdown_table(("row", "CPU µs/request", "requests/s", "p50 ms", "p99 ms"), lines)


def stream_table(streams: Sequence[StreamFigures]) -> str:
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
            figures.mount,
            figures.kind,
            str(figures.streams),
            format_number(figures.bytes_each / 1024),
            str(figures.threads),
            str(figures.database_connections),
            format_number(figures.open_cpu),
            format_number(figures.event_cpu),
            format_number(figures.event_ms),
            format_number(figures.stop_seconds),
        )
        for figures in streams
    ]
    return markdown_table(head, lines)


def build_document(
    plan: Plan,
    results: Sequence[RowResult],
    streams: Sequence[StreamFigures],
    memory: Mapping[str, float],
) -> Any:
    """Return all figures as a JSON-serializable object."""
    cpu = cpu_of(results, streams)
    rows = []
    for result in results:
        row = result.row
        cell = Cell(row.block, row.work, row.column)
        goal = goal_of(cell) if row.column == OWN else None
        times = None if goal is None else ratio(cpu, cell, goal.of)
        rows.append(
            {
                **cell._asdict(),
                "cpu_us": asdict(result.cpu),
                "requests_per_second": asdict(result.rate),
                "p50_ms": asdict(result.p50),
                "p99_ms": asdict(result.p99),
                "times": None if times is None else asdict(times),
                "goal": None if goal is None else goal._asdict(),
            }
        )
    return {
        "plan": asdict(plan),
        "rows": rows,
        "streams": [asdict(figures) for figures in streams],
        "memory_mb": dict(memory),
    }
