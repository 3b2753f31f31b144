"""The example site with the stage, for servers that tests start."""

from tests.settings import *  # noqa: F403

ROOT_URLCONF = "tests.transports.urls"
ASGI_APPLICATION = "tests.transports.asgi.application"
# A server that a test starts has no tables unless the test says which, and what may write does not
# run where it cannot be logged.
MCP_DJANGO = {"LOG_CALLS": False}
