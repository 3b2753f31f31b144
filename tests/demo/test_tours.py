"""Tours over invented maps, whose shortest one can be seen."""

from __future__ import annotations

from itertools import pairwise

import pytest

from demo_project.airports.geo import Position, distance_km
from demo_project.airports.tours import TourCancelledError, TourProgress, find_tour

# Around a square of the equator, in an order that crosses itself.
SQUARE = {"A": Position(0, 0), "C": Position(1, 1), "B": Position(0, 1), "D": Position(1, 0)}
# Placed so that going to the nearest point each time leaves some behind.
STREWN = {f"S{n}": Position((n * 47) % 61 - 30, (n * 37) % 89) for n in range(30)}


def length_km(airports: dict[str, Position], tour: list[str]) -> float:
    return sum(distance_km(airports[a], airports[b]) for a, b in pairwise([*tour, tour[0]]))


def test_no_two_legs_cross():
    assert find_tour(SQUARE, start="A", rounds=0) in (list("ABCD"), list("ADCB"))


@pytest.mark.parametrize("count", range(1, 5))
def test_a_short_tour_begins_at_home_and_sees_everything_once(count):
    airports = dict(list(SQUARE.items())[:count])
    tour = find_tour(airports, start="A", rounds=3)
    assert tour[0] == "A"
    assert sorted(tour) == sorted(airports)


def test_rounds_make_it_shorter_and_say_so():
    heard: list[TourProgress] = []
    tour = find_tour(STREWN, start="S3", rounds=60, on_progress=heard.append)
    assert tour[0] == "S3"
    assert sorted(tour) == sorted(STREWN)
    assert [progress.number for progress in heard] == list(range(61))
    lengths = [progress.distance_km for progress in heard]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < lengths[0]
    assert lengths[-1] == pytest.approx(length_km(STREWN, tour))


def test_the_same_tour_is_found_each_time():
    assert find_tour(STREWN, start="S1", rounds=20) == find_tour(STREWN, start="S1", rounds=20)


def test_a_search_that_nobody_waits_for_ends():
    heard: list[TourProgress] = []
    with pytest.raises(TourCancelledError):
        find_tour(
            STREWN,
            start="S1",
            rounds=10_000_000,
            on_progress=heard.append,
            is_cancelled=lambda: len(heard) > 3,
        )
    assert len(heard) == 4
