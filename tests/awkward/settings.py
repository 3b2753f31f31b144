"""Settings of the awkward site."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import gettempdir

SECRET_KEY = "only-for-tests"
DEBUG = False
ALLOWED_HOSTS = ["testserver"]
USE_TZ = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "tests.awkward.urls"
FORCE_SCRIPT_NAME = "/below"
AUTH_USER_MODEL = "awkward.Member"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "tests.awkward",
    "mcp_django",
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


DATABASES = {"default": _database("default"), "readings": _database("readings")}
DATABASE_ROUTERS = ["tests.awkward.router.ReadingsApart"]
