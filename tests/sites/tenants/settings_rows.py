"""Tenants that share tables, in which a policy of PostgreSQL shows the rows of one."""

from tests.sites.tenants.settings import *  # noqa: F403
from tests.sites.tenants.settings import MIDDLEWARE

MIDDLEWARE = ["tests.sites.tenants.middleware.TenantOfConnection", *MIDDLEWARE]
