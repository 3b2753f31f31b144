"""Settings of worker processes that log their calls.

With `MCP_TEST_POOL` their connections come from psycopg's pool of that size.
"""

import os

from tests.transports.http_session.settings import *  # noqa: F403

ROOT_URLCONF = "tests.transports.http_session.logged"
ASGI_APPLICATION = "tests.transports.http_session.logged_asgi.application"
MCP_DJANGO = {**MCP_DJANGO, "LOG_CALLS": True}  # noqa: F405

if size := os.environ.get("MCP_TEST_POOL"):
    # A call that waits for a connection fails soon.
    pool = {"min_size": int(size), "max_size": int(size), "timeout": 3}
    DATABASES["default"]["OPTIONS"] = {"pool": pool}  # noqa: F405
