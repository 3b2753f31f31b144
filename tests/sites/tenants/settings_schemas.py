"""Tenants with a schema each: django-tenants."""

from tests.sites.tenants.settings import *  # noqa: F403
from tests.sites.tenants.settings import DATABASES, MIDDLEWARE, SHARED_APPS, TENANT_APPS

SHARED_APPS = ["django_tenants", "tests.sites.tenants.organizations", *SHARED_APPS]
INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]
MIDDLEWARE = ["django_tenants.middleware.main.TenantMainMiddleware", *MIDDLEWARE]
DATABASES["default"]["ENGINE"] = "django_tenants.postgresql_backend"
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
TENANT_MODEL = "organizations.Organization"
TENANT_DOMAIN_MODEL = "organizations.Domain"
