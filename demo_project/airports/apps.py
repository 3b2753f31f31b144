"""App configuration of the reference data."""

from __future__ import annotations

from django.apps import AppConfig


class AirportsConfig(AppConfig):
    name = "demo_project.airports"
    default_auto_field = "django.db.models.BigAutoField"
