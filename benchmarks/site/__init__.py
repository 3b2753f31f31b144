"""A small site whose MCP tools are the requests that the benchmarks send.

Its table and its middleware are those of the peers too, in whose environments this package is
missing.
"""

from __future__ import annotations

from django.apps import AppConfig

STARTPROJECT = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]


class BenchConfig(AppConfig):
    """Sets a label, as the default label would be ``site``."""

    name = "benchmarks.site"
    label = "bench"
    default_auto_field = "django.db.models.BigAutoField"
