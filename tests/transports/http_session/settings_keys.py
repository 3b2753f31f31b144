"""Settings of processes that cache callers and sessions, and do not poll for changes.

They are notified of changes by a channel layer; without a layer, they notice changes when they
confirm what they have cached.
"""

import os

from tests.transports.http_session.settings import *  # noqa: F403

ROOT_URLCONF = "tests.transports.http_session.keys"
MCP_DJANGO = {
    **MCP_DJANGO,  # noqa: F405
    "CONFIRM_SECONDS": int(os.environ["MCP_TEST_CONFIRM_SECONDS"]),
    "HEALTH": True,
    "POLL_SECONDS": 600,
    # Each request of the tests comes from an address of its own, so that none is refused
    # because many are invalid.
    "PROXIES": 1,
}
