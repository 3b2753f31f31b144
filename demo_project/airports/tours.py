"""Round trips through many airports, made shorter round by round.

A tour begins with the nearest airport each time, and is untangled: of two legs that cross, the way
between them is flown backwards. Then, round by round, four pieces of the shortest tour so far
change places, what that tangles is untangled, and the better of both is kept. Nobody knows the
shortest tour of all. Plain code over positions: no models, no clock, and the same tour each time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from demo_project.airports.geo import EARTH_RADIUS_KM, Position, to_vector

SEED = 28_000
# An exchange that gains less than this is rounding.
LEAST_GAIN = 1e-9
# Fewer have no other order that is shorter.
LEAST_STOPS = 4
# Pieces that change places need this many stops.
LEAST_TO_SHUFFLE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """How far the search has come."""

    number: int
    """Of the rounds that were wanted; 0 is the tour that it begins with."""
    distance_km: float
    """How long the shortest tour so far is."""


class TourCancelledError(Exception):
    """The search ended because nobody waits for it any more."""


def find_tour(
    airports: Mapping[str, Position],
    *,
    start: str,
    rounds: int,
    watch: Callable[[Round], None] = lambda found: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> list[str]:
    """The codes in the order of a short tour: from `start` to all others and, unsaid, back.

    `watch` hears of each round; `is_cancelled` is asked between rounds and while one untangles.

    Raises:
        TourCancelledError: `is_cancelled` said so.
    """
    codes = [start, *sorted(code for code in airports if code != start)]
    search = _Search([to_vector(airports[code]) for code in codes], is_cancelled)
    best = search.untangle(search.greedy())
    length = search.length(best)
    watch(Round(number=0, distance_km=length * EARTH_RADIUS_KM))
    chance = random.Random(SEED)  # noqa: S311  # nothing is to be kept secret
    for number in range(1, rounds + 1):
        if len(best) >= LEAST_TO_SHUFFLE:
            other = search.untangle(_shuffled(best, chance))
            if (other_length := search.length(other)) < length:
                best, length = other, other_length
        watch(Round(number=number, distance_km=length * EARTH_RADIUS_KM))
    at = best.index(0)
    return [codes[stop] for stop in best[at:] + best[:at]]


def _shuffled(tour: Sequence[int], chance: random.Random) -> list[int]:
    """Four pieces, of which the middle ones have changed places."""
    one, two, three = sorted(chance.sample(range(1, len(tour)), 3))
    return [*tour[:one], *tour[two:three], *tour[one:two], *tour[three:]]


class _Search:
    """Tours are lists of places in the table of distances, which are angles."""

    def __init__(
        self, vectors: Sequence[tuple[float, float, float]], is_cancelled: Callable[[], bool]
    ) -> None:
        self._is_cancelled = is_cancelled
        self._angles = [
            [math.acos(min(1.0, max(-1.0, x * a + y * b + z * c))) for a, b, c in vectors]
            for x, y, z in vectors
        ]

    def length(self, tour: Sequence[int]) -> float:
        """How long a tour is, the way back included."""
        return sum(self._angles[tour[n - 1]][tour[n]] for n in range(len(tour)))

    def greedy(self) -> list[int]:
        """Always on to the nearest one that is left."""
        tour, left = [0], set(range(1, len(self._angles)))
        while left:
            angles = self._angles[tour[-1]]
            following = min(left, key=lambda stop: (angles[stop], stop))
            left.remove(following)
            tour.append(following)
        return tour

    def untangle(self, tour: list[int]) -> list[int]:
        """The tour without any two legs that would be shorter the other way round."""
        if len(tour) < LEAST_STOPS:
            return tour
        while self._untangle_once(tour):
            pass
        return tour

    def _untangle_once(self, tour: list[int]) -> bool:
        angles, count, is_better = self._angles, len(tour), False
        for first in range(count - 2):
            if self._is_cancelled():
                raise TourCancelledError
            here, there = tour[first], tour[first + 1]
            # Back to the beginning from the last one, whose leg is not next to itself.
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
