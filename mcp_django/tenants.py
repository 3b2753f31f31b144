"""Tenants and row-level security: which rows a request sees.

The middleware of a site with tenants stores the tenant on the thread in which it runs, or on the
database connection of that thread. This package also runs code elsewhere: in thread pools, streams,
tasks and other processes. ``MCP_DJANGO["THREAD_CONTEXT"]`` names a ``ThreadContext``, which returns
the tenant of a request as a short text, and enters that tenant in another thread. The text is
stored with the rows of this package and is part of every key and lookup, so no tenant sees the rows
of another tenant. The text is never taken from a client.

``current_tenant`` returns the tenant of the running code. A mount sets it once per request
(``as_tenant``), the tasks of an event loop and the threads of this package's pools inherit it, and
``run_as_tenant`` enters it in a thread. Without a ``ThreadContext`` it is always empty.

Values that this module derives from the settings are cached in the process, and a fork keeps them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.apps import AppConfig, apps
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, router
from django.db.models import Model, QuerySet
from django.http import Http404, HttpResponse
from django.urls import get_urlconf, set_urlconf
from django.utils.module_loading import import_string

from mcp_django.conf import get_settings
from mcp_django.exceptions import InternalError
from mcp_django.process import on_settings_change

if TYPE_CHECKING:
    from django.http import HttpRequest

logger = logging.getLogger("mcp_django")

M = TypeVar("M", bound=Model)
T = TypeVar("T")

MAX_LENGTH: Final = 255
"""The maximum number of characters of a tenant's name."""

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
"""The top-level modules of packages whose middleware chooses the rows of a request."""


class ThreadContextError(Exception):
    """The class of ``THREAD_CONTEXT`` is missing, or does not work as documented."""


class TenantUnavailable(InternalError):
    """A thread could not enter a tenant, perhaps a deleted one, so its work was not done."""


class ThreadContext(ABC):
    """Base class for ``THREAD_CONTEXT``: reads and sets the tenant of a thread or its connection.

    A process has one instance, which any thread uses; neither method runs on an event loop.
    """

    @abstractmethod
    def capture(self, request: HttpRequest | None) -> str:
        """Return the tenant as a text of at most 255 characters; empty for no tenant.

        On mounts without the site's middleware, only the ``request`` identifies the tenant.
        Elsewhere the middleware has run in this thread. With ``None``, return the tenant of this
        thread. The admin, commands and the signals of each saved object that is exposed call the
        method with ``None``, so it has to be fast.

        Raises:
            Http404: the tenant does not exist; the client gets a 404.
        """

    @abstractmethod
    def enter(self, tenant: str) -> AbstractContextManager[object]:
        """Return a context manager that sets the tenant of this thread.

        ``tenant`` is a text that ``capture`` returned, perhaps much earlier and in another process.
        Context managers may be nested, so each restores on exit what was set before.

        Raises:
            Exception: the tenant no longer exists. Only the work that needed this thread fails.
        """


@cache
def thread_context() -> ThreadContext | None:
    """Return the object that enters tenants on this site; ``None`` on a site without tenants.

    If the setting does not name a usable class, the object is an ``UnknownContext``.
    """
    path = get_settings().thread_context
    if path is False:
        return None
    if path is None:
        packages = tenant_packages()
        if packages == ["django_tenants"] and hasattr(django_settings, "TENANT_MODEL"):
            return DjangoTenants()
        if not packages:
            return None
        return UnknownContext(
            f"{' and '.join(packages)} {'chooses' if len(packages) == 1 else 'choose'} the rows of "
            'a request in middleware: set MCP_DJANGO["THREAD_CONTEXT"] to a class that enters the '
            "tenant in another thread, or to False if that is not used."
        )
    try:
        context = import_string(path)()
    except Exception as exc:  # noqa: BLE001 - of the site's own module
        return UnknownContext(f'MCP_DJANGO["THREAD_CONTEXT"] cannot be used: {path!r}: {exc}.')
    if not isinstance(context, ThreadContext):
        return UnknownContext(
            f'MCP_DJANGO["THREAD_CONTEXT"] names {path!r}, which is not a class derived from '
            "mcp_django.tenants.ThreadContext."
        )
    return context


class UnknownContext(ThreadContext):
    """Replaces a class that cannot be used; rejects all requests, since no tenant is known."""

    def __init__(self, message: str) -> None:
        self.message = message

    def capture(self, request: HttpRequest | None) -> str:
        """Raise the error, since the tenant cannot be known."""
        raise ThreadContextError(self.message)

    def enter(self, tenant: str) -> AbstractContextManager[object]:
        """Raise the error, since the tenant cannot be entered."""
        raise ThreadContextError(self.message)


