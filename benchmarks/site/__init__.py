"""A small site whose MCP tools are the requests that the benchmarks send."""

from __future__ import annotations

from django.apps import AppConfig


class BenchConfig(AppConfig):
    """Sets a label, as the default label would be ``site``."""

    name = "benchmarks.site"
    label = "bench"
    default_auto_field = "django.db.models.BigAutoField"
