"""Countries and airports: reference data, loaded once and rarely changed."""

from __future__ import annotations

from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from demo_project.airports.folding import fold
from demo_project.airports.geo import Position
from demo_project.airports.querysets import AirportQuerySet, CountryQuerySet


class Country(models.Model):
    code = models.CharField(
        max_length=2, primary_key=True, help_text="ISO 3166-1 alpha-2, as in “NZ”."
    )
    name = models.CharField(max_length=60)

    objects = CountryQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "countries"

    def __str__(self) -> str:
        return self.name


class Airport(models.Model):
    icao = models.CharField("ICAO code", max_length=4, unique=True)
    iata = models.CharField("IATA code", max_length=3, blank=True)
    name = models.CharField(max_length=100)
    city = models.CharField(max_length=60, blank=True)
    subdivision = models.CharField(max_length=60, blank=True, help_text="State or province.")
    country = models.ForeignKey(Country, models.PROTECT, related_name="airports")
    latitude = models.FloatField(validators=[MinValueValidator(-90), MaxValueValidator(90)])
    longitude = models.FloatField(validators=[MinValueValidator(-180), MaxValueValidator(180)])
    elevation_ft = models.IntegerField("elevation in feet")
    timezone = models.CharField("time zone", max_length=40, blank=True)
    search_text = models.CharField(max_length=200, editable=False)

    objects = AirportQuerySet.as_manager()

    class Meta:
        ordering = ["icao"]
        indexes = [models.Index(fields=["latitude", "longitude"], name="airport_position")]
        constraints = [
            models.UniqueConstraint(
                fields=["iata"], condition=~models.Q(iata=""), name="airport_unique_iata"
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.codes})"

    def save(self, **kwargs: Any) -> None:
        self.fold_search_text()
        super().save(**kwargs)

    def fold_search_text(self) -> None:
        """Update the column that searches use; bulk methods do not call `save`."""
        self.search_text = fold(f"{self.name} {self.city} {self.subdivision}")

    @property
    def position(self) -> Position:
        return Position(self.latitude, self.longitude)

    @property
    def codes(self) -> str:
        """All codes of the airport, as in "EGLL/LHR"."""
        return "/".join(self.known_as)

    @property
    def known_as(self) -> list[str]:
        """The codes by which clients can request the airport."""
        return [code for code in (self.icao, self.iata) if code]
