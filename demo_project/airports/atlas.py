"""Maps of a country, or of the surroundings of an airport."""

from __future__ import annotations

from collections.abc import Iterable

from demo_project.airports.geo import Position, distance_km
from demo_project.airports.maps import Dot, center_of, draw_map
from demo_project.airports.models import Airport, Country

# The radius of a country's map is 5 % larger than the country needs.
FRAME = 1.05
LEAST_RADIUS_KM = 50


def draw_airport(airport: Airport, *, radius_km: float) -> bytes:
    """Return a PNG of the airports within a radius of an airport."""
    dots = _dots(Airport.objects.around(airport.position, radius_km=radius_km))
    return draw_map(
        dots,
        title=f"{radius_km:,.0f} km around {airport}",
        center=airport.position,
        radius_km=radius_km,
        mark=_label(airport),
    )


def draw_country(country: Country) -> bytes:
    """Return a PNG of the airports of a country, with those of its neighbors in gray.

    Raises:
        Airport.DoesNotExist: the country has no airports.
    """
    positions = [airport.position for airport in country.airports.all()]
    if not positions:
        raise Airport.DoesNotExist(f"{country} has no airports.")
    center = center_of(positions)
    radius_km = max(LEAST_RADIUS_KM, FRAME * max(distance_km(center, p) for p in positions))
    dots = _dots(Airport.objects.around(center, radius_km=radius_km), country=country)
    return draw_map(dots, title=country.name, center=center, radius_km=radius_km)


def _dots(airports: Iterable[Airport], *, country: Country | None = None) -> list[Dot]:
    """Return the airports as dots, those with an IATA code first: these codes are better known."""
    dots = [
        Dot(
            label=_label(airport),
            position=Position(airport.latitude, airport.longitude),
            elevation_ft=airport.elevation_ft,
            is_subject=country is None or airport.country_id == country.code,
        )
        for airport in airports
    ]
    return sorted(dots, key=lambda dot: (len(dot.label), dot.label))


def _label(airport: Airport) -> str:
    return airport.iata or airport.icao
