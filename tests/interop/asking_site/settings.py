"""The settings of the suite, with the addresses of the site that asks."""

from tests.settings import *  # noqa: F403

ROOT_URLCONF = "tests.interop.asking_site.urls"
ASGI_APPLICATION = "tests.interop.asking_site.asgi.application"

# The database is not migrated, and tools that may write would fail without a table for the log.
MCP_DJANGO = {"LOG_CALLS": False}
