"""Middleware as sites write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone

Next = Callable[[HttpRequest], HttpResponse]


def stamp(get_response: Next) -> Next:
    """Set an attribute that views rely on, and leave the time zone of the thread changed."""

    def middleware(request: HttpRequest) -> HttpResponse:
        timezone.activate(ZoneInfo("Asia/Tokyo"))
        request.stamp = "stamped"
        return get_response(request)

    return middleware


def closed(get_response: Next) -> Next:
    """Answer in place of the view."""
    return lambda request: HttpResponse("<p>inner address 10.0.0.7</p>", status=503)


def breaking(get_response: Next) -> Next:
    def middleware(request: HttpRequest) -> HttpResponse:
        raise Http404("tried 10.0.0.7")

    return middleware


class FallbackMiddleware:
    """Serves a page at an address that has no view, as flat pages do."""

    def __init__(self, get_response: Next) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        is_missing = response.status_code == 404 and request.path == "/missing/"
        return HttpResponse("a flat page", content_type="text/plain") if is_missing else response


def by_host(get_response: Next) -> Next:
    """Set another URLconf for one host."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if request.get_host() == "localhost":
            request.urlconf = "tests.integrations.views.other_urls"
        return get_response(request)

    return middleware


def homeward(get_response: Next) -> Next:
    """Redirect responses with status 404 to the home page."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        return HttpResponseRedirect("/") if response.status_code == 404 else response

    return middleware


class _Answering:
    status = 500

    def __init__(self, get_response: Next) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse:
        return HttpResponse(f"about {exception}", status=self.status, content_type="text/plain")


class DebuggingMiddleware(_Answering):
    """Shows details of an exception to every caller."""


class DomainMiddleware(_Answering):
    """Turns an exception of a view into an answer of the site."""

    status = 409


class AsyncOnlyMiddleware:
    sync_capable = False
    async_capable = True

    def __init__(self, get_response: Any) -> None:
        from asgiref.sync import markcoroutinefunction

        self.get_response = get_response
        markcoroutinefunction(self)

    async def __call__(self, request: HttpRequest) -> Any:
        return await self.get_response(request)
