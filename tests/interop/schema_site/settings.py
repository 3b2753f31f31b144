"""The settings of the suite with this site's server, on the SQLite file of `MCP_TEST_DATABASE`."""

from tests.settings import *  # noqa: F403

INSTALLED_APPS = [
    "tests.interop.schema_site.apps.SchemaSiteConfig" if app == "tests.sites.example" else app
    for app in INSTALLED_APPS  # noqa: F405
]
ROOT_URLCONF = "tests.interop.schema_site.urls"
ASGI_APPLICATION = "tests.interop.schema_site.asgi.application"

# Check W005 requires this of a site whose tools write.
DATABASES["default"]["OPTIONS"]["transaction_mode"] = "IMMEDIATE"  # noqa: F405

MCP_DJANGO = {"LOG_CALLS": False, "SESSION_RATE": "", "SESSIONS_PER_PRINCIPAL": 1000}
