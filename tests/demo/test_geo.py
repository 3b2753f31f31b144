"""Distances, directions and boxes against known places and against each other."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from demo_project.airports.geo import (
    EARTH_RADIUS_KM,
    HALF_CIRCUMFERENCE_KM,
    Position,
    bearing_degrees,
    bounding_boxes,
    distance_km,
    from_vector,
    to_vector,
)

KENNEDY = Position(40.639928, -73.778692)
HEATHROW = Position(51.4706, -0.46194)
SINGAPORE = Position(1.359167, 103.989444)
AUCKLAND = Position(-37.008056, 174.791667)
SANTIAGO = Position(-33.393056, -70.785833)
NADI = Position(-17.755392, 177.443378)
APIA = Position(-13.829969, -172.008336)
NORTH_POLE = Position(90, 0)
SOUTH_POLE = Position(-90, 0)

positions = st.builds(
    Position,
    st.floats(min_value=-90, max_value=90),
    st.floats(min_value=-180, max_value=180),
)
radii = st.floats(min_value=1, max_value=HALF_CIRCUMFERENCE_KM)


@pytest.mark.parametrize(
    ("start", "end", "expected_km"),
    [
        (KENNEDY, HEATHROW, 5540),
        (HEATHROW, SINGAPORE, 10883),
        (AUCKLAND, SANTIAGO, 9672),
        (NADI, APIA, 1206),
    ],
)
def test_distance_agrees_with_published_great_circles(start, end, expected_km):
    # The published figures are of the ellipsoid, which differs by up to half a percent.
    assert distance_km(start, end) == pytest.approx(expected_km, rel=0.005)


def test_distance_between_the_poles_is_half_a_circumference():
    assert distance_km(NORTH_POLE, SOUTH_POLE) == pytest.approx(HALF_CIRCUMFERENCE_KM)


def test_distance_of_antipodes_is_defined_in_spite_of_rounding():
    start = Position(12.345678901, 45.678901234)
    assert distance_km(start, Position(-12.345678901, 45.678901234 - 180)) == pytest.approx(
        HALF_CIRCUMFERENCE_KM
    )


def test_longitude_means_nothing_at_a_pole():
    assert distance_km(NORTH_POLE, Position(90, 123)) == pytest.approx(0, abs=1e-6)


def test_antimeridian_has_two_names_and_one_place():
    assert distance_km(Position(10, 180), Position(10, -180)) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (Position(1, 0), 0),
        (Position(0, 1), 90),
        (Position(-1, 0), 180),
        (Position(0, -1), 270),
    ],
)
def test_bearing_follows_the_compass(end, expected):
    assert bearing_degrees(Position(0, 0), end) == pytest.approx(expected)


def test_bearing_across_the_antimeridian_takes_the_short_way():
    assert bearing_degrees(Position(0, 179), Position(0, -179)) == pytest.approx(90)


def test_box_of_a_circle_across_the_antimeridian_is_cut_in_two():
    boxes = bounding_boxes(NADI, 500)
    assert [(box.west, box.east) for box in boxes] == [
        (pytest.approx(172.72, abs=0.1), 180.0),
        (-180.0, pytest.approx(-177.83, abs=0.1)),
    ]


def test_box_around_a_pole_touches_every_meridian():
    (box,) = bounding_boxes(Position(-89.5, 77), 200)
    assert (box.south, box.west, box.east) == (-90, -180, 180)


@given(center=positions, radius_km=radii, direction=st.floats(0, 2 * math.pi), part=st.floats(0, 1))
def test_boxes_hold_every_place_within_the_radius(center, radius_km, direction, part):
    place = _travel(center, direction, radius_km * part * 0.999)
    assert any(place in box for box in bounding_boxes(center, radius_km))


@given(center=positions, radius_km=radii)
def test_boxes_stay_on_the_globe(center, radius_km):
    for box in bounding_boxes(center, radius_km):
        assert -90 <= box.south <= box.north <= 90
        assert -180 <= box.west <= box.east <= 180


@given(start=positions, end=positions)
def test_distance_is_the_same_in_both_directions(start, end):
    assert distance_km(start, end) == pytest.approx(distance_km(end, start), abs=1e-6)


@given(position=positions)
def test_vector_leads_back_to_its_position(position):
    # Within a millimeter on the ground; at a pole the longitude may differ.
    assert distance_km(from_vector(to_vector(position)), position) < 1e-6


def _travel(start: Position, direction: float, km: float) -> Position:
    """Return the point on the great circle from `start` in a direction, after some kilometers."""
    angle = km / EARTH_RADIUS_KM
    latitude = math.radians(start.latitude)
    height = math.sin(latitude) * math.cos(angle) + (
        math.cos(latitude) * math.sin(angle) * math.cos(direction)
    )
    east = math.sin(direction) * math.sin(angle) * math.cos(latitude)
    north = math.cos(angle) - math.sin(latitude) * height
    longitude = start.longitude + math.degrees(math.atan2(east, north))
    wrapped = (longitude + 180) % 360 - 180
    return Position(math.degrees(math.asin(max(-1.0, min(1.0, height)))), wrapped)
