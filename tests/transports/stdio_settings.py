"""The example site, the stage and the noisy server, for processes that tests start."""

import os

from tests.transports.settings import *  # noqa: F403

print("printed by the settings")  # noqa: T201 - must not get between the messages

ROOT_URLCONF = "tests.transports.stdio_site"
MCP_DJANGO = {
    "CONFIRM_SECONDS": int(os.environ.get("MCP_TEST_CONFIRM_SECONDS", "1")),
    "STREAMS_PER_PRINCIPAL": int(os.environ.get("MCP_TEST_STREAMS", "100")),
    # The database of these processes has no tables, and what may write does not run unlogged.
    "LOG_CALLS": False,
    # Pings have tests of their own; here they would come between the answers.
    "PING_SECONDS": 0,
    "RATE": os.environ.get("MCP_TEST_RATE", ""),
}
