"""Return types of the tools about airports; clients see them as output schemas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from demo_project.airports.geo import (
    KM_PER_NAUTICAL_MILE,
    bearing_degrees,
    distance_km as measure_km,
)
from demo_project.airports.models import Airport


@dataclass(frozen=True, slots=True, kw_only=True)
class AirportCard:
    """One airport."""

    icao: str
    iata: str | None
    name: str
    city: str
    subdivision: str
    country: str
    latitude: float
    longitude: float
    elevation_ft: int
    timezone: str

    @classmethod
    def of(cls, airport: Airport) -> Self:
        return cls(
            icao=airport.icao,
            iata=airport.iata or None,
            name=airport.name,
            city=airport.city,
            subdivision=airport.subdivision,
            country=airport.country_id,
            latitude=airport.latitude,
            longitude=airport.longitude,
            elevation_ft=airport.elevation_ft,
            timezone=airport.timezone,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NearbyAirport:
    """An airport, with its distance and direction from the requested point."""

    airport: AirportCard
    distance_km: float
    bearing_degrees: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """The great circle from one airport to another."""

    origin: str
    destination: str
    distance_km: float
    distance_nm: float
    bearing_degrees: float

    @classmethod
    def between(cls, origin: Airport, destination: Airport) -> Self:
        km = measure_km(origin.position, destination.position)
        return cls(
            origin=origin.icao,
            destination=destination.icao,
            distance_km=round(km, 1),
            distance_nm=round(km / KM_PER_NAUTICAL_MILE, 1),
            bearing_degrees=round(bearing_degrees(origin.position, destination.position), 1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route of one or more legs."""

    stops: list[AirportCard]
    legs: list[Leg]
    distance_km: float
    direct_km: float

    @classmethod
    def along(cls, stops: Sequence[Airport]) -> Self:
        legs = [Leg.between(origin, destination) for origin, destination in pairwise(stops)]
        return cls(
            stops=[AirportCard.of(stop) for stop in stops],
            legs=legs,
            distance_km=round(sum((leg.distance_km for leg in legs), 0.0), 1),
            direct_km=Leg.between(stops[0], stops[-1]).distance_km,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TourStop:
    """An airport of a tour, with its distance from the previous one."""

    icao: str
    country: str
    city: str
    elevation_ft: int
    leg_km: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tour:
    """A round trip; the `leg_km` of the first stop is the leg from the last stop back to it."""

    stops: list[TourStop]
    distance_km: float
    saved_km: float

    @classmethod
    def through(cls, airports: Sequence[Airport], *, first_km: float) -> Self:
        """Return the tour in this order; `first_km` is the length before the tour was improved."""
        stops = [
            TourStop(
                icao=stop.icao,
                country=stop.country.name,
                city=stop.city or stop.name,
                elevation_ft=stop.elevation_ft,
                leg_km=round(measure_km(airports[n - 1].position, stop.position), 1),
            )
            for n, stop in enumerate(airports)
        ]
        total = sum(stop.leg_km for stop in stops)
        return cls(
            stops=stops,
            distance_km=round(total, 1),
            saved_km=round(max(0.0, first_km - total), 1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CountrySummary:
    """Statistics of the airports of a country."""

    code: str
    name: str
    airports: int
    with_iata_code: int
    mean_elevation_ft: int
    highest: AirportCard
    lowest: AirportCard
    northernmost: AirportCard
    southernmost: AirportCard
    timezones: list[str]
