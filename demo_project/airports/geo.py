"""Distances, directions and boxes on a spherical Earth.

Pure functions of degrees and kilometers, without models or a database. The sphere has the mean
radius of the WGS 84 ellipsoid, so a distance differs from the surveyed one by at most 0.5 %. This
is accurate enough to compare airports, but not to plan fuel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

EARTH_RADIUS_KM = 6371.0088
HALF_CIRCUMFERENCE_KM = math.pi * EARTH_RADIUS_KM
KM_PER_NAUTICAL_MILE = 1.852

Vector = tuple[float, float, float]


class Position(NamedTuple):
    """A position on Earth in degrees; north and east are positive."""

    latitude: float
    longitude: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """The area between two parallels and two meridians, edges included; `west <= east`."""

    south: float
    north: float
    west: float
    east: float

    def __contains__(self, position: Position) -> bool:
        return (
            self.south <= position.latitude <= self.north
            and self.west <= position.longitude <= self.east
        )


def distance_km(start: Position, end: Position) -> float:
    """Return the length of the great circle from `start` to `end` (haversine formula)."""
    latitude_1, latitude_2 = math.radians(start.latitude), math.radians(end.latitude)
    half_height = (latitude_2 - latitude_1) / 2
    half_width = math.radians(end.longitude - start.longitude) / 2
    haversine = (
        math.sin(half_height) ** 2
        + math.cos(latitude_1) * math.cos(latitude_2) * math.sin(half_width) ** 2
    )
    # Rounding can give antipodes a value above one, for which asin is not defined.
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(haversine)))


def bearing_degrees(start: Position, end: Position) -> float:
    """Return the direction of the great circle at `start`: 0 is north, 90 is east."""
    latitude_1, latitude_2 = math.radians(start.latitude), math.radians(end.latitude)
    width = math.radians(end.longitude - start.longitude)
    east = math.sin(width) * math.cos(latitude_2)
    north = math.cos(latitude_1) * math.sin(latitude_2) - (
        math.sin(latitude_1) * math.cos(latitude_2) * math.cos(width)
    )
    return math.degrees(math.atan2(east, north)) % 360


def bounding_boxes(center: Position, radius_km: float) -> tuple[Box, ...]:
    """Return the boxes that together contain every position within `radius_km` of `center`.

    There are two boxes if the circle crosses the antimeridian. A circle that reaches a pole touches
    every meridian, so its box spans all longitudes. The boxes cover more than the circle, so the
    caller must measure the distance of each result.
    """
    reach = math.degrees(radius_km / EARTH_RADIUS_KM)
    south, north = center.latitude - reach, center.latitude + reach
    if south <= -90 or north >= 90:
        return (Box(south=max(south, -90), north=min(north, 90), west=-180, east=180),)
    # The circle is widest where a meridian touches it and not on the parallel of its center, so a
    # division by the cosine is not enough: the width needs the arcsine.
    width = math.degrees(
        math.asin(math.sin(math.radians(reach)) / math.cos(math.radians(center.latitude)))
    )
    west, east = center.longitude - width, center.longitude + width
    if west < -180:
        spans = [(west + 360, 180.0), (-180.0, east)]
    elif east > 180:
        spans = [(west, 180.0), (-180.0, east - 360)]
    else:
        spans = [(west, east)]
    return tuple(Box(south=south, north=north, west=west, east=east) for west, east in spans)


def to_vector(position: Position) -> Vector:
    """Return the position as a point on the unit sphere, where no meridian is special."""
    latitude, longitude = math.radians(position.latitude), math.radians(position.longitude)
    ring = math.cos(latitude)
    return ring * math.cos(longitude), ring * math.sin(longitude), math.sin(latitude)


def from_vector(vector: Vector) -> Position:
    """Return the position in the direction of a vector of any length."""
    x, y, z = vector
    return Position(
        latitude=math.degrees(math.atan2(z, math.hypot(x, y))),
        longitude=math.degrees(math.atan2(y, x)),
    )
