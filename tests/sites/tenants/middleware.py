"""Middleware that sets the tenant of a connection or of a thread, classes that set it elsewhere,
and middleware that fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse

from mcp_django.tenants import ThreadContext

_current = threading.local()
TENANTS = ("alpha", "beta")


def tenant_of(request: HttpRequest) -> str:
    """Return the tenant, which is the first part of the host name."""
    return request.get_host().partition(".")[0]


class _Middleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response


class TenantOfConnection(_Middleware):
    """Sets the tenant that the row-level policies of PostgreSQL compare with."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        set_tenant(tenant_of(request))
        return self.get_response(request)


class TenantOfThread(_Middleware):
    """Sets the tenant whose database `Router` chooses."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        _current.tenant = tenant_of(request)
        return self.get_response(request)


def set_tenant(tenant: str) -> None:
    """Set what the policies compare with, for this thread's connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('app.tenant', %s, false)", [tenant])


class ConnectionContext(ThreadContext):
    """Enters what `TenantOfConnection` sets."""

    def capture(self, request: HttpRequest | None) -> str:
        if request is not None:
            return known_tenant(request)
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('app.tenant', true)")
            return cursor.fetchone()[0] or ""

    @contextmanager
    def enter(self, tenant: str) -> Iterator[None]:
        set_tenant(tenant)
        try:
            yield
        finally:
            set_tenant("")


class TenantContext(ThreadContext):
    """Enters what `TenantOfThread` sets."""

    def capture(self, request: HttpRequest | None) -> str:
        if request is not None:
            return known_tenant(request)
        return getattr(_current, "tenant", "")

    @contextmanager
    def enter(self, tenant: str) -> Iterator[None]:
        _current.tenant, before = tenant, getattr(_current, "tenant", "")
        try:
            yield
        finally:
            _current.tenant = before


def known_tenant(request: HttpRequest) -> str:
    """Return the tenant of a request.

    Raises:
        Http404: the host name has no known tenant.
    """
    tenant = tenant_of(request)
    if tenant not in TENANTS:
        raise Http404
    return tenant


class FailingAfterwards(_Middleware):
    """Fails once the view has answered, for requests that ask for it."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if "x-fail" in request.headers:
            raise RuntimeError("This middleware fails when the view has answered.")
        return response


class Router:
    """Items are in the database of the thread's tenant, everything else in the default one."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        if model._meta.app_label != "tenants":
            return "default"
        tenant: str = getattr(_current, "tenant", "default")
        return tenant

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return (app_label == "tenants") is (db != "default")
