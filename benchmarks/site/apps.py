"""The application that holds the table."""

from __future__ import annotations

from django.apps import AppConfig


class BenchConfig(AppConfig):
    """Named in full so that its label says more than ``site``."""

    name = "benchmarks.site"
    label = "bench"
    default_auto_field = "django.db.models.BigAutoField"
