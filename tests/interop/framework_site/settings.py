"""The settings of the suite with this site's server, on the SQLite file of `MCP_TEST_DATABASE`."""

from tests.settings import *  # noqa: F403

ROOT_URLCONF = "tests.interop.framework_site.urls"
ASGI_APPLICATION = "tests.interop.framework_site.asgi.application"

# Check W005 requires this of a site whose tools write.
DATABASES["default"]["OPTIONS"]["transaction_mode"] = "IMMEDIATE"  # noqa: F405

MCP_DJANGO = {"SESSION_RATE": "", "SESSIONS_PER_PRINCIPAL": 1000, "STREAMS_PER_PRINCIPAL": 1000}
