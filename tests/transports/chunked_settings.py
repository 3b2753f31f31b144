"""The settings of `chunked_site`."""

from tests.settings import *  # noqa: F403

ROOT_URLCONF = "tests.transports.chunked_site"
CHANNEL_LAYERS = {}
# The tests of this site are at one address, and a registration is counted by it.
MCP_DJANGO = {"SCOPES": {"mcp": "Use the tools of this site"}, "PROXIES": 1}

# Tables are made from the models, in a tenth of the time.
MIGRATION_MODULES = dict.fromkeys(
    (
        *("admin", "auth", "contenttypes", "sessions", "shop"),
        *("mcp_django", "mcp_oauth", "oauth2_provider"),
    )
)
