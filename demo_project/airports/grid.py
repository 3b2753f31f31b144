"""A spatial index for one radius: find the points within this radius of a given point.

The points are on the unit sphere in three dimensions, so the antimeridian and the poles need no
special case. The cells are half as wide as the chord of the radius, so every point in range is in
the cell of the center or in one of the 124 around it, most of them empty.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from demo_project.airports.geo import EARTH_RADIUS_KM, Vector

Key = TypeVar("Key")
Cell = tuple[int, int, int]

# Tolerance, so that a point exactly at the radius is in range whatever formula measured it.
TOLERANCE = 1e-12
NEIGHBORS = tuple(itertools.product(range(-2, 3), repeat=3))


class Grid(Generic[Key]):
    """A spatial index of keyed points; points can be removed."""

    def __init__(self, points: Mapping[Key, Vector], *, radius_km: float) -> None:
        angle = min(radius_km / EARTH_RADIUS_KM, math.pi)
        self._points = points
        self._cosine = math.cos(angle) - TOLERANCE
        self._width = math.sqrt((1 - self._cosine) / 2)
        self._cells: dict[Cell, list[Key]] = defaultdict(list)

    def add(self, key: Key) -> None:
        """Add the point of this key to the index."""
        self._cells[self._cell(self._points[key])].append(key)

    def near(self, center: Vector) -> Iterator[Key]:
        """Yield the keys of the points within the radius of `center`."""
        for cell in self._around(center):
            yield from self._split(cell, center)[0]

    def take_near(self, center: Vector) -> list[Key]:
        """Remove the points within the radius of `center`, and return their keys.

        A search that visits each point once becomes faster as the grid empties.
        """
        taken: list[Key] = []
        for cell in self._around(center):
            near, far = self._split(cell, center)
            taken += near
            if far:
                self._cells[cell] = far
            else:
                del self._cells[cell]
        return taken

    def _cell(self, point: Vector) -> Cell:
        x, y, z = point
        width = self._width
        return math.floor(x / width), math.floor(y / width), math.floor(z / width)

    def _around(self, center: Vector) -> list[Cell]:
        x, y, z = self._cell(center)
        cells = ((x + i, y + j, z + k) for i, j, k in NEIGHBORS)
        return [cell for cell in cells if cell in self._cells]

    def _split(self, cell: Cell, center: Vector) -> tuple[list[Key], list[Key]]:
        x, y, z = center
        points, cosine = self._points, self._cosine
        near: list[Key] = []
        far: list[Key] = []
        for key in self._cells[cell]:
            a, b, c = points[key]
            (near if x * a + y * b + z * c >= cosine else far).append(key)
        return near, far
