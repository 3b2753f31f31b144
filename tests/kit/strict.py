"""Middleware of a site that allows nothing but its own files: no inline script, no inline style."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'"
Answer = Callable[[HttpRequest], HttpResponse]


def strict(get_response: Answer) -> Answer:
    """Return middleware that adds `POLICY` to responses that have no policy of their own."""

    def answer(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response

    return answer
