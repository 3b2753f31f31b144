"""Measure in rounds: each round has a sample of every row, so that drift affects all equally."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from benchmarks.load import UnexpectedResponse, send_load, send_once
from benchmarks.process import Process
from benchmarks.works import Row

# Statistics ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One row in one round: the cost of a number of requests in the server's process."""

    requests: int
    seconds: float
    cpu_seconds: float
    latencies: Sequence[float]
    """Seconds from the first byte sent to the last byte read, sorted."""

    @property
    def cpu(self) -> float:
        """CPU per request in microseconds, user and system time of all threads."""
        return self.cpu_seconds / self.requests * 1e6

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    @property
    def p50(self) -> float:
        """Median latency in milliseconds."""
        return percentile(self.latencies, 50) * 1e3

    @property
    def p99(self) -> float:
        """99th percentile of latency in milliseconds."""
        return percentile(self.latencies, 99) * 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A median with the minimum and the maximum of its values."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        least, most = format_number(self.least), format_number(self.most)
        return f"{format_number(self.median)} ({least} to {most})"


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of sorted values, which is always a measured value.

    Raises:
        ValueError: no values were given, or the percentile is not valid.
    """
    if not values or not 0 < percent <= 100:
        raise ValueError(
            f"No percentile {percent:g} of {len(values)} values; use 0 < percent <= 100."
        )
    return values[math.ceil(len(values) * percent / 100) - 1]


def spread(values: Iterable[float]) -> Spread:
    """Return the median and the range of at least one value."""
    sorted_values = sorted(values)
    return Spread(median=median(sorted_values), least=sorted_values[0], most=sorted_values[-1])


def ratios(row: Iterable[float], baseline: Iterable[float]) -> Spread:
    """Return the ratios of a row to its baseline by round, so that drift affects both equally.

    Raises:
        ValueError: the row and the baseline do not have the same number of rounds.
    """
    return spread(value / base for value, base in zip(row, baseline, strict=True))


def format_number(value: float) -> str:
    """Format a number with three significant digits, never as a power of ten."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"


# Rounds -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The number and the duration of rounds."""

    rounds: int
    seconds: float
    """Duration of one row in one round."""


THOROUGH = Plan(rounds=7, seconds=2.0)
QUICK = Plan(rounds=3, seconds=0.4)


@dataclass(slots=True, kw_only=True, eq=False)
class RowResult:
    """A row with its samples, one for each round."""

    row: Row
    requests: Sequence[Sequence[bytes]] = ()
    samples: list[Sample] = field(default_factory=list)

    @property
    def cpu(self) -> Spread:
        """CPU per request in microseconds."""
        return spread(sample.cpu for sample in self.samples)

    @property
    def rate(self) -> Spread:
        """Requests per second."""
        return spread(sample.rate for sample in self.samples)

    @property
    def p50(self) -> Spread:
        """Median latency in milliseconds."""
        return spread(sample.p50 for sample in self.samples)

    @property
    def p99(self) -> Spread:
        """99th percentile of latency in milliseconds."""
        return spread(sample.p99 for sample in self.samples)


def measure_rows(
    rows: Sequence[Row],
    servers: Mapping[str, Process],
    plan: Plan,
    *,
    say: Callable[[str], None],
    may_fail: Collection[str] = (),
) -> list[RowResult]:
    """Warm up every row, then measure all of them round by round.

    ``servers`` are the running servers by name. If a row of a server that may fail does fail, it is
    left out, and ``say`` is called with the reason.

    Raises:
        UnexpectedResponse: a server did not respond in time, or not as its row expects.
    """
    results: list[RowResult] = []

    def attempt(work: Callable[[RowResult], None], result: RowResult) -> None:
        row = result.row
        try:
            work(result)
        except (TimeoutError, UnexpectedResponse) as exc:
            failure = f"{row}: {exc}"
            if row.process not in may_fail:
                raise UnexpectedResponse(failure) from exc
            say(f"left out: {failure}")
            results.remove(result)

    for row in rows:
        results.append(RowResult(row=row))
        attempt(partial(_warm_up, servers[row.process].port, plan), results[-1])
    for comes_last in (False, True):
        for number in range(plan.rounds):
            say(f"round {number + 1} of {plan.rounds}")
            for result in [*results]:
                if result.row.comes_last == comes_last:
                    attempt(partial(_measure, servers[result.row.process], plan), result)
    return results


def _warm_up(port: int, plan: Plan, result: RowResult) -> None:
    row = result.row
    result.requests = row.prepared(port)
    send_once(port, result.requests[0][0], expects=row.expects)
    send_load(port, result.requests, seconds=plan.seconds / 4, follow=row.follow)


def _measure(server: Process, plan: Plan, result: RowResult) -> None:
    before = server.cpu_seconds
    burst = send_load(server.port, result.requests, seconds=plan.seconds, follow=result.row.follow)
    result.samples.append(
        Sample(
            requests=len(burst.latencies),
            seconds=burst.seconds,
            cpu_seconds=server.cpu_seconds - before,
            latencies=burst.latencies,
        )
    )
