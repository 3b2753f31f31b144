"""Settings of the site: those of ``startproject``, changed by environment variables.

``BENCH_DB`` is the SQLite file with the table ``bench_row``, or the URL of a PostgreSQL database.
``BENCH_MIDDLEWARE`` is ``default`` (the middleware of ``startproject``) or ``none``. To try tuning,
set ``BENCH_CONN_MAX_AGE`` (Django's setting, in seconds), ``BENCH_WAL=1`` (SQLite configured as the
deployment guide recommends), or ``BENCH_THREADS``, ``BENCH_CONFIRM_SECONDS`` and
``BENCH_LOG_CALLS`` (settings of this package). ``benchmarks.site.mcp`` reads ``BENCH_TOOLS``.
"""

from __future__ import annotations

import os

from django.core.exceptions import ImproperlyConfigured

from benchmarks.site import STARTPROJECT, database
from mcp_django.oauth import provider_settings

# The site has no private data and listens on loopback only, so the key need not be secret.
SECRET_KEY = "only-for-benchmarks-and-long-enough-to-sign-with"
DEBUG = False
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

ROOT_URLCONF = "benchmarks.site.mcp"
ASGI_APPLICATION = "benchmarks.site.asgi.application"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "oauth2_provider",
    "mcp_django",
    "mcp_django.oauth",
    "benchmarks.site.BenchConfig",
]


def middleware(name: str) -> list[str]:
    """Return the middleware that the name selects.

    Raises:
        ImproperlyConfigured: the name is unknown.
    """
    choices: dict[str, list[str]] = {"default": STARTPROJECT, "none": []}
    if name not in choices:
        raise ImproperlyConfigured(
            f"BENCH_MIDDLEWARE={name!r} is unknown; write 'default' or 'none'."
        )
    return choices[name]


MIDDLEWARE = middleware(os.environ.get("BENCH_MIDDLEWARE", "default"))

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {
    "default": {
        **database(os.environ.get("BENCH_DB", "")),
        "CONN_MAX_AGE": int(os.environ.get("BENCH_CONN_MAX_AGE", "0")),
    },
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
if os.environ.get("BENCH_LAYER"):
    CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
STATIC_URL = "static/"

OAUTH2_PROVIDER = provider_settings()
MCP_DJANGO = {
    "CONFIRM_SECONDS": float(os.environ.get("BENCH_CONFIRM_SECONDS", "1")),
    # Large results are sent whole, and one client opens every stream.
    "MAX_RESULT_BYTES": 64 * 1024 * 1024,
    "STREAMS_PER_PRINCIPAL": 100_000,
    "SESSIONS_PER_PRINCIPAL": 100_000,
    "SESSION_RATE": "",
    "LOG_CALLS": os.environ.get("BENCH_LOG_CALLS", "1") == "1",
    **({"THREADS": int(os.environ["BENCH_THREADS"])} if "BENCH_THREADS" in os.environ else {}),
}
