"""Settings of the worker processes that tests start: the environment names what they share.

`MCP_TEST_DATABASE_URL` names a PostgreSQL database; without it they share the SQLite file of
`MCP_TEST_DATABASE`. `MCP_TEST_REDIS_URL` makes them publish through Redis, over a layer that loses
the share `MCP_TEST_DROP` of all messages; without it they poll.
"""

import os

from tests.conformance import shared
from tests.settings import *  # noqa: F403

INSTALLED_APPS = [
    "tests.transports.http_session.apps.SessionsConfig" if app == "tests.sites.example" else app
    for app in INSTALLED_APPS  # noqa: F405
]
ROOT_URLCONF = "tests.transports.http_session.urls"
ASGI_APPLICATION = "tests.transports.http_session.asgi.application"

if url := os.environ.get("MCP_TEST_DATABASE_URL"):
    DATABASES = {"default": shared.database(url)}

CHANNEL_LAYERS = {}
if redis := os.environ.get("MCP_TEST_REDIS_URL"):
    # A worker that a test halts while it talks to Redis must not lose the connection.
    host = {"address": redis, "socket_connect_timeout": 60, "socket_timeout": 60}
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "tests.transports.http_session.layers.LossyLayer",
            "CONFIG": {"hosts": [host], "prefix": os.environ["MCP_TEST_REDIS_PREFIX"]},
        }
    }

MCP_DJANGO = {
    # These tests check sessions and streams; a call whose record cannot be written is refused.
    "LOG_CALLS": False,
    "THREADS": int(os.environ.get("MCP_TEST_THREADS", "8")),
    # All clients of a test have one address, which gets a quarter of the queue.
    "QUEUE": 512,
    # Often enough that a client soon notices that its worker hangs.
    "KEEPALIVE_SECONDS": 0.5,
    # All tests call from one address, without credentials.
    "SESSION_RATE": "",
    "SESSIONS_PER_PRINCIPAL": 1000,
    "STREAMS_PER_PRINCIPAL": 1000,
}
