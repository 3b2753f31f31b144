"""Admin of the reference data, which is searched and corrected, and seldom added."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from demo_project.airports.folding import fold
from demo_project.airports.models import Airport, Country


@admin.register(Country)
class CountryAdmin(admin.ModelAdmin):
    list_display = ["name", "code", "airport_count"]
    search_fields = ["name", "=code"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Country]:
        return super().get_queryset(request).annotate(airport_count=Count("airports"))

    @admin.display(description="airports", ordering="airport_count")
    def airport_count(self, country: Country) -> int:
        return country.airport_count


@admin.register(Airport)
class AirportAdmin(admin.ModelAdmin):
    list_display = ["icao", "iata", "name", "city", "country", "elevation_ft"]
    list_filter = [("iata", admin.EmptyFieldListFilter)]
    list_select_related = ["country"]
    # Do not count all 28 000 rows for each page of search results.
    show_full_result_count = False
    search_fields = ["=icao", "=iata", "search_text"]
    autocomplete_fields = ["country"]
    fieldsets = [
        (None, {"fields": [("icao", "iata"), "name", "city", "subdivision", "country"]}),
        ("Position", {"fields": [("latitude", "longitude"), "elevation_ft", "timezone"]}),
    ]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Airport], search_term: str
    ) -> tuple[QuerySet[Airport], bool]:
        return super().get_search_results(request, queryset, fold(search_term))
