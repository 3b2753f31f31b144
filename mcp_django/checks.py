"""System checks: what ``manage.py check`` says about a configuration that cannot work, or leaks."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.template import TemplateDoesNotExist, TemplateSyntaxError
from django.template.loader import get_template
from django.urls import URLResolver, get_resolver

from mcp_django import conf
from mcp_django.auth.backends import get_backend
from mcp_django.auth.permissions import AllowAny, codenames, permissions
from mcp_django.server import MCPServer, all_servers

TAG = "mcp_django"
DISTRIBUTION = "django-mcp-provider"


def register_all() -> None:
    """Register every check of this module; called when the app is ready."""
    for check in (
        check_distribution,
        check_settings,
        check_backends,
        check_server_names,
        check_permissions,
        check_codenames,
        check_mounts,
        check_descriptions,
        check_async_transactions,
        check_prompt_templates,
        check_middleware,
        check_origins,
        check_sqlite,
    ):
        checks.register(check, TAG)
    checks.register(check_persistent_connections, TAG)


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
    values = getattr(django_settings, "MCP_DJANGO", {})
    return [Error(what, hint=hint, id="mcp_django.E002") for what, hint in conf.problems(values)]


def check_backends(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E003: an authentication backend cannot be imported."""
    if check_settings(app_configs):
        return []
    found: list[CheckMessage] = []
    for server in all_servers():
        for name in server.auth:
            try:
                get_backend(name)
            except ImproperlyConfigured as exc:
                found.append(Error(str(exc), obj=server, id="mcp_django.E003"))
    return found


def check_server_names(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E004: two servers have one name, and so one URL namespace."""
    names = [server.name for server in all_servers()]
    return [
        Error(
            f"There are {names.count(name)} servers named {name!r}.",
            hint="Give each MCPServer a name of its own.",
            id="mcp_django.E004",
        )
        for name in sorted({name for name in names if names.count(name) > 1})
    ]


def check_permissions(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E005: a permission is none. E006: a component opens what its server keeps closed."""
    found: list[CheckMessage] = []
    for server in all_servers():
        found.extend(_permission_problems(server))
    return found


def _permission_problems(server: MCPServer) -> Iterable[CheckMessage]:
    try:
        closed = not all(isinstance(one, AllowAny) for one in permissions(server.permission))
    except ImproperlyConfigured as exc:
        yield Error(str(exc), obj=server, id="mcp_django.E005")
        return
    for component in server:
        try:
            opens = any(isinstance(one, AllowAny) for one in permissions(component.permission))
        except ImproperlyConfigured as exc:
            yield Error(f"{component}: {exc}", obj=server, id="mcp_django.E005")
            continue
        if closed and opens:
            yield Error(
                f"The {component} says AllowAny on a server that does not.",
                hint="A component narrows its server: put AllowAny on the server, or take it away.",
                obj=server,
                id="mcp_django.E006",
            )


def check_codenames(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W007: no model has the permission that something asks for, so only superusers hold it."""
    known = _codenames()
    return [
        checks.Warning(
            f"The {what} asks for {codename!r}, which is a permission of no model.",
            hint=_nearest(codename, known),
            obj=server,
            id="mcp_django.W007",
        )
        for server in all_servers()
        for what, declared in _declared_permissions(server)
        for codename in codenames(declared)
        if codename not in known
    ]


def _declared_permissions(server: MCPServer) -> Iterable[tuple[object, Any]]:
    yield f"server {server.name!r}", server.permission
    for component in server:
        yield component, component.permission


def _codenames() -> set[str]:
    """Every permission that migrations make for the models of the site."""
    return {
        f"{model._meta.app_label}.{codename}"
        for model in apps.get_models()
        for codename in (
            *(f"{action}_{model._meta.model_name}" for action in model._meta.default_permissions),
            *(codename for codename, _ in model._meta.permissions),
        )
    }


def _nearest(codename: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(codename, known, n=1)
    return f"Did you mean {nearest[0]!r}?" if nearest else "Write 'app_label.codename'."


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


def check_descriptions(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W001: a model has to guess what a component is for."""
    return [
        checks.Warning(
            f"The {component} has no description.",
            hint="Write a docstring, or pass description=….",
            obj=server,
            id="mcp_django.W001",
        )
        for server in all_servers()
        for component in server
        if not component.description
    ]


def check_async_transactions(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W002: an async function cannot get a transaction."""
    return [
        checks.Warning(
            f"The {component} is async and declared atomic; no transaction is opened for it.",
            hint="Make the function synchronous, or open the transaction where it writes.",
            obj=server,
            id="mcp_django.W002",
        )
        for server in all_servers()
        for component in server
        if component.atomic and component.function.is_async
    ]


def check_prompt_templates(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E007: a prompt's Django template does not exist, or cannot be read."""
    return [
        Error(
            f"The {prompt} names the template {prompt.template!r}, which {problem}.",
            hint="Put it in a templates directory of an installed app.",
            obj=server,
            id="mcp_django.E007",
        )
        for server in all_servers()
        for prompt in server.prompts.values()
        if (problem := _template_problem(prompt.template))
    ]


def _template_problem(name: str | None) -> str:
    try:
        if name is not None:
            get_template(name)
    except TemplateDoesNotExist:
        return "is not found"
    except TemplateSyntaxError as exc:
        return f"cannot be read: {exc}"
    return ""


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
    if "*" not in django_settings.ALLOWED_HOSTS or check_settings(app_configs):
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
