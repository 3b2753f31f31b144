"""Statistics of measurements: percentiles, medians and ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median


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
    found = sorted(values)
    return Spread(median=median(found), least=found[0], most=found[-1])


def ratios(row: Iterable[float], baseline: Iterable[float]) -> Spread:
    """Return the ratios of a row to its baseline by round, so that drift affects both equally.

    Raises:
        ValueError: the two do not have the same number of rounds.
    """
    return spread(one / other for one, other in zip(row, baseline, strict=True))


def format_number(value: float) -> str:
    """Format a number with three significant digits, never as a power of ten."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"
