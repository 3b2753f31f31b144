"""Tenants that share tables, in which a policy of PostgreSQL shows the rows of one."""

from tests.sites.tenants.settings import *  # noqa: F403
from tests.sites.tenants.settings import MCP_DJANGO, MIDDLEWARE

MIDDLEWARE = ["tests.sites.tenants.middleware.TenantOfConnection", *MIDDLEWARE]
MCP_DJANGO["THREAD_CONTEXT"] = "tests.sites.tenants.middleware.ConnectionContext"
