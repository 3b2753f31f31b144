"""System checks of the site: installation, settings, URLs, authentication, tasks and approvals."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.urls import NoReverseMatch, URLResolver, get_resolver, reverse
from django.utils.module_loading import import_string

from mcp_django.asgi import async_only_middleware
from mcp_django.auth.backends import BaseBackend, get_backend
from mcp_django.auth.backends.external import entries_for
from mcp_django.auth.challenges import ROUTE_NAME
from mcp_django.auth.endpoints import canonicalize_url
from mcp_django.auth.pages import SIGN_IN_HINT, has_sign_in_page
from mcp_django.conf import DEFAULT_LAYER, Settings, find_problems, get_settings
from mcp_django.core.tool import Tool
from mcp_django.execution.policy import find_rule
from mcp_django.execution.task_worker import task_backends
from mcp_django.protocol.text import nearest
from mcp_django.server import MCPServer, all_servers

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
    found = find_problems(getattr(django_settings, "MCP_DJANGO", {}))
    if not found and apps.is_installed("django.contrib.admin"):
        found = _admin_class_problems()
    return [Error(what, hint=hint, id="mcp_django.E002") for what, hint in found]


def _admin_class_problems() -> list[tuple[str, str]]:
    # Imports the admin, which is optional.
    from mcp_django.admin_base import import_base_class

    try:
        import_base_class()
    except ImproperlyConfigured as exc:
        hint = "Write the path of the theme's ModelAdmin class, and install the theme."
        return [(str(exc), hint)]
    return []


def check_backends(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E003: an authentication backend cannot be imported."""
    found: list[CheckMessage] = []
    for server in all_servers():
        for name in server.auth:
            if name == "oauth" and not apps.is_installed(OAUTH_APP):
                # Reported by ``check_oauth_app``.
                continue
            try:
                get_backend(name)
            except ImproperlyConfigured as exc:
                found.append(Error(str(exc), obj=server, id="mcp_django.E003"))
    return found


