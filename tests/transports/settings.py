"""The example site with the stage, for servers that tests start."""

from tests.settings import *  # noqa: F403

ROOT_URLCONF = "tests.transports.urls"
ASGI_APPLICATION = "tests.transports.asgi.application"
# A server that a test starts has no tables unless the test sets up a database, and a tool that may
# write does not run if its call cannot be logged.
MCP_DJANGO = {"LOG_CALLS": False}
