"""The reference data as plain rows: airports of the `airportsdata` package, names of countries.

This module reads files and uses no models; `loading` writes the rows to the database. The names of
the countries follow the table of the tz database (public domain), without abbreviations.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import airportsdata

from demo_project.airports.geo import Position

COUNTRIES_FILE = Path(__file__).parent / "data" / "countries.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class AirportRow:
    """One airport, with the values of the package."""

    icao: str
    iata: str
    name: str
    city: str
    subdivision: str
    country: str
    position: Position
    elevation_ft: int
    timezone: str


def read_countries() -> dict[str, str]:
    """Return country names by ISO 3166-1 alpha-2 code, and Kosovo under its provisional XK."""
    with COUNTRIES_FILE.open(encoding="utf-8", newline="") as file:
        return {row["code"]: row["name"] for row in csv.DictReader(file)}


def read_airports() -> Iterator[AirportRow]:
    """Yield every airport of the package, in its order."""
    for airport in airportsdata.load().values():
        yield AirportRow(
            icao=airport["icao"],
            iata=airport["iata"],
            name=airport["name"],
            city=airport["city"],
            subdivision=airport["subd"],
            country=airport["country"],
            position=Position(airport["lat"], airport["lon"]),
            elevation_ft=round(airport["elevation"]),
            timezone=airport["tz"],
        )
