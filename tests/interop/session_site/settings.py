"""The settings of the suite with the servers of this site, shared as the environment says.

`MCP_TEST_DATABASE_URL` and `MCP_TEST_REDIS_URL` are for several processes; without them there is
the SQLite file of `MCP_TEST_DATABASE` and no channel layer.
"""

import os

from tests.conformance import shared
from tests.settings import *  # noqa: F403

INSTALLED_APPS = [
    "tests.interop.session_site.apps.SessionSiteConfig" if app == "tests.sites.example" else app
    for app in INSTALLED_APPS  # noqa: F405
]
ROOT_URLCONF = "tests.interop.session_site.urls"
ASGI_APPLICATION = "tests.interop.session_site.asgi.application"

# Check W005 requires this of a site whose tools write.
DATABASES["default"]["OPTIONS"]["transaction_mode"] = "IMMEDIATE"  # noqa: F405
if url := os.environ.get("MCP_TEST_DATABASE_URL"):
    DATABASES = {"default": shared.database(url)}

CHANNEL_LAYERS = {}
if redis := os.environ.get("MCP_TEST_REDIS_URL"):
    CHANNEL_LAYERS = {
        "default": shared.channel_layer(redis, prefix=os.environ["MCP_TEST_REDIS_PREFIX"])
    }

# All clients call from one address, without credentials.
MCP_DJANGO = {
    "SESSION_RATE": "",
    "SESSIONS_PER_PRINCIPAL": 1000,
    "STREAMS_PER_PRINCIPAL": 1000,
}
