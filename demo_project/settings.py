"""Settings of the demo site: one SQLite file, one process, loopback only.

`DEMO_VAR` selects another directory for all files that the site writes. `DEMO_DEBUG=0` disables
debugging and, with it, the users and tokens that `manage.py demo` creates.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from demo_project import secret_key
from mcp_django.oauth import provider_settings

BASE_DIR = Path(__file__).resolve().parent
VAR_DIR = Path(os.environ.get("DEMO_VAR") or BASE_DIR / "var")

SECRET_KEY = secret_key.read_or_create(VAR_DIR / "secret_key.txt")
DEBUG = os.environ.get("DEMO_DEBUG", "1") == "1"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

ROOT_URLCONF = "demo_project.urls"
ASGI_APPLICATION = "demo_project.asgi.application"
WSGI_APPLICATION = "demo_project.wsgi.application"

INSTALLED_APPS = [
    # Daphne must be first: it replaces `runserver` and must import Twisted before other apps do.
    *(["daphne"] if find_spec("daphne") else []),
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "mcp_django",
    # The site is its own OAuth authorization server: users sign in and need not paste a token.
    "oauth2_provider",
    "mcp_django.oauth",
    "demo_project.airports",
    "demo_project.desk",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

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
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": VAR_DIR / "db.sqlite3",
        "OPTIONS": {
            # With WAL, readers do not wait for a writer. An immediate transaction takes the write
            # lock when it begins; two threads that both read first would otherwise fail with
            # "database is locked".
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        },
    },
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
]

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"

# Write mail to files instead of sending it.
EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
EMAIL_FILE_PATH = VAR_DIR / "mail"

OAUTH2_PROVIDER = provider_settings()

MCP_DJANGO = {
    "TITLE": "Airport operations desk",
    "INSTRUCTIONS": (
        "Facts about 28 000 airports: search by name, find the nearest ones, measure great "
        "circles, plan routes with a maximum leg, tour the highest airports of all countries, draw "
        "maps, count them by country or height, read notices: current_notices of one airport, "
        "notice_board with its surroundings, list_notices of all. "
        "Airports are named by ICAO code (EGLL) or IATA code (LHR), countries by ISO code (GB). "
        "Notices are published and closed on the staff server."
    ),
    # Routes and maps read all airports.
    "LIMITS": {"rows": 50_000},
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"mcp_django": {"handlers": ["console"], "level": "INFO"}},
}
