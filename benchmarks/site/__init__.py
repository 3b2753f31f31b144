"""A small site whose MCP tools are the requests that the benchmarks send.

The peers use its table and its middleware, too; this package is not installed in their
environments.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote, urlsplit

from django.apps import AppConfig

from benchmarks.process import database_file

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
    """Sets a label, because the default label would be ``site``."""

    name = "benchmarks.site"
    label = "bench"
    default_auto_field = "django.db.models.BigAutoField"


WAL = {
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
}


def database(value: str) -> dict[str, Any]:
    """Return the settings of a SQLite file, or of a PostgreSQL database given by its URL."""
    parts = urlsplit(value)
    if not parts.scheme.startswith("postgres"):
        options = WAL if os.environ.get("BENCH_WAL") == "1" else {}
        name = value or database_file()
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": name, "OPTIONS": options}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
    }
