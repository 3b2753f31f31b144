"""System checks of the site: installation, settings, URLs, authentication, tasks and approvals."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import distributions
from itertools import product
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.urls import NoReverseMatch, URLResolver, get_resolver, reverse
from django.utils.module_loading import import_string

from mcp_django.asgi import async_only_middleware
from mcp_django.auth.authentication import OAUTH_APPS, has_shared_oauth, why_not_cached
from mcp_django.auth.backends import BaseBackend, get_backend
from mcp_django.auth.backends.external import entries_for
from mcp_django.auth.challenges import ROUTE_NAME
from mcp_django.auth.endpoints import canonicalize_url
from mcp_django.auth.pages import SIGN_IN_HINT, has_sign_in_page
from mcp_django.components.tool import Tool
from mcp_django.conf import (
    DEFAULT_LAYER,
    Check,
    Settings,
    docs_url,
    find_problems,
    get_settings,
)
from mcp_django.execution.policy import find_rule
from mcp_django.protocol.text import nearest
from mcp_django.server import MCPServer, all_servers
from mcp_django.storage.cache import wanted_seconds
from mcp_django.tasks.worker import task_backends
from mcp_django.tenants import (
    DjangoTenants,
    UnknownContext,
    is_tenant_app,
    tenant_middleware,
    thread_context,
    user_middleware,
)

DISTRIBUTION = "django-mcp-provider"
PACKAGE = "mcp_django"
OAUTH_APP = "mcp_django.oauth"


Problem = tuple[str, str | None]
"""What is wrong, and a hint."""


def system_check(
    message: Callable[..., CheckMessage],
    id: str,
    *,
    declarations: Callable[[MCPServer], Iterable[Any]] | None = None,
) -> Callable[[Callable[..., Iterable[Problem]]], Check]:
    """Decorate a function that yields problems: make it a system check that reports them.

    ``declarations`` returns the declarations of a server. The check then calls the function with
    each declaration of every server, and the server is the object of the messages.
    """

    def decorator(find_problems: Callable[..., Iterable[Problem]]) -> Check:
        def check(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
            if declarations is None:
                return [message(what, hint=hint, id=id) for what, hint in find_problems()]
            return [
                message(what, hint=hint, obj=server, id=id)
                for server in all_servers()
                for declaration in declarations(server)
                for what, hint in find_problems(declaration)
            ]

        # Not ``functools.wraps``: Django inspects the signature of the wrapped function.
        check.__name__, check.__doc__ = find_problems.__name__, find_problems.__doc__
        return check

    return decorator


def itself(server: MCPServer) -> Iterable[MCPServer]:
    """Return the server, for a check of each server as a whole."""
    return [server]


@system_check(Error, "mcp_django.E001")
def check_distribution() -> Iterator[Problem]:
    """E001: another distribution ships a package of the same import name."""
    owners = set()
    # ``importlib.metadata.packages_distributions()`` is ten times as slow, since it reads the
    # names of all files that are installed.
    for distribution in distributions():
        declared = (distribution.read_text("top_level.txt") or "").split()
        recorded = "" if declared else distribution.read_text("RECORD") or ""
        if PACKAGE in declared or f"\n{PACKAGE}/" in f"\n{recorded}":
            owners.add(str(distribution.metadata["Name"]))
    if foreign := sorted(owners - {DISTRIBUTION}):
        hint = f"pip uninstall {' '.join(foreign)}; pip install --force-reinstall {DISTRIBUTION}"
        names = ", ".join(foreign)
        yield f"The distribution {names} also installs a package named mcp_django.", hint


@system_check(Error, "mcp_django.E002")
def check_settings() -> Iterable[Problem]:
    """E002: a key or a value of MCP_DJANGO is wrong."""
    problems = find_problems(getattr(django_settings, "MCP_DJANGO", {}))
    if problems or not apps.is_installed("django.contrib.admin"):
        return problems
    # Imports the admin, which is optional.
    from mcp_django import admin_base

    problem = admin_base.theme_problem
    try:
        admin_base.import_base_class()
    except ImproperlyConfigured as exc:
        problem = str(exc)
    hint = "Write the path of the theme's ModelAdmin class, and install the theme."
    return [(problem, hint)] if problem else []


@system_check(Error, "mcp_django.E003", declarations=lambda server: server.auth)
def check_backends(name: str) -> Iterator[Problem]:
    """E003: an authentication backend cannot be imported."""
    if name == "oauth" and not apps.is_installed(OAUTH_APP):
        # Reported by ``check_oauth_app``.
        return
    try:
        get_backend(name)
    except ImproperlyConfigured as exc:
        yield str(exc), None


@system_check(Error, "mcp_oauth.E002")
def check_oauth_app() -> Iterator[Problem]:
    """mcp_oauth.E002: the backend ``oauth`` is used, but its app is not installed."""
    if apps.is_installed(OAUTH_APP):
        return
    asking = [server.name for server in all_servers() if "oauth" in server.auth]
    if not asking and "oauth" not in get_settings().auth:
        return
    whose = f"the server {asking[0]!r}" if asking else "MCP_DJANGO['AUTH']"
    hint = (
        f'Add "oauth2_provider" and "{OAUTH_APP}" to INSTALLED_APPS '
        "(pip install 'django-mcp-provider[oauth]')."
    )
    yield f"{whose} contains 'oauth', but the app {OAUTH_APP!r} is not installed.", hint


@system_check(Error, "mcp_django.E008")
def check_channel_layer() -> Iterator[Problem]:
    """E008: the channel layer for pub/sub between processes is not configured."""
    alias = get_settings().channel_layer
    layers = getattr(django_settings, "CHANNEL_LAYERS", {})
    if alias not in layers and (alias != DEFAULT_LAYER or layers):
        yield (
            f"MCP_DJANGO['CHANNEL_LAYER'] is {alias!r}, which is not in CHANNEL_LAYERS.",
            f"Write one of {', '.join(map(repr, layers)) or 'its entries'}, or add an entry.",
        )


@system_check(checks.Warning, "mcp_django.W008")
def check_mounts() -> Iterator[Problem]:
    """W008: an endpoint is mounted with a trailing slash, so its URL without one redirects."""
    for resolver, name in _iter_mounts(get_resolver().url_patterns):
        where = str(resolver.pattern)
        if where.endswith("/"):
            what = (
                f"The endpoint of {name!r} is mounted at {where!r}: a POST to the URL without the "
                "slash is redirected and loses its body."
            )
            yield what, f"Write path({where.rstrip('/')!r}, ….urls), which serves both."


def _iter_mounts(patterns: Iterable[Any]) -> Iterable[tuple[URLResolver, str]]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            if pattern.app_name == "mcp_django":
                yield pattern, str(pattern.namespace)
            else:
                yield from _iter_mounts(pattern.url_patterns)


@system_check(checks.Warning, "mcp_django.W003")
def check_middleware() -> Iterator[Problem]:
    """W003: async-only middleware prevents the use of the fast ASGI handler."""
    if middleware := async_only_middleware():
        what = (
            f"{', '.join(middleware)} cannot run synchronously, so mcp_django.asgi passes every "
            "request to Django's own handler, which uses a thread for each open stream."
        )
        yield what, "Make the middleware sync_capable, or mount mcp.asgi in a URLRouter."


@system_check(checks.Warning, "mcp_django.W004")
def check_origins() -> Iterator[Problem]:
    """W004: with a wildcard host, browser clients are rejected unless their origin is listed."""
    settings = get_settings()
    if "*" in django_settings.ALLOWED_HOSTS and not (settings.base_url or settings.allowed_origins):
        yield (
            "ALLOWED_HOSTS has a wildcard, so pages of the site itself cannot call its endpoints.",
            "Set BASE_URL or ALLOWED_ORIGINS in MCP_DJANGO to the site's URL.",
        )


@system_check(checks.Warning, "mcp_django.W005")
def check_sqlite() -> Iterator[Problem]:
    """W005: SQLite transactions that begin with a read can fail with concurrent writers."""
    for alias, database in django_settings.DATABASES.items():
        sqlite = str(database.get("ENGINE", "")).endswith("sqlite3")
        options: Any = database.get("OPTIONS") or {}
        mode = str(options.get("transaction_mode")).upper()
        if sqlite and mode not in {"IMMEDIATE", "EXCLUSIVE"}:
            what = (
                f"The SQLite database {alias!r} uses deferred transactions; tools that write at "
                "the same time can fail with 'database is locked'."
            )
            hint = f'Set DATABASES[{alias!r}]["OPTIONS"] = {{"transaction_mode": "IMMEDIATE"}}.'
            yield what, hint


@system_check(checks.Warning, "mcp_django.W006")
def check_persistent_connections() -> Iterator[Problem]:
    """W006: persistent connections leak under ASGI, where threads are short-lived."""
    if not getattr(django_settings, "ASGI_APPLICATION", None):
        return
    hint = "Set CONN_MAX_AGE to 0 and use a connection pool (OPTIONS['pool'], PgBouncer)."
    for alias, database in django_settings.DATABASES.items():
        if database.get("CONN_MAX_AGE", 0) != 0:
            what = "has persistent connections (CONN_MAX_AGE), which leak under ASGI"
            yield f"The database {alias!r} {what}.", hint


@system_check(Error, "mcp_django.E018")
def check_tenants() -> Iterator[Problem]:
    """E018: the tenant of a request cannot be determined, or a setting would mix tenants."""
    hint = f"See {docs_url('topics/tenants')}."
    context = thread_context()
    if isinstance(context, UnknownContext):
        yield context.message, hint
        return
    if context is None:
        return
    if isinstance(context, DjangoTenants) and tenant_middleware() is None:
        what = (
            "No middleware of django_tenants is in MIDDLEWARE, so requests would have no tenant; "
            'if the site has none, set MCP_DJANGO["THREAD_CONTEXT"] to False.'
        )
        yield what, hint
    if get_settings().keep_connections:
        what = "KEEP_CONNECTIONS is True, and a connection would keep the tenant of its last call."
        yield what, hint
    if middleware := user_middleware():
        what = "takes the tenant from the user, and callers with a token are refused"
        yield f"{middleware} {what}.", hint
    if is_tenant_app("mcp_django"):
        what = (
            "mcp_django is an app of each tenant (TENANT_APPS), but its tables are those of all: "
            "list it in SHARED_APPS only."
        )
        yield what, hint
    if has_shared_oauth() and apps.is_installed(OAUTH_APP):
        what = (
            "Each tenant has users of its own, so its tokens are refused as long as all tenants "
            f"share the tables of {' and '.join(OAUTH_APPS)}: list both in TENANT_APPS."
        )
        yield what, hint


@system_check(checks.Info, "mcp_django.I004", declarations=lambda server: [server])
def note_uncached_callers(server: MCPServer) -> Iterator[Problem]:
    """I004: callers are looked up on each request; noted with ``--deploy``."""
    try:
        reason = why_not_cached(tuple(server.auth), server.upstream)
    except ImproperlyConfigured:  # reported by E003
        return
    if wanted_seconds() and reason:
        what = f"Callers of the server {server.name!r} are looked up on each request: {reason}."
        hint = f"Nothing is needed. What a cached caller saves: {docs_url('topics/security')}."
        yield what, hint


# Authentication backends --------------------------------------------------------------------------


def _issuers(settings: Settings) -> Mapping[str, Sequence[Any]]:
    """Return the configured issuers by backend."""
    return {"jwt": settings.jwt, "introspection": settings.introspection}


@system_check(Error, "mcp_django.E013")
def check_issuers() -> Iterator[Problem]:
    """E013: a backend has no issuers, or a dotted path cannot be imported."""
    settings = get_settings()
    for server in all_servers():
        for name, issuers in _issuers(settings).items():
            if name in server.auth and not entries_for(issuers, server.name):
                what = f"uses {name!r}, but no issuer is configured for it"
                hint = f"Add one to MCP_DJANGO[{name.upper()!r}], or remove {name!r} from AUTH."
                yield f"The server {server.name!r} {what}.", hint
    # The dotted paths in the settings: the key, the path, and the required type.
    paths = [
        (f"MCP_DJANGO[{name.upper()!r}][{number}]['USER']", issuer.user, "function")
        for name, issuers in _issuers(settings).items()
        for number, issuer in enumerate(issuers)
        if issuer.user
    ]
    paths += [
        (f"MCP_DJANGO['DRF'][{number}]", path, "class") for number, path in enumerate(settings.drf)
    ]
    if settings.audit_context:
        paths.append(("MCP_DJANGO['AUDIT_CONTEXT']", settings.audit_context, "function"))
    for key, path, kind in paths:
        try:
            target = import_string(path)
        except ImportError as exc:
            problem = f"which cannot be imported ({exc})"
        else:
            fits = isinstance(target, type) if kind == "class" else callable(target)
            problem = "" if fits else f"which is not a {kind}"
        if problem:
            yield f"{key} is {path!r}, {problem}.", f"Write the dotted path of a {kind}."


@system_check(checks.Warning, "mcp_django.W014")
def check_unused_issuers() -> Iterator[Problem]:
    """W014: no server uses an issuer, so its tokens are rejected."""
    for name, issuers in _issuers(get_settings()).items():
        using = {server.name for server in all_servers() if name in server.auth}
        for number, issuer in enumerate(issuers):
            if using.intersection(issuer.servers or using):
                continue
            key = f"MCP_DJANGO[{name.upper()!r}][{number}]"
            whose = f" (for {', '.join(map(repr, issuer.servers))})" if issuer.servers else ""
            hint = f"Add {name!r} to MCP_DJANGO['AUTH'], or to MCPServer(auth=[…])."
            if using:
                names = ", ".join(map(repr, sorted(using)))
                hint = f"Write servers that use {name!r} in SERVERS: {names}."
            yield f"No server accepts the tokens of {key}{whose}.", hint


def check_rest_tokens(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E014: toolkit tokens that cannot be validated. W012: tokens that never expire."""
    if check_issuers(app_configs):
        return []
    servers = [server for server in all_servers() if "drf" in server.auth]
    if not servers:
        return []
    try:
        get_backend("drf")
    except ImproperlyConfigured:  # reported by E003
        return []
    from mcp_django.auth.backends.drf import authentication_classes

    messages: list[CheckMessage] = []
    for server, cls in product(servers, authentication_classes()):
        bases = {f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__}
        if "rest_framework.authentication.TokenAuthentication" in bases:
            messages.append(
                checks.Warning(
                    f"The server {server.name!r} accepts tokens of {cls.__name__}, which are "
                    "stored in plain text, never expire and have no scopes.",
                    hint=(
                        "Replace them with tokens of manage.py mcp token create, which the backend "
                        "'tokens' accepts, and then remove the class."
                    ),
                    id="mcp_django.W012",
                )
            )
        is_toolkit = any(base.startswith("oauth2_provider.contrib.") for base in bases)
        if is_toolkit and not apps.is_installed("mcp_django.oauth"):
            messages.append(
                Error(
                    f"The server {server.name!r} rejects the tokens of {cls.__name__}: without "
                    "mcp_django.oauth their resource cannot be checked.",
                    hint="Add 'mcp_django.oauth' to INSTALLED_APPS, or remove the class.",
                    id="mcp_django.E014",
                )
            )
    return messages