def tenant_packages() -> list[str]:
    """Return the tenant packages that the site's code imports or that its settings name.

    Some packages are only imported, and are neither an app nor a middleware or database backend.
    """
    engines = [str(database.get("ENGINE", "")) for database in django_settings.DATABASES.values()]
    names = [*(config.name for config in apps.get_app_configs()), *django_settings.MIDDLEWARE]
    modules = {name.partition(".")[0] for name in (*names, *engines)}
    return sorted(name for name in TENANT_PACKAGES if name in modules or name in sys.modules)


_tenant: ContextVar[str | None] = ContextVar("mcp_django.tenant", default=None)


def current_tenant() -> str:
    """Return the tenant of the running code; empty on a site without tenants.

    Outside of a request to a server, ``ThreadContext.capture`` returns the tenant of the thread.

    Raises:
        ThreadContextError: the site's class does not return a valid tenant.
        SynchronousOnlyOperation: the code runs on an event loop outside of a request to a server,
            where the tenant of a thread is not available.
    """
    if thread_context() is None:
        return ""
    tenant = _tenant.get()
    if tenant is not None:
        return tenant
    if asyncio._get_running_loop() is not None:
        raise SynchronousOnlyOperation(
            "An event loop has no tenant; call this with sync_to_async, or in mcp_django.tenants."
            "as_tenant(...)."
        )
    return capture_tenant(None)


def bound_tenant() -> str:
    """Return the tenant of the current request if it is already known, else an empty string."""
    return _tenant.get() or ""


def capture_tenant(request: HttpRequest | None) -> str:
    """Return the tenant of a request, or of this thread; empty on a site without tenants.

    Raises:
        Http404: the tenant does not exist.
        ThreadContextError: the site's class does not return a valid tenant.
    """
    context = thread_context()
    if context is None:
        return ""
    try:
        tenant = context.capture(request)
    except Exception as exc:
        if request is not None:
            raise
        raise ThreadContextError(f"The tenant of this thread cannot be told: {exc}") from exc
    name = f"{type(context).__name__}.capture()"
    if not isinstance(tenant, str):
        raise ThreadContextError(f"{name} returned {tenant!r:.80}, which is not a text.")
    if len(tenant) > MAX_LENGTH or "\0" in tenant:
        raise ThreadContextError(
            f"{name} returned {tenant!r:.40}, of {len(tenant)} characters; a tenant has at most "
            f"{MAX_LENGTH} characters, and no NUL."
        )
    # The tenants of requests are not recorded, since a client may choose them.
    if request is None and len(_seen) < MAX_SEEN:
        _seen.add(tenant)
    return tenant


MAX_SEEN: Final = 1000
"""The maximum number of tenants that wait for a process to compare their component rows."""
_seen: set[str] = set()


def take_seen_tenants() -> list[str]:
    """Return the tenants that threads of this process have had since the last call.

    These are the tenants of the admin, of signals and of commands, not those of requests to a
    server.
    """
    if thread_context() is None:
        return [""]
    tenants: list[str] = []
    with suppress(KeyError):
        while True:
            tenants.append(_seen.pop())
    return [tenant for tenant in tenants if tenant]


def knows_tenant() -> bool:
    """Return whether ``current_tenant`` is known here; if not, log the reason once.

    For receivers of signals, which must not fail because the tenant is unknown.
    """
    try:
        current_tenant()
    except (ThreadContextError, SynchronousOnlyOperation) as exc:
        if not _is_unknown.is_set():
            # Logged once, since the function may be called for each of a million rows.
            _is_unknown.set()
            logger.warning("Subscribers are not notified of changes: %s", exc)
        return False
    _is_unknown.clear()
    return True


_is_unknown = threading.Event()


class _Bound:
    """A context manager that sets the tenant; not a generator, which is slower on each request."""

    __slots__ = ("_tenant", "_token")

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant

    def __enter__(self) -> None:
        self._token = _tenant.set(self._tenant)

    def __exit__(self, *exc: object) -> None:
        _tenant.reset(self._token)


def as_tenant(tenant: str) -> AbstractContextManager[None]:
    """Return a context manager that sets the current tenant, without entering it in this thread.

    Queries of this thread see the same rows as before; work in other threads and notifications
    are for the tenant. The name is not checked. Do not yield within the block.
    """
    return _Bound(tenant)


