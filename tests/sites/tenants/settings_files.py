"""Tenants with a database each, which a router chooses by a variable of the thread."""

import os
from pathlib import Path

from tests.sites.tenants.settings import *  # noqa: F403
from tests.sites.tenants.settings import MCP_DJANGO, MIDDLEWARE

MCP_DJANGO["THREAD_CONTEXT"] = "tests.sites.tenants.middleware.TenantContext"
MIDDLEWARE = ["tests.sites.tenants.middleware.TenantOfThread", *MIDDLEWARE]
DATABASE_ROUTERS = ["tests.sites.tenants.middleware.Router"]
DATABASES = {
    name: {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": Path(os.environ["MCP_TEST_DATABASES"]) / f"{name}.sqlite3",
        "OPTIONS": {"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF"},
    }
    for name in ("default", "alpha", "beta")
}
