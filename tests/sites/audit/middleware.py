"""Middleware that sites write for themselves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from reversion.middleware import RevisionMiddleware

_local = threading.local()


class ViewRevisionMiddleware(RevisionMiddleware):
    """Opens a revision for each request except those of MCP, whose functions have their own."""

    def request_creates_revision(self, request: HttpRequest) -> bool:
        return super().request_creates_revision(request) and not request.path.endswith("/mcp")


class LateUserMiddleware:
    """Keeps the request, whose user is read when a row is saved."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        _local.request = request
        try:
            return self.get_response(request)
        finally:
            _local.request = None


def late_user() -> Any:
    """Return the user of the request of this thread, `None` if there is none."""
    user = getattr(getattr(_local, "request", None), "user", None)
    return user if user is not None and user.is_authenticated else None
