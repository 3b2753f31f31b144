"""Settings of the awkward site."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import gettempdir

from mcp_django.oauth import provider_settings

SECRET_KEY = "only-for-tests"
DEBUG = False
ALLOWED_HOSTS = ["testserver"]
USE_TZ = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "tests.sites.awkward.urls"
FORCE_SCRIPT_NAME = "/below"
AUTH_USER_MODEL = "awkward.Member"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "tests.sites.awkward",
    "oauth2_provider",
    "mcp_django",
    "mcp_django.oauth",
]
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]


def _database(name: str) -> dict[str, object]:
    path = str(Path(gettempdir()) / f"mcp_django-awkward-{os.getpid()}-{name}.sqlite3")
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        "ATOMIC_REQUESTS": True,
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
        "TEST": {"NAME": path},
    }


DATABASES = {name: _database(name) for name in ("default", "readings", "people")}
DATABASE_ROUTERS = ["tests.sites.awkward.router.EachInItsPlace"]

ISSUER = f"http://testserver{FORCE_SCRIPT_NAME}"
MCP_DJANGO = {"AUTH": ["tokens", "oauth"], "OAUTH": {"ISSUER": ISSUER}}
OAUTH2_PROVIDER = provider_settings()
# No page is for signing in; the test in which a member approves a client adds the middleware. The
# issuer has the path of the prefix, where clients of 2025-03-26 do not find it (W002).
SILENCED_SYSTEM_CHECKS = [f"mcp_oauth.{code}" for code in ("E008", "E009", "W002", "W006")]