def run_as_tenant(function: Callable[[], T]) -> T:
    """Enter the current tenant in this thread, if there is one, and return the function's result.

    Raises:
        TenantUnavailable: the site's class could not enter the tenant.
        Exception: the function raises it.
    """
    context = thread_context()
    if context is None or not (tenant := _tenant.get()):
        return function()
    with ExitStack() as stack:
        try:
            stack.enter_context(context.enter(tenant))
        except Exception as exc:
            logger.exception("The tenant %r could not be entered.", tenant)
            raise TenantUnavailable("The request failed because of a server error.") from exc
        return function()


def of_tenant(model: type[M], using: str | None = None) -> QuerySet[M]:
    """Return the rows of the current tenant in a database; all rows on a site without tenants."""
    rows = model._default_manager.using(using)
    return rows if thread_context() is None else rows.filter(tenant=current_tenant())


def by_tenant(key: str) -> str:
    """Return a key for a cache, a counter or a signature that no other tenant uses."""
    if thread_context() is None:
        return key
    tenant = current_tenant()
    return f"{key}\0{tenant}" if tenant else key


class DjangoTenants(ThreadContext):
    """The schemas of django-tenants 3 and 4: the tenant is the name of its schema.

    On mounts without the site's middleware, ``TenantMainMiddleware``, or the site's subclass of it,
    determines the tenant of a request.
    """

    def capture(self, request: HttpRequest | None) -> str:
        """Return the name of the schema."""
        if request is None:
            return current_schema()
        if not hasattr(request, "tenant"):
            middleware = tenant_middleware()
            if middleware is None:
                raise Http404("No request has a tenant, since the site has no middleware for it.")
            current: Any = connection
            urlconf, previous = get_urlconf(), current.tenant
            try:
                refusal = middleware(HttpResponse).process_request(request)
            finally:
                set_urlconf(urlconf)
                current.set_tenant(previous)
            if refusal is not None:
                raise Http404("There is no such tenant.")
        tenant = getattr(request, "tenant", None)
        return current_schema() if tenant is None else str(tenant.schema_name)

    @contextmanager
    def enter(self, tenant: str) -> Iterator[None]:
        """Set the tenant of this thread's connection.

        Raises:
            DoesNotExist: the tenant model has no row with this schema name.
        """
        from django_tenants.utils import get_tenant_model, schema_context, tenant_context

        # PostgreSQL ignores a schema that does not exist, and would use the shared tables.
        with schema_context(_shared_schema()):
            if tenant == _shared_schema():
                yield
                return
            row = get_tenant_model()._default_manager.get(schema_name=tenant)
        with tenant_context(row):
            yield


@cache
def tenant_middleware() -> Any:
    """Return the middleware class of django-tenants in ``MIDDLEWARE``, ``None`` without any."""
    from django_tenants.middleware.main import TenantMainMiddleware

    for path in django_settings.MIDDLEWARE:
        middleware = import_string(path)
        if isinstance(middleware, type) and issubclass(middleware, TenantMainMiddleware):
            return middleware
    return None


def is_shared(tenant: str) -> bool:
    """Return whether the tenant is empty, or names the schema that all tenants share."""
    is_schema = isinstance(thread_context(), DjangoTenants)
    return not tenant or (is_schema and tenant == _shared_schema())


def current_schema() -> str:
    """Return the schema that the connection of this thread is in; empty without schemas."""
    return str(getattr(connection, "schema_name", None) or "")


def _shared_schema() -> str:
    return str(getattr(django_settings, "PUBLIC_SCHEMA_NAME", "public"))


# Users of tenants ---------------------------------------------------------------------------------


@cache
def user_middleware() -> str:
    """Return the path of the middleware that takes the tenant from the session's user, or ``""``.

    Such middleware runs before the caller of a request with a token is known.
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


def has_tenant_users() -> bool:
    """Return whether each tenant has its own table of users.

    Call it in the thread of a request, since a database router may depend on the tenant.
    """
    return thread_context() is not None and is_tenant_app(get_user_model()._meta.app_config.name)


def is_tenant_app(name: str) -> bool:
    """Return whether each tenant has its own tables for the models of an app.

    If tenants are schemas, the settings list their apps. Otherwise the tables belong to a tenant
    if they are in another database than the tables of this package, which all tenants share.
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
    """Return the apps that the settings list for tenants, ``None`` without such settings."""
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
    return frozenset(AppConfig.create(app).name for app_list in listed for app in app_list)


@on_settings_change()
def _clear_caches() -> None:
    for cached in (thread_context, user_middleware, _tenant_apps, tenant_middleware):
        cached.cache_clear()
