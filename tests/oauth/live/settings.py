"""The settings of all tests, with the OAuth test site's servers and scopes.

`MCP_TEST_PREFIX` puts the site under a prefix, which makes that the path of its issuer;
`MCP_TEST_ORIGIN` says then where it is. With `MCP_TEST_REVISION` it serves that one alone.
`MCP_TEST_OAUTH` is more of `MCP_DJANGO["OAUTH"]`, in JSON.
"""

import json
import os

from mcp_django.oauth import provider_settings
from tests.settings import *  # noqa: F403

ROOT_URLCONF = "tests.oauth.urls"
ASGI_APPLICATION = "tests.oauth.live.asgi.application"
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
LOGIN_URL = "login"
CHANNEL_LAYERS = {}
DATABASES["default"]["OPTIONS"]["transaction_mode"] = "IMMEDIATE"  # noqa: F405

# No network: documents come from a table. No guard of the fetcher is loosened for it.
OAUTH2_PROVIDER = provider_settings(CIMD_METADATA_FETCHER="tests.oauth.live.fetcher.Fetcher")
MCP_DJANGO = {
    # Tests change rows with SQL, and expect what they changed at the next request.
    "CONFIRM_SECONDS": 0,
    "SCOPES": {
        "mcp": "Use the tools of this site",
        "mcp:write": "Change things",
        "orders:refund": "Refund orders",
    },
    "SCOPE_IMPLIES": {"mcp:write": ["mcp"]},
    # Each test is a client at an address of its own, as limits count by it.
    "PROXIES": 1,
    "OAUTH": json.loads(os.environ.get("MCP_TEST_OAUTH", "{}")),
}

if prefix := os.environ.get("MCP_TEST_PREFIX"):
    FORCE_SCRIPT_NAME = prefix
    MCP_DJANGO["OAUTH"]["ISSUER"] = os.environ["MCP_TEST_ORIGIN"] + prefix
if revision := os.environ.get("MCP_TEST_REVISION"):
    MCP_DJANGO["PROTOCOL_VERSIONS"] = [revision]