# Scopes and metadata ------------------------------------------------------------------------------


def check_scopes(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E010: a server needs an unknown scope. W010: a component needs one.

    W013: ``SCOPE_IMPLIES`` contains an unknown scope.
    """
    if not _has_metadata_urls():
        return []
    servers = [server for server in all_servers() if "oauth" in server.auth]
    if not servers:
        return []
    messages = [message for server in servers for message in _scope_problems(server)]
    settings = get_settings()
    implies = settings.scope_implies or {}
    scopes = dict.fromkeys(
        scope for broad, implied in implies.items() for scope in (broad, *implied)
    )
    messages += [
        checks.Warning(
            f"MCP_DJANGO['SCOPE_IMPLIES'] contains the scope {scope!r}, which is not in "
            "SCOPES, so no OAuth client can get it.",
            hint=_scope_hint(scope, settings.scopes),
            id="mcp_django.W013",
        )
        for scope in scopes
        if scope not in settings.scopes
    ]
    return messages


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
    for component in server.registry:
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
    start = f"Did you mean {close!r}? Otherwise add" if close else "Add"
    return f"{start} {scope!r}: 'What it lets a client do' to MCP_DJANGO['SCOPES']."


@system_check(Error, "mcp_django.E011")
def check_resource_urls() -> Iterator[Problem]:
    """E011: two servers have the same URL, so a token for one is valid for the other."""
    servers_by_url: dict[str, list[MCPServer]] = defaultdict(list)
    for server in all_servers():
        if server.resource_url:
            servers_by_url[canonicalize_url(server.resource_url) or ""].append(server)
    for url, servers in servers_by_url.items():
        if len(servers) > 1:
            names = ", ".join(repr(server.name) for server in servers)
            hint = "Give each server the URL of its own endpoint."
            yield f"The servers {names} have the same resource_url, {url!r}.", hint


@system_check(Error, "mcp_django.E012")
def check_can_connect() -> Iterator[Problem]:
    """E012: the function of ``CAN_CONNECT`` cannot be imported or called, so no one can connect."""
    path = get_settings().oauth.can_connect
    if not path:
        return
    hint = "Write the dotted path of a function (user, server, client_id) -> bool."
    try:
        signature = inspect.signature(find_rule(path))
    except ImproperlyConfigured as exc:
        yield str(exc), hint
        return
    except ValueError:  # a C function without a signature
        return
    try:
        signature.bind("user", "server", "client_id")
    except TypeError as exc:
        what = f"MCP_DJANGO['OAUTH']['CAN_CONNECT'] is {path!r}, which takes {signature}: {exc}."
        yield what, hint


@system_check(checks.Warning, "mcp_django.W011", declarations=itself)
def check_metadata(server: MCPServer) -> Iterator[Problem]:
    """W011: tokens of other issuers are accepted, but clients cannot discover the issuers."""
    # Wrong backends are reported by ``check_backends``, which imports those of every server.
    if _has_metadata_urls() or check_backends(None):
        return
    # The app of the site's own authorization server has its own checks.
    others = [name for name in server.auth if name != "oauth"]
    if any(type(get_backend(name)).issuers is not BaseBackend.issuers for name in others):
        what = "accepts tokens of other issuers, but clients cannot discover which"
        hint = 'Add path("", include("mcp_django.urls")) to the root URLconf.'
        yield f"The server {server.name!r} {what}.", hint


def _has_metadata_urls() -> bool:
    """Return whether the URLconf contains the metadata of the endpoints."""
    try:
        reverse(ROUTE_NAME)
    except NoReverseMatch:
        return False
    return True


# Backends of Django and django-tasks for development, by the names of their classes.
QUEUE = "default"
IMMEDIATE_BACKEND, DUMMY_BACKEND = "ImmediateBackend", "DummyBackend"


def check_task_backend(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E017: the task backend cannot run tasks. W019: tasks end with the web process."""
    running = _tools_with("task")
    alias = get_settings().task_backend
    if alias:
        problem = _task_backend_problem(alias)
        if problem is None:
            return []
        what, hint = problem
        return [Error(f"MCP_DJANGO['TASK_BACKEND'] {what}", hint=hint, id="mcp_django.E017")]
    if not running or django_settings.DEBUG:
        return []
    return [
        checks.Warning(
            f"Some tools run as tasks ({running}) in threads of the web process; the tasks are "
            "lost when it ends.",
            hint=(
                "Set MCP_DJANGO['TASK_BACKEND'] to an alias of TASKS with worker processes. See "
                f"{docs_url('topics/tasks')}."
            ),
            id="mcp_django.W019",
        )
    ]


def _tools_with(option: str, value: Any = None) -> str:
    """Return the tools that have an option, each with its server; empty without such tools.

    With ``value``, only those whose option has it.
    """
    names = [
        f"{tool.key} on {server.name}"
        for server in all_servers()
        for tool in server.registry
        if isinstance(tool, Tool)
        and (getattr(tool, option) if value is None else getattr(tool, option) == value)
    ]
    return ", ".join(sorted(names))


def _task_backend_problem(alias: str) -> tuple[str, str] | None:
    """Return why a backend cannot run tasks, and a hint."""
    backends = task_backends()
    if backends is None:
        return (
            f"is {alias!r}, but no task framework is installed.",
            "Install 'django-mcp-provider[tasks]', or Django 6.",
        )
    try:
        backend = backends[alias]
    except (ImproperlyConfigured, ImportError) as exc:
        aliases = ", ".join(map(repr, getattr(django_settings, "TASKS", {}))) or "no entry"
        reason = str(exc).rstrip(".")
        return (
            f"is {alias!r}, which cannot be used: {reason}.",
            f"TASKS contains {aliases}: write one of its aliases, or add {alias!r} to it.",
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
    for message in backend.check():
        if message.is_serious():
            return (
                f"is {alias!r}, which is not ready: {message.msg}.",
                message.hint or "Fix this error.",
            )
    return None


@system_check(checks.Warning, "mcp_django.W016")
def check_sign_in_page() -> Iterator[Problem]:
    """W016: a tool needs approvals, but the site has no page where approvers can sign in."""
    # The authorization server needs the page too, and reports it as an error.
    if apps.is_installed(OAUTH_APP) or not getattr(django_settings, "ROOT_URLCONF", ""):
        return
    waiting = _tools_with("approval")
    if waiting and not has_sign_in_page():
        what = (
            f"LOGIN_URL is {str(django_settings.LOGIN_URL)!r}, which is not a URL of the site, so "
            f"users cannot sign in to approve calls ({waiting})."
        )
        yield what, SIGN_IN_HINT
