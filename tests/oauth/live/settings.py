"""The settings of all tests, with the OAuth test site's servers and scopes.

`MCP_TEST_PREFIX` puts the site under a prefix, which is then the path of its issuer;
`MCP_TEST_ORIGIN` is the origin of that site. With `MCP_TEST_REVISION`, the site serves only that
revision. `MCP_TEST_OAUTH` has further keys of `MCP_DJANGO["OAUTH"]`, as JSON.
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

# No network: documents come from a table. The fetcher keeps all its checks.
OAUTH2_PROVIDER = provider_settings(CIMD_METADATA_FETCHER="tests.oauth.live.fetcher.Fetcher")
MCP_DJANGO = {
    # Tests change rows with SQL, and expect the next request to see the change.
    "CONFIRM_SECONDS": 0,
    "SCOPES": {
        "mcp": "Use the tools of this site",
        "mcp:write": "Change things",
        "orders:refund": "Refund orders",
    },
    "SCOPE_IMPLIES": {"mcp:write": ["mcp"]},
    # Each test is a client with an address of its own, because rate limits count by address.
    "PROXIES": 1,
    "OAUTH": json.loads(os.environ.get("MCP_TEST_OAUTH", "{}")),
}

if prefix := os.environ.get("MCP_TEST_PREFIX"):
    FORCE_SCRIPT_NAME = prefix
    MCP_DJANGO["OAUTH"]["ISSUER"] = os.environ["MCP_TEST_ORIGIN"] + prefix
if revision := os.environ.get("MCP_TEST_REVISION"):
    MCP_DJANGO["PROTOCOL_VERSIONS"] = [revision]
