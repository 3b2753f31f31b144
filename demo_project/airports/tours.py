"""Short round trips through many airports: a local search for the traveling salesman problem.

The first tour always continues to the nearest remaining airport. It is improved by 2-opt: where
two legs cross, the stops between them are reversed. Each round then cuts the shortest tour so far
into four pieces, swaps the middle ones (a double bridge), applies 2-opt again, and keeps the
shorter tour. The result is short, but not proven to be the shortest. The module computes with
positions only: no models, no clock, and the same tour each time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from demo_project.airports.geo import EARTH_RADIUS_KM, Position, to_vector

SEED = 28_000
# A smaller gain is a rounding error.
LEAST_GAIN = 1e-9
# With fewer stops, all orders are equally long.
LEAST_STOPS = 4
# The least number of stops for swapping pieces.
LEAST_TO_SHUFFLE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TourProgress:
    """The progress of the search."""

    number: int
    """Number of the round; 0 is the first tour."""
    distance_km: float
    """Length of the shortest tour so far."""


class TourCancelledError(Exception):
    """The search was cancelled."""


def find_tour(
    airports: Mapping[str, Position],
    *,
    start: str,
    rounds: int,
    on_progress: Callable[[TourProgress], None] = lambda progress: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> list[str]:
    """Return the codes in the order of a short tour that begins at `start`; the return is implied.

    `on_progress` is called after each round, and `is_cancelled` repeatedly during 2-opt.

    Raises:
        TourCancelledError: `is_cancelled` returned true.
    """
    codes = [start, *sorted(code for code in airports if code != start)]
    search = _Search([to_vector(airports[code]) for code in codes], is_cancelled)
    best = search.apply_two_opt(search.greedy())
    length = search.length(best)
    on_progress(TourProgress(number=0, distance_km=length * EARTH_RADIUS_KM))
    chance = random.Random(SEED)  # noqa: S311  # not used for secrets
    for number in range(1, rounds + 1):
        if len(best) >= LEAST_TO_SHUFFLE:
            other = search.apply_two_opt(_double_bridge(best, chance))
            if (other_length := search.length(other)) < length:
                best, length = other, other_length
        on_progress(TourProgress(number=number, distance_km=length * EARTH_RADIUS_KM))
    at = best.index(0)
    return [codes[stop] for stop in best[at:] + best[:at]]


def _double_bridge(tour: Sequence[int], chance: random.Random) -> list[int]:
    """Cut the tour into four pieces, and return it with the middle ones swapped."""
    first, second, third = sorted(chance.sample(range(1, len(tour)), 3))
    return [*tour[:first], *tour[second:third], *tour[first:second], *tour[third:]]


class _Search:
    """Local search; a tour is a list of indexes into a table of angular distances."""

    def __init__(
        self, vectors: Sequence[tuple[float, float, float]], is_cancelled: Callable[[], bool]
    ) -> None:
        self._is_cancelled = is_cancelled
        self._angles = [
            [math.acos(min(1.0, max(-1.0, x * a + y * b + z * c))) for a, b, c in vectors]
            for x, y, z in vectors
        ]

    def length(self, tour: Sequence[int]) -> float:
        """Return the length of a tour, including the leg back to its start."""
        return sum(self._angles[tour[n - 1]][tour[n]] for n in range(len(tour)))

    def greedy(self) -> list[int]:
        """Return the tour that always continues to the nearest remaining stop."""
        tour, remaining = [0], set(range(1, len(self._angles)))
        while remaining:
            angles = self._angles[tour[-1]]
            following = min(remaining, key=lambda stop: (angles[stop], stop))
            remaining.remove(following)
            tour.append(following)
        return tour

    def apply_two_opt(self, tour: list[int]) -> list[int]:
        """Apply 2-opt in place until no swap of two legs shortens the tour, and return it."""
        if len(tour) < LEAST_STOPS:
            return tour
        while self._two_opt_pass(tour):
            pass
        return tour

    def _two_opt_pass(self, tour: list[int]) -> bool:
        angles, count, is_better = self._angles, len(tour), False
        for first in range(count - 2):
            if self._is_cancelled():
                raise TourCancelledError
            here, there = tour[first], tour[first + 1]
            # Includes the leg from the last stop to the first, unless it is next to the first leg.
            for second in range(first + 2, count - (first == 0)):
                this, that = tour[second], tour[(second + 1) % count]
                gain = (
                    angles[here][there]
                    + angles[this][that]
                    - angles[here][this]
                    - angles[there][that]
                )
                if gain > LEAST_GAIN:
                    tour[first + 1 : second + 1] = tour[first + 1 : second + 1][::-1]
                    there, is_better = tour[first + 1], True
        return is_better
