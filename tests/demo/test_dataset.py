"""The reference data is what the demo relies on."""

from functools import cache

from demo_project.airports.dataset import AirportRow, read_airports, read_countries
from demo_project.airports.geo import Position


@cache
def airports() -> tuple[AirportRow, ...]:
    return tuple(read_airports())


def test_every_airport_has_a_unique_code_and_a_place_on_earth():
    rows = airports()
    assert len(rows) > 28_000
    assert len({row.icao for row in rows}) == len(rows)
    assert all(
        -90 <= row.position.latitude <= 90 and -180 <= row.position.longitude <= 180 for row in rows
    )


def test_iata_codes_are_unique():
    codes = [row.iata for row in airports() if row.iata]
    assert len(set(codes)) == len(codes)


def test_every_country_of_an_airport_has_a_name():
    assert {row.country for row in airports()} <= set(read_countries())


def test_an_airport_is_read_whole():
    heathrow = next(row for row in airports() if row.icao == "EGLL")
    assert (heathrow.iata, heathrow.city, heathrow.country) == ("LHR", "London", "GB")
    assert heathrow.position == Position(51.4706, -0.46194)
    assert (heathrow.elevation_ft, heathrow.timezone) == (83, "Europe/London")


def test_country_names_are_spelled_out():
    names = read_countries()
    assert (names["GB"], names["XK"], names["ST"]) == (
        "United Kingdom",
        "Kosovo",
        "São Tomé and Príncipe",
    )
