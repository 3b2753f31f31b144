"""Endpoints that pages of any origin may call, since no cookie counts there (CORS)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.views.decorators.csrf import csrf_exempt

View = Callable[..., HttpResponseBase]
# What the official clients send while they discover and register.
REQUEST_HEADERS = (
    "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, "
    "Mcp-Name, Last-Event-ID"
)
MAX_AGE_SECONDS = 600


def open_to_browsers(*methods: str) -> Callable[[View], View]:
    """Let pages of any origin call a view by these methods, without cookies; refuse other methods.

    Preflights are answered here. A refused method gets 405 with ``Allow`` and a JSON error.
    """
    allowed = ", ".join((*methods, "OPTIONS"))

    def decorate(view: View) -> View:
        @csrf_exempt
        @login_not_required
        @wraps(view)
        def opened(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if request.method == "OPTIONS":
                response: HttpResponseBase = HttpResponse(status=204)
            elif request.method in methods:
                response = view(request, *args, **kwargs)
            else:
                response = error("invalid_request", f"Use {allowed}.", status=405)
            if response.status_code in (204, 405):
                response.headers["Allow"] = allowed
            return with_cors(response, allowed)

        return opened

    return decorate


def with_cors(response: HttpResponseBase, methods: str) -> HttpResponseBase:
    """The answer, readable by pages of any origin; never with credentials."""
    response.headers["Access-Control-Allow-Origin"] = "*"
    response.headers["Access-Control-Allow-Methods"] = methods
    response.headers["Access-Control-Allow-Headers"] = REQUEST_HEADERS
    response.headers["Access-Control-Expose-Headers"] = "WWW-Authenticate, Retry-After"
    response.headers["Access-Control-Max-Age"] = str(MAX_AGE_SECONDS)
    return response


def error(code: str, description: str, *, status: int = 400) -> JsonResponse:
    """An OAuth error (RFC 6749, section 5.2) that no cache keeps."""
    response = JsonResponse({"error": code, "error_description": description}, status=status)
    response.headers["Cache-Control"] = "no-store"
    return response
