"""Middleware that sets the tenant of a connection or of a thread, and one that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.db import connection
from django.http import HttpRequest, HttpResponse

_current = threading.local()


def tenant_of(request: HttpRequest) -> str:
    """The tenant is the first part of the host name."""
    return request.get_host().partition(".")[0]


class _Middleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response


class TenantOfConnection(_Middleware):
    """Sets the tenant that the row-level policies of PostgreSQL compare with."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('app.tenant', %s, false)", [tenant_of(request)])
        return self.get_response(request)


class TenantOfThread(_Middleware):
    """Sets the tenant whose database `Router` chooses."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        _current.tenant = tenant_of(request)
        return self.get_response(request)


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
