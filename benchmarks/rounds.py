"""Measure in rounds: each round has a sample of every row, so that drift affects all equally."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.figures import Sample, Spread, ratios, spread
from benchmarks.load import send_load, send_once
from benchmarks.process import Process
from benchmarks.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The number and the duration of rounds."""

    rounds: int
    seconds: float
    """Duration of one row in one round."""


THOROUGH = Plan(rounds=7, seconds=2.0)
QUICK = Plan(rounds=3, seconds=0.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """A row with its samples, one for each round."""

    row: Row
    request: bytes = b""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Ratios of a row to its baseline; above 1, the row is better."""

    cpu: Spread
    """The baseline's CPU per request divided by the row's."""
    rate: Spread
    """The row's requests per second divided by the baseline's."""


def compare_results(result: RowResult, baseline: RowResult) -> Comparison:
    """Compare a row with its baseline, round by round."""
    mine, theirs = result.samples, baseline.samples
    return Comparison(
        cpu=ratios((one.cpu for one in theirs), (one.cpu for one in mine)),
        rate=ratios((one.rate for one in mine), (one.rate for one in theirs)),
    )


def measure_rows(
    rows: Sequence[Row],
    servers: Mapping[str, Process],
    plan: Plan,
    *,
    say: Callable[[str], None],
) -> list[RowResult]:
    """Warm up every row, then measure all of them round by round.

    Raises:
        UnexpectedAnswer: the response to a row is not the expected one.
    """
    results = []
    for row in rows:
        port = servers[row.server].port
        request = row.prepared(port)
        send_once(port, request, expects=row.expects)
        send_load(port, request, seconds=plan.seconds / 4, follow=row.follow)
        results.append(RowResult(row=row, request=request))
    for number in range(plan.rounds):
        say(f"round {number + 1} of {plan.rounds}")
        for result in results:
            server = servers[result.row.server]
            result.samples.append(_sample(result, server, plan.seconds))
    return results


def _sample(result: RowResult, server: Process, seconds: float) -> Sample:
    before = server.cpu_seconds
    follow = result.row.follow
    burst = send_load(server.port, result.request, seconds=seconds, follow=follow)
    return Sample(
        requests=len(burst.latencies),
        seconds=burst.seconds,
        cpu_seconds=server.cpu_seconds - before,
        latencies=burst.latencies,
    )
