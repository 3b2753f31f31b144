"""A call of a view: a fresh request through the site's own middleware, and what came back.

What the view raises is raised here, so no error page of Django's is ever an answer.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from django.core.signals import setting_changed
from django.http import Http404
from django.http.response import HttpResponseBase
from django.urls import Resolver404

from mcp_django.core.context import Context
from mcp_django.sources.site.answers import Answer, read_answer
from mcp_django.sources.site.fresh import FreshRequest, Sending, fresh_request
from mcp_django.sources.site.handler import SiteHandler, release, visit


@cache
def _handler() -> SiteHandler:
    return SiteHandler()


def _reload(**kwargs: Any) -> None:
    """Middleware keeps what it read of the settings."""
    _handler.cache_clear()


setting_changed.connect(_reload, dispatch_uid="mcp_django.sources.views")


def call(ctx: Context, sending: Sending) -> Answer:
    """Send a request to the site as the caller.

    Raises:
        ToolError: a view that runs for a call asks for another one.
        Exception: whatever the view raised.
    """
    request = fresh_request(ctx, sending)
    return visit(request, partial(_call, ctx, request))


def _call(ctx: Context, request: FreshRequest) -> Answer:
    response = _handler().get_response(request)
    try:
        _raise_failure(request, response)
        return read_answer(request, response, is_over=lambda: ctx.cancelled)
    finally:
        release(response)


def _raise_failure(request: FreshRequest, response: HttpResponseBase) -> None:
    """Raise what the view raised, unless a middleware found a better answer (a flat page).

    A redirect is no better one: Django itself guesses another language for what was not found.
    """
    if 200 <= response.status_code < 300:
        return
    if isinstance(request.failure, Resolver404) or _has_found_nothing(request.returned):
        # The text of the one is the list of every pattern that was tried.
        raise Http404("Not found.") from request.failure
    if request.failure is not None:
        raise request.failure


def _has_found_nothing(response: HttpResponseBase | None) -> bool:
    return response is not None and response.status_code in {404, 410}