def check_oauth_app(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """mcp_oauth.E002: the backend ``oauth`` is used, but its app is not installed."""
    if apps.is_installed(OAUTH_APP):
        return []
    asking = [server.name for server in all_servers() if "oauth" in server.auth]
    if not asking and "oauth" not in get_settings().auth:
        return []
    whose = f"the server {asking[0]!r}" if asking else "MCP_DJANGO['AUTH']"
    return [
        Error(
            f"{whose} contains 'oauth', but the app {OAUTH_APP!r} is not installed.",
            hint=f'Add "oauth2_provider" and "{OAUTH_APP}" to INSTALLED_APPS '
            "(pip install 'django-mcp-provider[oauth]').",
            id="mcp_oauth.E002",
        )
    ]


def check_channel_layer(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E008: the channel layer for pub/sub between processes is not configured."""
    wanted = get_settings().channel_layer
    known = getattr(django_settings, "CHANNEL_LAYERS", {})
    if wanted in known or (wanted == DEFAULT_LAYER and not known):
        return []
    return [
        Error(
            f"MCP_DJANGO['CHANNEL_LAYER'] is {wanted!r}, which is not in CHANNEL_LAYERS.",
            hint=f"Write one of {', '.join(map(repr, known)) or 'its entries'}, or add an entry.",
            id="mcp_django.E008",
        )
    ]


def check_mounts(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W008: an endpoint is mounted with a trailing slash, so its URL without one redirects."""
    return [
        checks.Warning(
            f"The endpoint of {name!r} is mounted at {str(one.pattern)!r}: a POST to the URL "
            "without the slash is redirected and loses its body.",
            hint=f"Write path({str(one.pattern).rstrip('/')!r}, ….urls), which serves both.",
            id="mcp_django.W008",
        )
        for one, name in _iter_mounts(get_resolver().url_patterns)
        if str(one.pattern).endswith("/")
    ]


def _iter_mounts(patterns: Iterable[Any]) -> Iterable[tuple[URLResolver, str]]:
    for one in patterns:
        if isinstance(one, URLResolver):
            if one.app_name == "mcp_django":
                yield one, str(one.namespace)
            else:
                yield from _iter_mounts(one.url_patterns)


def check_middleware(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W003: async-only middleware prevents the use of the fast ASGI handler."""
    found = async_only_middleware()
    if not found:
        return []
    return [
        checks.Warning(
            f"{', '.join(found)} cannot run synchronously, so mcp_django.asgi passes every request "
            "to Django's own handler, which uses a thread for each open stream.",
            hint="Make the middleware sync_capable, or mount mcp.asgi in a URLRouter.",
            id="mcp_django.W003",
        )
    ]


def check_origins(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W004: with a wildcard host, browser clients are rejected unless their origin is listed."""
    if "*" not in django_settings.ALLOWED_HOSTS:
        return []
    settings = get_settings()
    if settings.base_url or settings.allowed_origins:
        return []
    return [
        checks.Warning(
            "ALLOWED_HOSTS has a wildcard, so pages of the site itself cannot call its endpoints.",
            hint="Set BASE_URL or ALLOWED_ORIGINS in MCP_DJANGO to the site's URL.",
            id="mcp_django.W004",
        )
    ]


def check_sqlite(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W005: SQLite transactions that begin with a read can fail with concurrent writers."""
    found: list[CheckMessage] = []
    for alias, database in django_settings.DATABASES.items():
        sqlite = str(database.get("ENGINE", "")).endswith("sqlite3")
        options: Any = database.get("OPTIONS") or {}
        mode = str(options.get("transaction_mode")).upper()
        if sqlite and mode not in {"IMMEDIATE", "EXCLUSIVE"}:
            found.append(
                checks.Warning(
                    f"The SQLite database {alias!r} uses deferred transactions; tools that write "
                    "at the same time can fail with 'database is locked'.",
                    hint='Set OPTIONS = {"transaction_mode": "IMMEDIATE"}.',
                    id="mcp_django.W005",
                )
            )
    return found


def check_persistent_connections(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W006: persistent connections leak under ASGI, where threads are short-lived."""
    if not getattr(django_settings, "ASGI_APPLICATION", None):
        return []
    return [
        checks.Warning(
            f"The database {alias!r} has persistent connections (CONN_MAX_AGE), which leak under "
            "ASGI.",
            hint="Set CONN_MAX_AGE to 0 and use a connection pool (OPTIONS['pool'], PgBouncer).",
            id="mcp_django.W006",
        )
        for alias, database in django_settings.DATABASES.items()
        if database.get("CONN_MAX_AGE", 0) != 0
    ]


# Authentication backends --------------------------------------------------------------------------


def check_issuers(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E013: a backend has no issuers, or a dotted path cannot be imported."""
    settings = get_settings()
    lists = {"jwt": settings.jwt, "introspection": settings.introspection}
    found: list[CheckMessage] = []
    for server in all_servers():
        found += [
            _no_issuer(
                f"The server {server.name!r} uses {name!r}, but no issuer is configured for it.",
                name,
            )
            for name, entries in lists.items()
            if name in server.auth and not entries_for(entries, server.name)
        ]
    for key, path, kind in _iter_import_paths(settings):
        problem = _path_problem(path, kind)
        if problem:
            what = f"{key} is {path!r}, {problem}."
            hint = f"Write the dotted path of a {kind}."
            found.append(Error(what, hint=hint, id="mcp_django.E013"))
    return found


def check_unused_issuers(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W014: no server uses an issuer, so its tokens are rejected."""
    settings = get_settings()
    found: list[CheckMessage] = []
    for name, entries in (("jwt", settings.jwt), ("introspection", settings.introspection)):
        using = {server.name for server in all_servers() if name in server.auth}
        for number, entry in enumerate(entries):
            if using.intersection(entry.servers or using):
                continue
            key = f"MCP_DJANGO[{name.upper()!r}][{number}]"
            whose = f" (for {', '.join(map(repr, entry.servers))})" if entry.servers else ""
            named = ", ".join(map(repr, sorted(using)))
            found.append(
                checks.Warning(
                    f"No server accepts the tokens of {key}{whose}.",
                    hint=f"Write servers that use {name!r} in SERVERS: {named}."
                    if using
                    else f"Add {name!r} to MCP_DJANGO['AUTH'], or to MCPServer(auth=[…]).",
                    id="mcp_django.W014",
                )
            )
    return found


def _no_issuer(what: str, name: str) -> Error:
    key = name.upper()
    hint = f"Add one to MCP_DJANGO[{key!r}], or remove {name!r} from AUTH."
    return Error(what, hint=hint, id="mcp_django.E013")


def _path_problem(path: str, kind: str) -> str:
    try:
        found = import_string(path)
    except ImportError as exc:
        return f"which cannot be imported ({exc})"
    fits = isinstance(found, type) if kind == "class" else callable(found)
    return "" if fits else f"which is not a {kind}"


def _iter_import_paths(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yield the dotted paths in the settings: the key, the path, and the required type."""
    for key, entries in (("JWT", settings.jwt), ("INTROSPECTION", settings.introspection)):
        for number, entry in enumerate(entries):
            if entry.user:
                yield f"MCP_DJANGO[{key!r}][{number}]['USER']", entry.user, "function"
    for number, path in enumerate(settings.drf):
        yield f"MCP_DJANGO['DRF'][{number}]", path, "class"


def check_rest_tokens(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E014: toolkit tokens that cannot be validated. W012: tokens that never expire."""
    if check_issuers(app_configs):
        return []
    found: list[CheckMessage] = []
    for server in all_servers():
        if "drf" in server.auth:
            found += _rest_token_problems(server)
    return found


def _rest_token_problems(server: MCPServer) -> list[CheckMessage]:
    try:
        get_backend("drf")
    except ImproperlyConfigured:  # reported by E003
        return []
    from mcp_django.auth.backends.drf import authentication_classes

    found: list[CheckMessage] = []
    for one in authentication_classes():
        bases = {f"{base.__module__}.{base.__qualname__}" for base in one.__mro__}
        if "rest_framework.authentication.TokenAuthentication" in bases:
            found.append(
                checks.Warning(
                    f"The server {server.name!r} accepts tokens of {one.__name__}, which are "
                    "stored in plain text, never expire and have no scopes.",
                    hint="Add 'tokens' to AUTH, and use manage.py mcp token create.",
                    id="mcp_django.W012",
                )
            )
        is_toolkit = any(base.startswith("oauth2_provider.contrib.") for base in bases)
        if is_toolkit and not apps.is_installed("mcp_django.oauth"):
            found.append(
                Error(
                    f"The server {server.name!r} rejects the tokens of {one.__name__}: without "
                    "mcp_django.oauth their resource cannot be checked.",
                    hint="Add 'mcp_django.oauth' to INSTALLED_APPS, or remove the class.",
                    id="mcp_django.E014",
                )
            )
    return found


# Scopes and metadata ------------------------------------------------------------------------------


def check_scopes(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E010: a server needs an unknown scope. W010: a component needs one.

    W013: ``SCOPE_IMPLIES`` contains an unknown scope.
    """
    if not _has_metadata_urls():
        return []
    servers = [server for server in all_servers() if "oauth" in server.auth]
    found = [message for server in servers for message in _scope_problems(server)]
    return [*found, *_implied_problems()] if servers else []


def _implied_problems() -> Iterable[CheckMessage]:
    settings = get_settings()
    implies = settings.scope_implies or {}
    named = dict.fromkeys(one for broad, implied in implies.items() for one in (broad, *implied))
    for scope in named:
        if scope not in settings.scopes:
            yield checks.Warning(
                f"MCP_DJANGO['SCOPE_IMPLIES'] contains the scope {scope!r}, which is not in "
                "SCOPES, so no OAuth client can get it.",
                hint=_scope_hint(scope, settings.scopes),
                id="mcp_django.W013",
            )


def _scope_problems(server: MCPServer) -> Iterable[CheckMessage]:
    scopes = get_settings().scopes
    for scope in server.scopes:
        if scope not in scopes:
            yield Error(
                f"The server {server.name!r} needs the scope {scope!r}, which is not in SCOPES, so "
                "no OAuth client can use it.",
                hint=_scope_hint(scope, scopes),
                obj=server,
                id="mcp_django.E010",
            )
    needing: dict[str, list[str]] = defaultdict(list)
    for component in server:
        for scope in component.scopes:
            if scope not in scopes:
                needing[scope].append(str(component))
    for scope, components in needing.items():
        others = f" and {len(components) - 1} more need" if len(components) > 1 else " needs"
        yield checks.Warning(
            f"The {components[0]}{others} the scope {scope!r}, which is not in SCOPES, so no OAuth "
            "client can get it.",
            hint=_scope_hint(scope, scopes),
            obj=server,
            id="mcp_django.W010",
        )


def _scope_hint(scope: str, scopes: Iterable[str]) -> str:
    close = nearest(scope, scopes)
    asked = f"Did you mean {close!r}? Otherwise add" if close else "Add"
    return f"{asked} {scope!r}: 'What it lets a client do' to MCP_DJANGO['SCOPES']."


def check_resource_urls(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E011: two servers have the same URL, so a token for one is valid for the other."""
    named: dict[str, list[MCPServer]] = defaultdict(list)
    for server in all_servers():
        if server.resource_url:
            named[canonicalize_url(server.resource_url) or ""].append(server)
    return [
        Error(
            f"The servers {', '.join(repr(one.name) for one in servers)} have the same "
            f"resource_url, {resource!r}.",
            hint="Give each server the URL of its own endpoint.",
            id="mcp_django.E011",
        )
        for resource, servers in named.items()
        if len(servers) > 1
    ]


def check_can_connect(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E012: the function of ``CAN_CONNECT`` cannot be imported or called, so no one can connect."""
    path = get_settings().oauth.can_connect
    if not path:
        return []
    hint = "Write the dotted path of a function (user, server, client_id) -> bool."
    try:
        signature = inspect.signature(find_rule(path))
    except ImproperlyConfigured as exc:
        return [Error(str(exc), hint=hint, id="mcp_django.E012")]
    except ValueError:  # a C function without a signature
        return []
    try:
        signature.bind("user", "server", "client_id")
    except TypeError as exc:
        what = f"MCP_DJANGO['OAUTH']['CAN_CONNECT'] is {path!r}, which takes {signature}: {exc}."
        return [Error(what, hint=hint, id="mcp_django.E012")]
    return []


def check_metadata(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W011: tokens of other issuers are accepted, but clients cannot discover the issuers."""
    if check_backends(app_configs) or _has_metadata_urls():
        return []
    return [
        checks.Warning(
            f"The server {server.name!r} accepts tokens of other issuers, but clients cannot "
            "discover which.",
            hint='Add path("", include("mcp_django.urls")) to the root URLconf.',
            obj=server,
            id="mcp_django.W011",
        )
        for server in all_servers()
        if any(_has_external_issuers(name) for name in server.auth)
    ]


def _has_external_issuers(name: str) -> bool:
    # The app of the site's own authorization server has its own checks.
    return name != "oauth" and type(get_backend(name)).issuers is not BaseBackend.issuers


def _has_metadata_urls() -> bool:
    """Return whether the URLconf contains the metadata of the endpoints."""
    try:
        reverse(ROUTE_NAME)
    except NoReverseMatch:
        return False
    return True


# The backend that runs tasks ----------------------------------------------------------------------

# Backends of Django and django-tasks for development, by the names of their classes.
QUEUE = "default"
IMMEDIATE_BACKEND, DUMMY_BACKEND = "ImmediateBackend", "DummyBackend"


def check_task_backend(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E017: the task backend cannot run tasks. W019: tasks end with the web process."""
    running = [
        f"{tool.key} on {server.name}"
        for server in all_servers()
        for tool in server
        if isinstance(tool, Tool) and tool.task
    ]
    alias = get_settings().task_backend
    if alias:
        hindrance = _task_backend_problem(alias)
        if hindrance is None:
            return []
        what, hint = hindrance
        return [Error(f"MCP_DJANGO['TASK_BACKEND'] {what}", hint=hint, id="mcp_django.E017")]
    if not running or django_settings.DEBUG:
        return []
    return [
        checks.Warning(
            f"Some tools run as tasks ({', '.join(sorted(running))}) in threads of the web "
            "process; the tasks are lost when it ends.",
            hint=(
                "Set MCP_DJANGO['TASK_BACKEND'] to an alias of TASKS with worker processes; see "
                "docs/tasks.md."
            ),
            id="mcp_django.W019",
        )
    ]


def _task_backend_problem(alias: str) -> tuple[str, str] | None:
    """Return why a backend cannot run tasks, and a hint."""
    found = task_backends()
    if found is None:
        return (
            f"is {alias!r}, but no task framework is installed.",
            "Install 'django-mcp-provider[tasks]', or Django 6.",
        )
    try:
        backend = found[alias]
    except (ImproperlyConfigured, ImportError) as exc:
        known = ", ".join(map(repr, getattr(django_settings, "TASKS", {}))) or "no entry"
        reason = str(exc).rstrip(".")
        return (
            f"is {alias!r}, which cannot be used: {reason}.",
            f"TASKS contains {known}: write one of its aliases, or add {alias!r} to it.",
        )
    except RuntimeError as exc:
        # Raised by Django for a model whose app is not installed.
        return f"is {alias!r}, which cannot be used: {exc}", "Add its app to INSTALLED_APPS."
    name = type(backend).__name__
    if name == IMMEDIATE_BACKEND:
        return (
            f"is {alias!r}, an {name}, which runs a task inside the request that creates it.",
            "Leave TASK_BACKEND empty for development; otherwise use a backend with workers.",
        )
    if name == DUMMY_BACKEND:
        return f"is {alias!r}, a {name}, which does not run tasks.", "Use a backend with workers."
    if backend.queues and QUEUE not in backend.queues:
        return f"is {alias!r}, which has no queue {QUEUE!r}.", f"Add {QUEUE!r} to its QUEUES."
    # Before Django 6 these checks run only if the framework is an installed app.
    for one in backend.check():
        if one.is_serious():
            return f"is {alias!r}, which is not ready: {one.msg}.", one.hint or "Fix this error."
    return None


# The sign-in page for approvals -------------------------------------------------------------------


def check_sign_in_page(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """W016: a tool needs approvals, but the site has no page where approvers can sign in."""
    # The authorization server needs the page too, and reports it as an error.
    if apps.is_installed(OAUTH_APP) or not getattr(django_settings, "ROOT_URLCONF", ""):
        return []
    waiting = [
        f"{tool.key} on {server.name}"
        for server in all_servers()
        for tool in server
        if isinstance(tool, Tool) and tool.approval
    ]
    if not waiting or has_sign_in_page():
        return []
    return [
        checks.Warning(
            f"LOGIN_URL is {str(django_settings.LOGIN_URL)!r}, which is not a URL of the site, so "
            f"users cannot sign in to approve calls ({', '.join(sorted(waiting))}).",
            hint=SIGN_IN_HINT,
            id="mcp_django.W016",
        )
    ]
