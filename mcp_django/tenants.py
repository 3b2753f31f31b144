"""Sites whose middleware decides which rows a request sees: tenants and row-level security.

Their packages keep the tenant on the thread in which the middleware runs, or on that thread's
database connection. So on such a site a function runs in that thread, while the middleware is open,
and what would run elsewhere is refused. The setting ``THREAD_CONTEXT`` says so for other packages,
or that an installed package is not used.

What is derived here from the settings is kept for the process, and a fork keeps it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.core.signals import setting_changed
from django.db import connection, router
from django.dispatch import receiver

from mcp_django.conf import get_settings

TENANT_PACKAGES = frozenset(
    {
        "db_multitenant",
        "django_multitenant",
        "django_pgschemas",
        "django_rls",
        "django_rls_tenants",
        "django_scopes",
        "django_tenants",
        "shared_schema_tenants",
        "tenant_schemas",
    }
)
"""The top-level modules of packages that choose the rows of a request in its middleware."""


@cache
def thread_context() -> str:
    """Return the name of what keeps the tenant of a request in its thread; empty if nothing does.

    It is the package, or the setting.
    """
    wanted = get_settings().thread_context
    if wanted is False:
        return ""
    if packages := tenant_packages():
        return " and ".join(packages)
    return 'MCP_DJANGO["THREAD_CONTEXT"]' if wanted else ""


def tenant_packages() -> list[str]:
    """Return the tenant packages that code of the site imports, or that it names in its settings.

    Some are used as a library alone, neither as an app nor as a middleware or a database backend.
    """
    engines = [str(database.get("ENGINE", "")) for database in django_settings.DATABASES.values()]
    names = [*(config.name for config in apps.get_app_configs()), *django_settings.MIDDLEWARE]
    modules = {name.partition(".")[0] for name in (*names, *engines)}
    return sorted(name for name in TENANT_PACKAGES if name in modules or name in sys.modules)


@cache
def user_middleware() -> str:
    """Return the middleware that takes the tenant from the user of the session; empty without.

    It runs before the caller of a request with a token is known.
    """
    used = _USER_MIDDLEWARE.intersection(django_settings.MIDDLEWARE) if thread_context() else ()
    return next(iter(used), "")


_USER_MIDDLEWARE = frozenset(
    {
        "django_multitenant.middlewares.MultitenantMiddleware",
        "django_rls.middleware.RLSContextMiddleware",
        "django_rls_tenants.RLSTenantMiddleware",
        "django_rls_tenants.tenants.middleware.RLSTenantMiddleware",
    }
)


# Users of tenants ---------------------------------------------------------------------------------


def has_tenant_users() -> bool:
    """Return whether each tenant has a table of users of its own.

    It is asked in the thread of a request, since a router may know the tenant.
    """
    return bool(thread_context()) and is_tenant_app(get_user_model()._meta.app_config.name)


def is_tenant_app(name: str) -> bool:
    """Return whether each tenant has tables of its own for the models of an app.

    Where schemas are the tenants, the settings list them. Otherwise tables that are in another
    database than those of this package, which are those of all, are of a tenant.
    """
    listed = _tenant_apps()
    if listed is not None:
        return name in listed
    shared = router.db_for_read(apps.get_model("mcp_django", "Session"))
    return any(
        router.db_for_read(model) != shared
        for config in apps.get_app_configs()
        if config.name == name
        for model in config.get_models()
    )


@cache
def _tenant_apps() -> frozenset[str] | None:
    """Return the apps that settings list as those of tenants, ``None`` without such settings."""
    own: Iterable[str] | None = getattr(django_settings, "TENANT_APPS", None)
    listed: list[Iterable[str]] = [] if own is None else [own]
    # django-pgschemas, and django-tenants with several types of tenants.
    for setting in ("TENANTS", "TENANT_TYPES"):
        schemas = getattr(django_settings, setting, None)
        for name, schema in schemas.items() if isinstance(schemas, dict) else ():
            if name != _shared_schema() and isinstance(schema, dict):
                listed.append(schema.get("APPS", ()))
    if not listed:
        return None
    return frozenset(AppConfig.create(entry).name for entries in listed for entry in entries)


def _shared_schema() -> str:
    return str(getattr(django_settings, "PUBLIC_SCHEMA_NAME", "public"))


def current_schema() -> str:
    """Return the schema that the connection of this thread is in; empty without schemas."""
    return str(getattr(connection, "schema_name", None) or "")


def has_current_tenant() -> bool:
    """Return whether this thread is that of a tenant without a request, as in a command."""
    return current_schema() not in {"", _shared_schema()}


def refuse_elsewhere(what: str) -> str:
    """Return the sentence about what runs outside of the thread of a request; empty if it may.

    ``what`` is its subject and verb, such as "Tasks are".
    """
    context = thread_context()
    return (
        f"{what} not available on this site: {context} keeps the tenant in the thread of a "
        "request, in which its middleware runs."
        if context
        else ""
    )


def refuse_tenant_users(what: str) -> str:
    """Return the sentence about what all tenants share and names a user; empty if users are shared.

    The same primary key is another user at another tenant.
    """
    return (
        f"{what} not available on this site: {thread_context()} keeps users in the tables of "
        "each tenant."
        if has_tenant_users()
        else ""
    )


def is_closed_to_tenant() -> bool:
    """Return whether the current request must not see the rows that all tenants share.

    Its users are those of one tenant, unless the connection is in the schema that is shared.
    """
    return has_tenant_users() and current_schema() != _shared_schema()


def why_no_streams() -> str:
    """Return why a mount that sends single responses has no streams."""
    return refuse_elsewhere("Streams are") or (
        "Streams are not available: this site is served over WSGI, not ASGI."
    )


@receiver(setting_changed, dispatch_uid="mcp_django.tenants")
def _setting_changed(**kwargs: Any) -> None:
    for cached in (thread_context, user_middleware, _tenant_apps):
        cached.cache_clear()
