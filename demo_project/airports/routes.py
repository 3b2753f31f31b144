"""Routes of several legs with a maximum length per leg.

The best route has the fewest legs and, among those, the shortest distance. A breadth-first search
from the origin removes every airport from the grid when it first reaches it, so 28 000 airports
take seconds. The stops are then chosen backward from the destination, among the airports that each
leg reached. The module computes with positions only: no models, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from demo_project.airports.geo import Position, distance_km, to_vector
from demo_project.airports.grid import Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress:
    """The progress of a search."""

    legs: int
    """Number of legs so far."""
    closest: str
    """Code of the airport within reach that is nearest to the destination."""
    covered_km: float
    """How much nearer to the destination this airport is than the origin."""
    total_km: float
    """The great-circle distance from the origin to the destination."""


class SearchCancelledError(Exception):
    """The search was cancelled."""


class NoRouteError(Exception):
    """The destination cannot be reached with legs of this length."""

    def __init__(self, *, closest: str, gap_km: float) -> None:
        super().__init__(f"The search ended at {closest}, {gap_km:.0f} km from the destination.")
        self.closest = closest
        self.gap_km = gap_km


def find_route(
    airports: Mapping[str, Position],
    *,
    origin: str,
    destination: str,
    max_leg_km: float,
    on_progress: Callable[[SearchProgress], None] = lambda progress: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> list[str]:
    """Return the codes of the airports along the route, origin and destination included.

    `on_progress` is called after each leg, and `is_cancelled` between airports.

    Raises:
        NoRouteError: no sequence of such legs leads to the destination.
        SearchCancelledError: `is_cancelled` returned true.
    """
    search = _Search(airports, origin=origin, destination=destination, max_leg_km=max_leg_km)
    search.spread(on_progress=on_progress, is_cancelled=is_cancelled)
    return search.choose_stops()


class _Search:
    def __init__(
        self,
        airports: Mapping[str, Position],
        *,
        origin: str,
        destination: str,
        max_leg_km: float,
    ) -> None:
        self._airports = airports
        self._vectors = {code: to_vector(position) for code, position in airports.items()}
        self._origin = origin
        self._destination = destination
        self._max_leg_km = max_leg_km
        # Airports grouped by the number of legs needed to reach them, up to the last stop.
        self._reached: list[list[str]] = [[origin]]

    def spread(
        self, *, on_progress: Callable[[SearchProgress], None], is_cancelled: Callable[[], bool]
    ) -> None:
        """Add one leg from every airport reached, until the destination is one leg away."""
        unreached = self._grid()
        others = (code for code in self._airports if code != self._origin)
        outward = sorted(self._by_distance(self._origin, others), reverse=True)
        total_km = self._km(self._origin, self._destination)
        gap_km, closest = total_km, self._origin
        while gap_km > self._max_leg_km:
            # Add only airports within this many legs in a straight line: the others cannot be
            # reached yet, and measuring them in every round is wasted.
            while outward and outward[-1][0] <= len(self._reached) * self._max_leg_km:
                unreached.add(outward.pop()[1])
            frontier: list[str] = []
            for start in self._reached[-1]:
                if is_cancelled():
                    raise SearchCancelledError
                frontier += unreached.take_near(self._vectors[start])
            if not frontier:
                raise NoRouteError(closest=closest, gap_km=gap_km)
            self._reached.append(frontier)
            nearest = min(self._by_distance(self._destination, frontier))
            gap_km, closest = min((gap_km, closest), nearest)
            on_progress(
                SearchProgress(
                    legs=len(self._reached) - 1,
                    closest=closest,
                    covered_km=total_km - gap_km,
                    total_km=total_km,
                )
            )

    def choose_stops(self) -> list[str]:
        """Return the shortest route through one airport of each group, searched from its end."""
        onward: dict[str, str] = {}
        remaining_km = {self._destination: 0.0}
        for group in reversed(self._reached):
            remaining_km = self._step_back(group, remaining_km, onward)
        route = [self._origin]
        while route[-1] != self._destination:
            route.append(onward[route[-1]])
        return route

    def _step_back(
        self, group: Sequence[str], remaining_km: Mapping[str, float], onward: dict[str, str]
    ) -> dict[str, float]:
        """Return the remaining distance from each airport; store its next stop in `onward`."""
        stops = self._grid(group)
        distances_km: dict[str, float] = {}
        for following, rest_km in remaining_km.items():
            for stop in stops.near(self._vectors[following]):
                way_km = self._km(stop, following) + rest_km
                if way_km < distances_km.get(stop, math.inf):
                    distances_km[stop] = way_km
                    onward[stop] = following
        return distances_km

    def _grid(self, codes: Iterable[str] = ()) -> Grid[str]:
        grid = Grid(self._vectors, radius_km=self._max_leg_km)
        for code in codes:
            grid.add(code)
        return grid

    def _by_distance(self, center: str, codes: Iterable[str]) -> Iterator[tuple[float, str]]:
        return ((self._km(center, code), code) for code in codes)

    def _km(self, start: str, end: str) -> float:
        return distance_km(self._airports[start], self._airports[end])
