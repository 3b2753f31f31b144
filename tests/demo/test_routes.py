"""Routes over invented maps, whose best route can be seen, and over all real airports."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, permutations

import pytest
from hypothesis import given, strategies as st

from demo_project.airports.dataset import read_airports
from demo_project.airports.geo import Position, distance_km
from demo_project.airports.routes import (
    NoRouteError,
    SearchCancelledError,
    SearchProgress,
    find_route,
)

# One degree of the equator is 111.2 km.
EQUATOR = {f"E{degree}": Position(0, degree) for degree in range(11)}
LEG_KM = 250


@cache
def real_airports() -> dict[str, Position]:
    return {row.icao: row.position for row in read_airports()}


def test_direct_flight_needs_no_stop():
    assert find_route(EQUATOR, origin="E0", destination="E2", max_leg_km=LEG_KM) == ["E0", "E2"]


def test_route_to_the_same_airport_is_that_airport():
    assert find_route(EQUATOR, origin="E3", destination="E3", max_leg_km=LEG_KM) == ["E3"]


def test_leg_of_exactly_the_range_is_flown():
    exactly = distance_km(EQUATOR["E0"], EQUATOR["E1"])
    route = find_route(EQUATOR, origin="E0", destination="E2", max_leg_km=exactly)
    assert route == ["E0", "E1", "E2"]


def test_fewest_legs_win():
    route = find_route(EQUATOR, origin="E0", destination="E10", max_leg_km=LEG_KM)
    assert route == ["E0", "E2", "E4", "E6", "E8", "E10"]


def test_among_equally_many_legs_the_shorter_way_wins():
    airports = {
        "A": Position(0, 0),
        "NORTH": Position(1, 2),
        "MIDDLE": Position(0.1, 2),
        "SOUTH": Position(-0.5, 2),
        "B": Position(0, 4),
    }
    route = find_route(airports, origin="A", destination="B", max_leg_km=LEG_KM)
    assert route == ["A", "MIDDLE", "B"]


def test_route_crosses_the_antimeridian():
    airports = {
        "WEST": Position(-17, 177),
        "MIDDLE": Position(-17, 179.5),
        "EAST": Position(-17, -178),
        "FAR": Position(-17, 0),
    }
    route = find_route(airports, origin="WEST", destination="EAST", max_leg_km=300)
    assert route == ["WEST", "MIDDLE", "EAST"]


def test_route_crosses_a_pole():
    airports = {
        "HERE": Position(-80, 0),
        "POLE": Position(-90, 45),
        "THERE": Position(-80, 180),
        "AROUND": Position(-80, 90),
    }
    route = find_route(airports, origin="HERE", destination="THERE", max_leg_km=1200)
    assert route == ["HERE", "POLE", "THERE"]


def test_unreachable_destination_names_the_closest_airport_and_the_gap():
    airports = EQUATOR | {"ISLAND": Position(0, 20)}
    with pytest.raises(NoRouteError) as caught:
        find_route(airports, origin="E0", destination="ISLAND", max_leg_km=LEG_KM)
    assert caught.value.closest == "E10"
    assert caught.value.gap_km == pytest.approx(10 * 111.2, rel=0.001)


def test_each_leg_is_reported_with_growing_progress():
    seen: list[SearchProgress] = []
    find_route(EQUATOR, origin="E0", destination="E10", max_leg_km=LEG_KM, on_progress=seen.append)
    assert [(spread.legs, spread.closest) for spread in seen] == [
        (1, "E2"),
        (2, "E4"),
        (3, "E6"),
        (4, "E8"),
    ]
    assert [spread.covered_km for spread in seen] == sorted(spread.covered_km for spread in seen)
    assert all(spread.covered_km < spread.total_km for spread in seen)


def test_search_ends_as_soon_as_nobody_waits_for_it():
    answers = iter([False, False, True])
    with pytest.raises(SearchCancelledError):
        find_route(
            EQUATOR,
            origin="E0",
            destination="E10",
            max_leg_km=LEG_KM,
            is_cancelled=lambda: next(answers),
        )


@given(
    places=st.lists(
        st.builds(Position, st.floats(-90, 90), st.floats(-180, 180)), min_size=2, max_size=5
    ),
    max_leg_km=st.floats(500, 15000),
)
def test_route_is_the_best_of_all_that_can_be_tried(places, max_leg_km):
    airports = {f"P{number}": place for number, place in enumerate(places)}
    possible = _all_routes(airports, max_leg_km=max_leg_km)
    try:
        route = find_route(airports, origin="P0", destination="P1", max_leg_km=max_leg_km)
    except NoRouteError:
        assert possible == []
        return
    fewest, shortest = min(possible)
    assert len(route) - 1 == fewest
    assert _length(airports, route) == pytest.approx(shortest, abs=1e-3)


@pytest.mark.parametrize(
    ("origin", "destination", "max_leg_km", "legs"),
    [
        ("KJFK", "EGLL", 6000, 1),
        ("KJFK", "EGLL", 4000, 2),
        ("KJFK", "KLAX", 300, 14),
        ("NZAA", "SCEL", 7000, 2),
    ],
)
def test_routes_over_all_airports_keep_to_the_range(origin, destination, max_leg_km, legs):
    airports = real_airports()
    route = find_route(airports, origin=origin, destination=destination, max_leg_km=max_leg_km)
    assert (route[0], route[-1], len(route) - 1) == (origin, destination, legs)
    for start, end in pairwise(route):
        assert distance_km(airports[start], airports[end]) <= max_leg_km + 1e-3


def _all_routes(airports: dict[str, Position], *, max_leg_km: float) -> list[tuple[int, float]]:
    """Return the legs and the length of every route from P0 to P1, found by trying them all."""
    between = [code for code in airports if code not in {"P0", "P1"}]
    routes = []
    for count in range(len(between) + 1):
        for stops in permutations(between, count):
            route = ["P0", *stops, "P1"]
            legs = [distance_km(airports[a], airports[b]) for a, b in pairwise(route)]
            if max(legs) <= max_leg_km:
                routes.append((len(legs), sum(legs)))
    return routes


def _length(airports: dict[str, Position], route: list[str]) -> float:
    return sum(distance_km(airports[a], airports[b]) for a, b in pairwise(route))
