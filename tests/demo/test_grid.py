"""The spatial grid agrees with measuring every point."""

from __future__ import annotations

from hypothesis import assume, given, strategies as st

from demo_project.airports.geo import HALF_CIRCUMFERENCE_KM, Position, distance_km, to_vector
from demo_project.airports.grid import Grid

positions = st.builds(Position, st.floats(-90, 90), st.floats(-180, 180))
# A difference of up to this distance is rounding, whichever formula is used.
TOLERANCE_KM = 0.01


@given(
    places=st.lists(positions, max_size=20),
    center=positions,
    radius_km=st.floats(10, HALF_CIRCUMFERENCE_KM),
)
def test_near_finds_what_measuring_finds(places, center, radius_km):
    distances = [distance_km(center, place) for place in places]
    assume(all(abs(km - radius_km) > TOLERANCE_KM for km in distances))
    grid = _grid(places, radius_km=radius_km)
    expected = {number for number, km in enumerate(distances) if km < radius_km}
    assert set(grid.near(to_vector(center))) == expected


def test_taken_points_are_gone():
    places = [Position(0, 0), Position(0, 1), Position(0, 50)]
    grid = _grid(places, radius_km=500)
    center = to_vector(Position(0, 0.5))
    assert sorted(grid.take_near(center)) == [0, 1]
    assert grid.take_near(center) == []
    assert list(grid.near(to_vector(places[2]))) == [2]


def _grid(places: list[Position], *, radius_km: float) -> Grid[int]:
    points = dict(enumerate(map(to_vector, places)))
    grid = Grid(points, radius_km=radius_km)
    for number in points:
        grid.add(number)
    return grid
