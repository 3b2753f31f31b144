"""django-tenants is installed and no request has a tenant: the rows of one are in `public`."""

from tests.sites.tenants.settings_schemas import *  # noqa: F403
from tests.sites.tenants.settings_schemas import MIDDLEWARE, SHARED_APPS, TENANT_APPS

SHARED_APPS = [*SHARED_APPS, *TENANT_APPS]
MIDDLEWARE = MIDDLEWARE[1:]
