"""What all sites have in common; the other settings choose how tenants are kept apart."""

import os

from tests.conformance import shared
from tests.settings import *  # noqa: F403

ALLOWED_HOSTS = [".tenants.test"]
ROOT_URLCONF = "tests.sites.tenants.urls"
USER_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.admin",
]
SHARED_APPS = [*USER_APPS, "channels", "mcp_django"]
TENANT_APPS = ["tests.sites.tenants"]
INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]
MIDDLEWARE = [
    "tests.sites.tenants.middleware.FailingAfterwards",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
DATABASES = {"default": shared.database(os.environ.get("MCP_TEST_DATABASE_URL", ""))}
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
MCP_DJANGO = {
    # All calls of a test come from one address without credentials, which gets a quarter of these.
    "THREADS": 32,
    "QUEUE": 512,
    "SESSION_RATE": "",
    "SESSIONS_PER_PRINCIPAL": 1000,
    "STREAMS_PER_PRINCIPAL": 1000,
    "PAGE_SIZE": 2,
}
if os.environ.get("MCP_TEST_THREAD_CONTEXT") == "False":
    MCP_DJANGO["THREAD_CONTEXT"] = False
