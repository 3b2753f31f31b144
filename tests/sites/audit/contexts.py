"""The setting ``AUDIT_CONTEXT`` for a package that mcp_django does not know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from django.http import HttpRequest
from easyaudit.middleware.easyaudit import clear_request, get_current_request, set_current_user

from mcp_django.tenants import ThreadContext


@contextmanager
def easy_audit_context(user: Any, request: HttpRequest | None) -> Iterator[None]:
    """Let django-easy-audit find the caller, also where its middleware does not run."""
    is_open = get_current_request() is not None
    set_current_user(user)
    try:
        yield
    finally:
        if not is_open:
            clear_request()


class NoTenant(ThreadContext):
    """Functions run in the thread of the middleware, and no request has a tenant."""

    def capture(self, request):
        return ""

    def enter(self, tenant):
        return nullcontext()
