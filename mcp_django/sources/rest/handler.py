"""Runs a REST view below the site's own middleware, as a request from outside would."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.core.signals import setting_changed
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.urls import set_urlconf

from mcp_django.sources.rest.request import RestRequest
from mcp_django.sources.site.handler import SiteHandler, discard_session


class _Failure(HttpResponse):
    """Goes out through the middleware in place of Django's error pages."""

    def __init__(self) -> None:
        super().__init__(status=500)


class RestHandler(SiteHandler):
    """The site's middleware around a view that was chosen already."""

    def resolve_request(self, request: Any) -> Any:
        """The view, with the match that ``reverse`` and versioning look at."""
        if hasattr(request, "urlconf"):
            # That of the host, chosen by a middleware.
            set_urlconf(request.urlconf)
        request.resolver_match = request.place.match
        request.META["HTTP_AUTHORIZATION"] = request.mark
        return request.place.callback, (), dict(request.place.kwargs)

    def _get_response(self, request: Any) -> HttpResponseBase:
        try:
            response = super()._get_response(request)
        except Exception:  # noqa: BLE001 - the site's own view; kept by the request, raised by `run`
            response = _Failure()
        _forget_session(request)
        return response


def _forget_session(request: Any) -> None:
    """A session that the view began is nobody's: its cookie goes nowhere."""
    session = getattr(request, "session", None)
    if session is not None:
        discard_session(request)
        request.session = type(session)()


@cache
def _handler() -> RestHandler:
    return RestHandler()


def _reload(**kwargs: Any) -> None:
    """Middleware keeps what it read of the settings."""
    _handler.cache_clear()


setting_changed.connect(_reload, dispatch_uid="mcp_django.sources.rest.handler")


def run(request: RestRequest) -> HttpResponseBase:
    """The response of the request's view, rendered.

    Raises:
        Exception: whatever the view raised.
    """
    handler: Any = _handler()
    response = handler._middleware_chain(request)
    if isinstance(response, _Failure):
        assert request.failure is not None
        raise request.failure
    assert isinstance(response, HttpResponseBase)
    return response
