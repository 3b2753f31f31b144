"""As `settings_schemas`, with users in the schemas of the tenants as well."""

from tests.sites.tenants.settings_schemas import *  # noqa: F403
from tests.sites.tenants.settings_schemas import MCP_DJANGO, SHARED_APPS, TENANT_APPS, USER_APPS

TENANT_APPS = [*USER_APPS, *TENANT_APPS]
INSTALLED_APPS = [*SHARED_APPS, *[name for name in TENANT_APPS if name not in SHARED_APPS]]
MCP_DJANGO["AUTH"] = ["tokens", "tests.sites.tenants.callers.ByHeader"]
