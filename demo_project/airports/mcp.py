"""Components about airports, for every account; autodiscovered by `mcp_django`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any, Literal

from django.db.models import QuerySet
from pydantic import Field

from demo_project.airports import atlas, routes, tours
from demo_project.airports.answers import (
    AirportCard,
    CountrySummary,
    Leg,
    NearbyAirport,
    Route,
    Tour,
)
from demo_project.airports.geo import HALF_CIRCUMFERENCE_KM, Position, bearing_degrees, distance_km
from demo_project.airports.models import Airport, Country
from demo_project.airports.summaries import CountryStatistics
from mcp_django import Context, Image, ModelResource, ModelTools, ToolError, mcp
from mcp_django.auth.permissions import IsAuthenticated

REFERENCE_DATA = timedelta(hours=1)
CHUNK = 500

Code = Annotated[str, "ICAO code such as EGLL, or IATA code such as LHR"]
CountryCode = Annotated[str, "ISO 3166-1 code of two letters, such as NZ"]
Latitude = Annotated[float, Field(ge=-90, le=90, description="Degrees, north positive")]
Longitude = Annotated[float, Field(ge=-180, le=180, description="Degrees, east positive")]
# The largest distance is half the circumference of the Earth.
Kilometers = Annotated[float, Field(gt=0, le=math.ceil(HALF_CIRCUMFERENCE_KM))]


@mcp.tool(title="Nearest airports", read_only=True)
def nearest_airports(
    latitude: Latitude,
    longitude: Longitude,
    count: Annotated[int, Field(ge=1, le=100, description="How many")] = 5,
    max_km: Annotated[Kilometers | None, "Only those within this distance"] = None,
) -> list[NearbyAirport]:
    """Find the airports nearest to a point, nearest first."""
    point = Position(latitude, longitude)
    return [
        NearbyAirport(
            airport=AirportCard.of(airport),
            distance_km=round(km, 1),
            bearing_degrees=round(bearing_degrees(point, airport.position), 1),
        )
        for km, airport in Airport.objects.nearest(point, count=count, max_km=max_km)
    ]


@mcp.tool(title="Search airports", read_only=True)
def search_airports(
    query: Annotated[str, Field(min_length=2, description="Words of its name or city, or a code")],
    country: Annotated[
        str | None, "Only in the country of this ISO 3166-1 code, such as NZ"
    ] = None,
    limit: Annotated[int, Field(ge=1, le=100, description="At most this many")] = 20,
) -> list[AirportCard]:
    """Find airports by name, city, state or code. Accents and case do not matter."""
    airports = Airport.objects.search(query)
    if country is not None:
        airports = airports.filter(country=Country.objects.by_code(country))
    return [AirportCard.of(airport) for airport in airports[:limit]]


@mcp.tool(title="Great-circle distance", read_only=True)
def great_circle_distance(origin: Code, destination: Code) -> Leg:
    """Measure the shortest distance between two airports, and the initial direction."""
    return Leg.between(Airport.objects.by_code(origin), Airport.objects.by_code(destination))


@mcp.tool(title="Find a route", read_only=True, ui="airports/route_map.html")
def find_route(
    ctx: Context,
    origin: Code,
    destination: Code,
    max_leg_km: Annotated[Kilometers, "The longest leg that the aircraft can fly"],
    stops: Annotated[
        Literal["scheduled", "any"],
        "Where to stop over: airports with an IATA code, or any airfield (slower to search)",
    ] = "scheduled",
) -> Route:
    """Plan a route with the fewest legs under a maximum range, and the shortest of those."""
    start, end = Airport.objects.by_code(origin), Airport.objects.by_code(destination)
    airports = Airport.objects.scheduled() if stops == "scheduled" else Airport.objects.all()
    positions = airports.positions() | {start.icao: start.position, end.icao: end.position}

    def report(progress: routes.SearchProgress) -> None:
        ctx.report_progress(
            round(progress.covered_km),
            round(progress.total_km),
            f"After leg {progress.legs}, {progress.closest} is the closest",
        )

    try:
        codes = routes.find_route(
            positions,
            origin=start.icao,
            destination=end.icao,
            max_leg_km=max_leg_km,
            on_progress=report,
            is_cancelled=lambda: ctx.cancelled,
        )
    except routes.NoRouteError as exc:
        raise ToolError(
            f"No route from {start.icao} to {end.icao} has legs of at most {max_leg_km:g} km: "
            f"the closest airport within reach is {exc.closest}, {exc.gap_km:,.0f} km short. "
            "Allow longer legs" + (" or stops='any'." if stops == "scheduled" else ".")
        ) from exc
    except routes.SearchCancelledError as exc:
        raise ToolError("The search was cancelled.") from exc
    airports_by_icao = Airport.objects.in_bulk(codes, field_name="icao")
    return Route.along([airports_by_icao[code] for code in codes])


# The caller chooses the duration by `rounds`, so clients that support tasks may run it as one.
@mcp.tool(title="Grand tour", read_only=True, task="optional", rate="20/m")
def grand_tour(
    ctx: Context,
    start: Annotated[str, "Where it begins and ends: ICAO code such as EGLL, or IATA code"],
    countries: Annotated[
        int, Field(ge=1, le=300, description="How many to visit at most, the nearest first")
    ] = 300,
    rounds: Annotated[
        int, Field(ge=0, le=5000, description="How often to try to shorten it; ten take a second")
    ] = 100,
) -> Tour:
    """Plan a short round trip to the highest airport of every country."""
    home = Airport.objects.by_code(start)
    highest = {airport.icao: airport for airport in Airport.objects.highest_of_countries()}
    near = sorted(
        (airport for airport in highest.values() if airport.country_id != home.country_id),
        key=lambda airport: (distance_km(home.position, airport.position), airport.icao),
    )
    stops = {airport.icao: airport for airport in [home, *near[:countries]]}
    first_km = 0.0

    def report(progress: tours.TourProgress) -> None:
        nonlocal first_km
        first_km = first_km or progress.distance_km
        ctx.report_progress(
            progress.number,
            rounds,
            f"{len(stops)} airports in {progress.distance_km:,.0f} km, "
            f"after {progress.number} of {rounds} rounds",
        )

    try:
        codes = tours.find_tour(
            {code: airport.position for code, airport in stops.items()},
            start=home.icao,
            rounds=rounds,
            on_progress=report,
            is_cancelled=lambda: ctx.cancelled,
        )
    except tours.TourCancelledError as exc:
        raise ToolError("The search was cancelled.") from exc
    return Tour.through([stops[code] for code in codes], first_km=first_km)


# A map takes as long as a hundred lookups.
@mcp.tool(title="Map of airports", read_only=True, rate="60/m")
def airport_map(
    place: Annotated[str, "Code of an airport (EGLL or LHR) or of a country (GB)"],
    radius_km: Annotated[Kilometers, "How far to look around an airport"] = 300,
) -> Image:
    """Draw a map around an airport, or of a country, with the heights of the airports as colors."""
    if len(place.strip()) == 2:
        return Image(atlas.draw_country(Country.objects.by_code(place)))
    return Image(atlas.draw_airport(Airport.objects.by_code(place), radius_km=radius_km))


@mcp.tool(title="Summarize a country", read_only=True)
async def summarize_country(ctx: Context, country: CountryCode) -> CountrySummary:
    """Count the airports of a country; find the highest, lowest, northern- and southernmost."""
    country_row = await Country.objects.aby_code(country)
    airports = Airport.objects.filter(country=country_row)
    total = await airports.acount()
    statistics = CountryStatistics(country_row)
    async for airport in airports.aiterator(chunk_size=CHUNK):
        statistics.add(airport)
        if statistics.count % CHUNK == 0:
            await ctx.areport_progress(
                statistics.count, total, f"{statistics.count} of {total} airports"
            )
    return statistics.summarize()


@mcp.resource("airports://about", title="About the data", mime_type="text/markdown")
def about() -> str:
    """Where the data comes from and how airports are named."""
    return (
        "# Airports\n\n"
        "The airports and seaplane bases of the `airportsdata` package (MIT license).\n\n"
        "- `airports://{code}` describes one, by ICAO or IATA code.\n"
        "- `airports://countries/{country}` counts those of a country, by ISO 3166-1 code.\n"
        "- `notices://{code}` lists the notices of one; subscribe to be notified of changes.\n\n"
        "Distances are great circles on a sphere, within 0.5 % of the surveyed ones.\n"
    )


@mcp.resource(
    "airports://{code}", title="Airport", mime_type="application/json", cache_ttl=REFERENCE_DATA
)
def airport(code: Code) -> AirportCard:
    """One airport: names, position, elevation and time zone."""
    return AirportCard.of(Airport.objects.by_code(code))


@mcp.resource(
    "airports://countries/{country}",
    title="Airports of a country",
    mime_type="application/json",
    cache_ttl=REFERENCE_DATA,
)
def country_airports(country: CountryCode) -> dict[str, Any]:
    """How many airports a country has, and the IATA codes among them."""
    country_row = Country.objects.by_code(country)
    return {
        "code": country_row.code,
        "name": country_row.name,
        "airports": country_row.airports.count(),
        "iata_codes": list(
            country_row.airports.scheduled().order_by("iata").values_list("iata", flat=True)
        ),
    }


@mcp.completion(airport, "code")
def complete_code(value: str) -> Iterable[str]:
    """Return the codes that begin with the text, IATA codes first."""
    return Airport.objects.codes_beginning_with(value)


@mcp.completion(country_airports, "country")
def complete_country(value: str) -> QuerySet[Country, str]:
    """Return the codes of countries whose code or name begins with the text."""
    return Country.objects.beginning_with(value).values_list("code", flat=True)


# Guests have no model permissions, so `permission` determines who may view these.


@mcp.register(Country)
class Countries(ModelResource[Country]):
    """A country and its ISO 3166-1 code."""

    uri = "countries://{code}"
    fields = ["code", "name"]
    title = "name"
    permission = IsAuthenticated


@mcp.register(Airport)
class AirportNumbers(ModelTools[Airport]):
    fields = ["country", "timezone", "elevation_ft"]
    filter_fields = {"country": ["in"], "timezone": ["exact"], "elevation_ft": ["gte", "lte"]}
    tools = ["count"]
    permission = IsAuthenticated
