"""Maps are PNG images in which the right things are drawn in the right places."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from demo_project.airports.geo import Position, distance_km
from demo_project.airports.maps import (
    ACCENT,
    LOWLAND,
    MARGIN,
    OTHER,
    SIZE,
    Dot,
    center_of,
    draw_map,
)

MIDDLE = SIZE // 2


def test_map_is_a_square_png():
    image = _open(draw_map([], title="Nothing", center=Position(0, 0), radius_km=100))
    assert (image.format, image.size) == ("PNG", (SIZE, SIZE))


def test_marked_airport_is_in_the_center():
    here = Position(51.47, -0.46)
    image = _open(
        draw_map([Dot(label="LHR", position=here)], title="", center=here, radius_km=50, mark="LHR")
    )
    assert image.getpixel((MIDDLE, MIDDLE)) == ACCENT


def test_distance_and_direction_are_true_across_the_antimeridian():
    center, east = Position(0, 179.5), Position(0, -179.5)
    km = distance_km(center, east)
    image = _open(
        draw_map([Dot(label="", position=east)], title="", center=center, radius_km=2 * km)
    )
    assert image.getpixel((MIDDLE + (MIDDLE - MARGIN) // 2, MIDDLE)) == LOWLAND


def test_surroundings_are_pale():
    here = Position(10, 10)
    dot = Dot(label="", position=here, is_subject=False)
    image = _open(draw_map([dot], title="", center=here, radius_km=50))
    assert image.getpixel((MIDDLE, MIDDLE)) == OTHER


def test_airports_beyond_the_radius_are_left_out():
    far = Dot(label="FAR", position=Position(0, 90))
    empty = draw_map([], title="", center=Position(0, 0), radius_km=100)
    assert draw_map([far], title="", center=Position(0, 0), radius_km=100) == empty


def test_map_of_the_whole_globe_is_drawn():
    dots = [Dot(label=str(n), position=Position(n, 2 * n)) for n in range(-90, 90, 10)]
    image = _open(draw_map(dots, title="All", center=Position(0, 0), radius_km=10**6))
    assert image.size == (SIZE, SIZE)


def test_center_of_places_around_the_antimeridian_is_between_them():
    center = center_of([Position(-17, 178), Position(-17, -178)])
    assert abs(center.longitude) == pytest.approx(180)


def test_center_of_nothing_is_refused():
    with pytest.raises(ValueError, match="No positions"):
        center_of([])


def _open(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png))
