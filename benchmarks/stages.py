"""``python -m benchmarks.stages``: measure the CPU of each stage of the data path, in this process.

Each stage gets the values of the previous one and is repeated separately, so the figures do not
depend on a profiler. A part of a stage is marked, and is included in the stage above it.
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

from benchmarks.process import database_file
from benchmarks.report import markdown_table as markdown
from benchmarks.rounds import format_number

ITERATIONS = 2000
BATCHES = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage of the data path, or a part of the stage before it; set ``step`` or ``astep``."""

    name: str
    step: Callable[[], Any] | None = None
    astep: Callable[[], Awaitable[Any]] | None = None
    part: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The cost of one run of a stage: microseconds of CPU of all threads."""

    stage: Stage
    cpu: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages", description=__doc__)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--batches", type=int, default=BATCHES)
    options = parser.parse_args(arguments)
    set_up_site()
    from benchmarks.path import stages

    timings = measure_stages(stages(), iterations=options.iterations, batches=options.batches)
    sys.stdout.write(f"{stage_table(timings)}\n")


def set_up_site() -> None:
    """Set up the site in this process."""
    from benchmarks.__main__ import prepare_database

    prepare_database(database_file())


def measure_stages(stages: Sequence[Stage], *, iterations: int, batches: int) -> list[Timing]:
    """Measure each stage in batches, all stages in turn; use the median batch."""
    stage_times: list[list[float]] = [[] for _ in stages]
    with asyncio.Runner(loop_factory=_loop) as runner:
        # The first batch warms up the caches and is ignored.
        for _ in range(batches + 1):
            for stage, times in zip(stages, stage_times, strict=True):
                times.append(_batch(stage, iterations, runner) / iterations / 1000)
    return [
        Timing(stage=stage, cpu=median(times[1:]))
        for stage, times in zip(stages, stage_times, strict=True)
    ]


def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that uvicorn would use."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _batch(stage: Stage, iterations: int, runner: asyncio.Runner) -> int:
    """Run a batch; return nanoseconds of CPU."""
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


def stage_table(timings: Sequence[Timing]) -> str:
    """Return the table of the stages, with their parts marked."""
    lines = [
        (f"{'· ' * timing.stage.part}{timing.stage.name}", format_number(timing.cpu))
        for timing in timings
    ]
    return markdown(("stage", "CPU µs"), lines)


if __name__ == "__main__":
    main()
