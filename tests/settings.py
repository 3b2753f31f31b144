"""The site every test runs on: SQLite, Django's default middleware, one example application.

Optional distributions join only when installed, so that the same suite runs without any of them.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from tempfile import gettempdir

from mcp_django.oauth import provider_settings

SECRET_KEY = "only-for-tests"
DEBUG = False
ALLOWED_HOSTS = ["testserver", "localhost", "127.0.0.1"]
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "tests.sites.example.urls"
ASGI_APPLICATION = "tests.sites.example.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "channels",
    *(["rest_framework"] if find_spec("rest_framework") else []),
    "mcp_django",
    *(["oauth2_provider", "mcp_django.oauth"] if find_spec("oauth2_provider") else []),
    "tests.sites.example",
    "tests.sites.shop",
]

OAUTH2_PROVIDER = provider_settings()
# Most tests mount their servers without the authorization server, and need no page to sign in on.
SILENCED_SYSTEM_CHECKS = ["mcp_oauth.E005", "mcp_oauth.E008"]

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

# A file, not memory: threads of one process share an in-memory database through one cache, where a
# second writer fails immediately instead of waiting. The test runner creates and removes it, per
# worker. Where files can be kept in memory, no disk slows the tests down.
MEMORY = Path("/dev/shm")
PLACE = MEMORY if os.access(MEMORY, os.W_OK) else Path(gettempdir())
DATABASE = PLACE / f"mcp_django-tests-{os.getpid()}.sqlite3"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        # The environment of a server that a test starts names the file to share.
        "NAME": os.environ.get("MCP_TEST_DATABASE", DATABASE),
        "OPTIONS": {"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF"},
        "TEST": {"NAME": str(DATABASE)},
    },
}
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}

# Django 6.1 requires a setting for how mail is sent; the test runner keeps mail in memory.
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}

# The default hasher is slow on purpose; tests need a user, not a secure password.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
