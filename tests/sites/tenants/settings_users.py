"""The same with users in the schemas of the tenants as well."""

from tests.sites.tenants.settings_schemas import *  # noqa: F403
from tests.sites.tenants.settings_schemas import MCP_DJANGO, TENANT_APPS

TENANT_APPS = ["django.contrib.contenttypes", "django.contrib.auth", *TENANT_APPS]
MCP_DJANGO["AUTH"] = ["tokens", "tests.sites.tenants.callers.ByHeader"]
