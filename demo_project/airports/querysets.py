"""QuerySets of countries and airports."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from asgiref.sync import sync_to_async
from django.db import models
from django.db.models import Case, Q, Value, When

from demo_project.airports.folding import fold
from demo_project.airports.geo import HALF_CIRCUMFERENCE_KM, Position, bounding_boxes, distance_km

if TYPE_CHECKING:
    from demo_project.airports.models import Airport, Country

FIRST_RADIUS_KM = 50


class Neighbor(NamedTuple):
    """An airport, with its distance from the requested position."""

    distance_km: float
    airport: Airport


class CountryQuerySet(models.QuerySet["Country"]):
    def by_code(self, code: str) -> Country:
        """Return the country with this code, in either case.

        Raises:
            Country.DoesNotExist: no country has the code; the text describes valid codes.
        """
        country = self.filter(code=code.strip().upper()).first()
        if country is None:
            raise self.model.DoesNotExist(
                f"No country has the code {code[:20]!r}; "
                "use two letters as in ISO 3166-1, for example NZ or FR."
            )
        return country

    async def aby_code(self, code: str) -> Country:
        """Asynchronous version of `by_code`."""
        return await sync_to_async(self.by_code)(code)

    def beginning_with(self, text: str) -> CountryQuerySet:
        """Return the countries whose code or name begins with the text."""
        beginning = text.strip()
        return self.filter(Q(code__istartswith=beginning) | Q(name__istartswith=beginning))


class AirportQuerySet(models.QuerySet["Airport"]):
    def by_code(self, code: str) -> Airport:
        """Return the airport with this ICAO or IATA code, in either case.

        Raises:
            Airport.DoesNotExist: no airport has the code; the text explains how to find one.
        """
        airport = self.select_related("country").filter(_has_code(code)).first()
        if airport is None:
            raise self.model.DoesNotExist(
                f"No airport has the code {code[:20]!r}; ICAO codes have four letters or digits "
                "(EGLL), IATA codes three letters (LHR). Find one by name with search_airports."
            )
        return airport

    def codes_beginning_with(self, text: str) -> Iterator[str]:
        """Yield the IATA codes that begin with the text, then the ICAO codes."""
        beginning = text.strip().upper()
        for field in ("iata", "icao"):
            matching = self.exclude(**{field: ""}).filter(**{f"{field}__startswith": beginning})
            yield from matching.order_by(field).values_list(field, flat=True).iterator()

    def scheduled(self) -> AirportQuerySet:
        """Return the airports with an IATA code: those that airlines sell tickets to."""
        return self.exclude(iata="")

    def highest_of_countries(self) -> AirportQuerySet:
        """Return the highest airport of each country, among those with an IATA code."""
        rows = self.scheduled().order_by("-elevation_ft", "icao").values_list("country_id", "pk")
        highest: dict[str, int] = {}
        for country, pk in rows:
            highest.setdefault(country, pk)
        return self.filter(pk__in=highest.values()).select_related("country")

    def search(self, text: str) -> AirportQuerySet:
        """Return the airports that match a text.

        Their name, city or subdivision contains every word, or their code is the text. Exact codes
        come first, then airports with an IATA code, then the others.
        """
        code = _has_code(text)
        words = Q()
        for word in fold(text).split():
            words &= Q(search_text__contains=word)
        if not words:
            return self.none()
        rank = Case(When(code, then=Value(0)), When(iata="", then=Value(2)), default=Value(1))
        return self.filter(code | words).order_by(rank, "name", "icao")

    def around(self, center: Position, *, radius_km: float) -> AirportQuerySet:
        """Return the airports in the boxes around a circle, which are a little larger than it."""
        places = Q()
        for box in bounding_boxes(center, radius_km):
            places |= Q(
                latitude__range=(box.south, box.north), longitude__range=(box.west, box.east)
            )
        return self.filter(places)

    def nearest(
        self, center: Position, *, count: int, max_km: float | None = None
    ) -> list[Neighbor]:
        """Return the airports nearest to a point, nearest first.

        The search area grows until it contains enough airports: most points have airports nearby,
        so the whole table need not be measured.
        """
        limit_km = HALF_CIRCUMFERENCE_KM if max_km is None else max_km
        radius_km = min(FIRST_RADIUS_KM, limit_km)
        while True:
            measured = (
                Neighbor(distance_km(center, airport.position), airport)
                for airport in self.around(center, radius_km=radius_km).iterator()
            )
            within = [neighbor for neighbor in measured if neighbor.distance_km <= radius_km]
            if len(within) >= count or radius_km >= limit_km:
                return heapq.nsmallest(count, within, key=lambda neighbor: neighbor.distance_km)
            radius_km = min(radius_km * 4, limit_km)

    def positions(self) -> dict[str, Position]:
        """Return the position of each airport by ICAO code."""
        rows = self.order_by().values_list("icao", "latitude", "longitude")
        return {icao: Position(latitude, longitude) for icao, latitude, longitude in rows}


def _has_code(text: str) -> Q:
    code = text.strip().upper()
    # Most airports have no IATA code, so an empty text must not match an empty column.
    return Q(icao=code) | (Q(iata=code) & ~Q(iata=""))
