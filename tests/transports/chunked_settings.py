"""The settings of `chunked_site`."""

from tests.settings import *  # noqa: F403

ROOT_URLCONF = "tests.transports.chunked_site"
CHANNEL_LAYERS = {}
# All tests of this site call from one address, and registrations are counted by address.
MCP_DJANGO = {"SCOPES": {"mcp": "Use the tools of this site"}, "PROXIES": 1}

# Creates the tables from the models, in a tenth of the time that migrations take.
MIGRATION_MODULES = dict.fromkeys(
    (
        *("admin", "auth", "contenttypes", "sessions", "shop"),
        *("mcp_django", "mcp_oauth", "oauth2_provider"),
    )
)
