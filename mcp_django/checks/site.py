"""Checks of the site: what is installed, its settings, middleware, databases and URLs."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import packages_distributions
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.urls import URLResolver, get_resolver

from mcp_django import conf
from mcp_django.auth.backends import get_backend
from mcp_django.server import all_servers

DISTRIBUTION = "django-mcp-provider"
OAUTH_APP = "mcp_django.oauth"


def check_distribution(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E001: another distribution ships a package of the same import name."""
    owners = set(packages_distributions().get("mcp_django", ()))
    foreign = sorted(owners - {DISTRIBUTION})
    if not foreign:
        return []
    return [
        Error(
            f"The distribution {', '.join(foreign)} also installs a package named mcp_django.",
            hint=f"pip uninstall {' '.join(foreign)}; pip install --force-reinstall {DISTRIBUTION}",
            id="mcp_django.E001",
        )
    ]


def check_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E002: a key or a value of MCP_DJANGO is wrong."""
    found = conf.problems(getattr(django_settings, "MCP_DJANGO", {}))
    if not found and apps.is_installed("django.contrib.admin"):
        found = _admin_class_problems()
    return [Error(what, hint=hint, id="mcp_django.E002") for what, hint in found]


def _admin_class_problems() -> list[tuple[str, str]]:
    # It needs the admin.
    from mcp_django.admin_base import import_base_class

    try:
        import_base_class()
    except ImproperlyConfigured as exc:
        hint = "Name the class of your theme that stands for ModelAdmin, and install the theme."
        return [(str(exc), hint)]
    return []


def check_backends(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E003: an authentication backend cannot be imported."""
    found: list[CheckMessage] = []
    for server in all_servers():
        for name in server.auth:
            if name == "oauth" and not apps.is_installed(OAUTH_APP):
                # Told by a check of its own.
                continue
            try:
                get_backend(name)
            except ImproperlyConfigured as exc:
                found.append(Error(str(exc), obj=server, id="mcp_django.E003"))
    return found


def check_oauth_app(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """mcp_oauth.E002: tokens of the site's own authorization server are asked for, without it."""
    if apps.is_installed(OAUTH_APP):
        return []
    asking = [server.name for server in all_servers() if "oauth" in server.auth]
    if not asking and "oauth" not in conf.get_settings().auth:
        return []
    whose = f"the server {asking[0]!r}" if asking else "MCP_DJANGO['AUTH']"
    return [
        Error(
            f"{whose} names 'oauth', and the app {OAUTH_APP!r} is not installed.",
            hint=f'Add "oauth2_provider" and "{OAUTH_APP}" to INSTALLED_APPS '
            "(pip install 'django-mcp-provider[oauth]').",
            id="mcp_oauth.E002",
        )
    ]


def check_channel_layer(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E008: the channel layer that rings between processes is not configured."""
    wanted = conf.get_settings().channel_layer
    known = getattr(django_settings, "CHANNEL_LAYERS", {})
    if wanted in known or (wanted == conf.DEFAULT_LAYER and not known):
        return []
    return [
        Error(
            f"MCP_DJANGO['CHANNEL_LAYER'] names {wanted!r}, which CHANNEL_LAYERS does not have.",
            hint=f"Name one of {', '.join(map(repr, known)) or 'its entries'}, or add it there.",
            id="mcp_django.E008",
        )
    ]


def check_mounts(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W008: an endpoint is mounted with a slash, so its address without one is redirected."""
    return [
        checks.Warning(
            f"The endpoint of {name!r} is mounted at {str(one.pattern)!r}: a POST to the address "
            "without the slash is redirected and loses its body.",
            hint=f"Write path({str(one.pattern).rstrip('/')!r}, ….urls), which serves both.",
            id="mcp_django.W008",
        )
        for one, name in _mounts(get_resolver().url_patterns)
        if str(one.pattern).endswith("/")
    ]


def _mounts(patterns: Iterable[Any]) -> Iterable[tuple[URLResolver, str]]:
    for one in patterns:
        if isinstance(one, URLResolver):
            if one.app_name == "mcp_django":
                yield one, str(one.namespace)
            else:
                yield from _mounts(one.url_patterns)


def check_middleware(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W003: middleware without a synchronous form keeps requests off the fast path."""
    from mcp_django.asgi import async_only_middleware

    found = async_only_middleware()
    if not found:
        return []
    return [
        checks.Warning(
            f"{', '.join(found)} cannot run synchronously, so mcp_django.asgi leaves every request "
            "to Django's own handler, which holds a thread for each open stream.",
            hint="Make the middleware sync_capable, or mount mcp.asgi in a URLRouter.",
            id="mcp_django.W003",
        )
    ]


def check_origins(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W004: under a wildcard host no browser client is let in unless its origin is listed."""
    if "*" not in django_settings.ALLOWED_HOSTS:
        return []
    settings = conf.get_settings()
    if settings.base_url or settings.allowed_origins:
        return []
    return [
        checks.Warning(
            "ALLOWED_HOSTS has a wildcard, so pages of the site itself may not call its endpoints.",
            hint="Set MCP_DJANGO['BASE_URL'] to the site's address, or list ALLOWED_ORIGINS.",
            id="mcp_django.W004",
        )
    ]


def check_sqlite(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W005: SQLite transactions that begin with a read fail under concurrent writers."""
    found: list[CheckMessage] = []
    for alias, database in django_settings.DATABASES.items():
        sqlite = str(database.get("ENGINE", "")).endswith("sqlite3")
        mode = _options(database).get("transaction_mode")
        if sqlite and str(mode).upper() not in {"IMMEDIATE", "EXCLUSIVE"}:
            found.append(
                checks.Warning(
                    f"The SQLite database {alias!r} begins transactions as deferred; tools that "
                    "write at the same time can fail with 'database is locked'.",
                    hint='Set OPTIONS = {"transaction_mode": "IMMEDIATE"}.',
                    id="mcp_django.W005",
                )
            )
    return found


def check_persistent_connections(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W006: persistent connections leak under ASGI, where threads come and go."""
    if not getattr(django_settings, "ASGI_APPLICATION", None):
        return []
    return [
        checks.Warning(
            f"The database {alias!r} keeps connections open (CONN_MAX_AGE), which leaks them "
            "under ASGI.",
            hint="Set CONN_MAX_AGE to 0 and let a pool keep them (OPTIONS['pool'], PgBouncer).",
            id="mcp_django.W006",
        )
        for alias, database in django_settings.DATABASES.items()
        if database.get("CONN_MAX_AGE", 0) != 0
    ]


def _options(database: Any) -> Any:
    return database.get("OPTIONS") or {}
