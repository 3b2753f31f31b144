"""The settings of the suite, with the addresses of the site that asks."""

from tests.settings import *  # noqa: F403

ROOT_URLCONF = "tests.interop.asking_site.urls"
ASGI_APPLICATION = "tests.interop.asking_site.asgi.application"

# Nobody migrates its database, and a log that cannot be written stops what may write.
MCP_DJANGO = {"LOG_CALLS": False}
