"""``python -m benchmarks.stages``: CPU of each stage of the data path, in this process.

Each stage gets the values that the one before it left, and is repeated by itself, so that no
profiler changes what it measures. A part is marked and counted in the stage above it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.cache import directory
from benchmarks.figures import short
from benchmarks.report import table as markdown

ITERATIONS = 2000
BATCHES = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage of the data path, or a part of the one before it; one of the steps is given."""

    name: str
    step: Callable[[], Any] | None = None
    astep: Callable[[], Awaitable[Any]] | None = None
    part: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What one run through a stage costs: microseconds of CPU of all threads."""

    stage: Stage
    cpu: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.stages", description=__doc__)
    made.add_argument("--iterations", type=int, default=ITERATIONS)
    made.add_argument("--batches", type=int, default=BATCHES)
    options = made.parse_args(arguments)
    make_ready()
    from benchmarks.path import stages

    timings = measure(stages(), iterations=options.iterations, batches=options.batches)
    sys.stdout.write(f"{table(timings)}\n")


def make_ready() -> None:
    """Set the site up in this process."""
    from benchmarks.__main__ import prepare

    prepare(directory() / "rows.sqlite3")


def measure(stages: Sequence[Stage], *, iterations: int, batches: int) -> list[Timing]:
    """Each stage in batches, all stages in turn; the median batch counts."""
    found: list[list[float]] = [[] for _ in stages]
    with asyncio.Runner(loop_factory=_loop) as runner:
        # One batch more, to warm caches up.
        for _ in range(batches + 1):
            for stage, times in zip(stages, found, strict=True):
                times.append(_batch(stage, iterations, runner) / iterations / 1000)
    return [
        Timing(stage=stage, cpu=median(times[1:]))
        for stage, times in zip(stages, found, strict=True)
    ]


def _loop() -> asyncio.AbstractEventLoop:
    """The loop that uvicorn would take."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _batch(stage: Stage, iterations: int, runner: asyncio.Runner) -> int:
    """Nanoseconds of CPU."""
    if stage.astep is not None:
        return runner.run(_asynchronous(stage.astep, iterations))
    assert stage.step is not None
    return _synchronous(stage.step, iterations)


def _synchronous(step: Callable[[], Any], iterations: int) -> int:
    started = time.process_time_ns()
    for _ in range(iterations):
        step()
    return time.process_time_ns() - started


async def _asynchronous(step: Callable[[], Awaitable[Any]], iterations: int) -> int:
    started = time.process_time_ns()
    for _ in range(iterations):
        await step()
    return time.process_time_ns() - started


def table(timings: Sequence[Timing]) -> str:
    """The stages, their parts marked."""
    lines = [(f"{'· ' * one.stage.part}{one.stage.name}", short(one.cpu)) for one in timings]
    return markdown(("stage", "CPU µs"), lines)


if __name__ == "__main__":
    main()
