"""Summarize the airports of a country one at a time, without loading the table into memory."""

from __future__ import annotations

from demo_project.airports.answers import AirportCard, CountrySummary
from demo_project.airports.models import Airport, Country


class CountryStatistics:
    """A running summary of the airports of one country."""

    def __init__(self, country: Country) -> None:
        self._country = country
        self.count = 0
        self._with_iata_code = 0
        self._elevation_ft = 0
        self._timezones: set[str] = set()
        self._extremes: dict[str, tuple[float, Airport]] = {}

    def add(self, airport: Airport) -> None:
        self.count += 1
        self._with_iata_code += bool(airport.iata)
        self._elevation_ft += airport.elevation_ft
        self._timezones.add(airport.timezone)
        self._keep_larger("highest", airport.elevation_ft, airport)
        self._keep_larger("lowest", -airport.elevation_ft, airport)
        self._keep_larger("northernmost", airport.latitude, airport)
        self._keep_larger("southernmost", -airport.latitude, airport)

    def summarize(self) -> CountrySummary:
        """Return the summary of the airports that were added.

        Raises:
            Airport.DoesNotExist: no airports were added.
        """
        if not self.count:
            raise Airport.DoesNotExist(f"{self._country} has no airports.")
        extremes = {name: AirportCard.of(airport) for name, (_, airport) in self._extremes.items()}
        return CountrySummary(
            code=self._country.code,
            name=self._country.name,
            airports=self.count,
            with_iata_code=self._with_iata_code,
            mean_elevation_ft=round(self._elevation_ft / self.count),
            timezones=sorted(self._timezones - {""}),
            **extremes,
        )

    def _keep_larger(self, name: str, value: float, airport: Airport) -> None:
        if name not in self._extremes or value > self._extremes[name][0]:
            self._extremes[name] = value, airport
