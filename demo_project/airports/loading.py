"""Load the reference data into the database.

Only missing rows are added: a row that was corrected in the admin does not change, a second run
adds nothing, and a run continues an interrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from django.db import transaction

from demo_project.airports.dataset import AirportRow, read_airports, read_countries
from demo_project.airports.models import Airport, Country

CHUNK = 1000

# Called with the number of airports to add; returns a function that is called with the size of
# each chunk once it is added.
Reporter = Callable[[int], Callable[[int], None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The result of a run."""

    countries: int
    airports: int
    existing: int


def load_airports(
    *, report: Reporter = lambda total: lambda steps: None, limit: int | None = None
) -> LoadResult:
    """Add the countries and airports that the database lacks, at most `limit` airports in all."""
    existing_codes = set(Airport.objects.values_list("icao", flat=True))
    rows = list(islice(read_airports(), limit))
    missing = [row for row in rows if row.icao not in existing_codes]
    countries = _add_countries()
    if missing:
        _add_airports(missing, advance=report(len(missing)))
    return LoadResult(countries=countries, airports=len(missing), existing=len(rows) - len(missing))


def _add_countries() -> int:
    existing_codes = set(Country.objects.values_list("code", flat=True))
    missing = [
        Country(code=code, name=name)
        for code, name in read_countries().items()
        if code not in existing_codes
    ]
    Country.objects.bulk_create(missing)
    return len(missing)


def _add_airports(rows: Iterable[AirportRow], *, advance: Callable[[int], None]) -> None:
    remaining = iter(rows)
    while chunk := [_to_airport(row) for row in islice(remaining, CHUNK)]:
        with transaction.atomic():
            Airport.objects.bulk_create(chunk)
        advance(len(chunk))


def _to_airport(row: AirportRow) -> Airport:
    airport = Airport(
        icao=row.icao,
        iata=row.iata,
        name=row.name,
        city=row.city,
        subdivision=row.subdivision,
        country_id=row.country,
        latitude=row.position.latitude,
        longitude=row.position.longitude,
        elevation_ft=row.elevation_ft,
        timezone=row.timezone,
    )
    airport.fold_search_text()
    return airport
