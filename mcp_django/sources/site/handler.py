"""The site's middleware and views, run for a call in this thread.

Everything happens in a context of its own, so that the language, the time zone and the URLconf that
a middleware sets end with the call, and a session that a view begins ends with it too. A view that
runs for a call cannot have another one run: a chain of them has no end that anybody sees.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from django.core.handlers.base import BaseHandler
from django.http.response import HttpResponseBase
from django.urls import Resolver404
from django.utils import timezone

from mcp_django.exceptions import ToolError
from mcp_django.sources.site.fresh import FreshRequest

T = TypeVar("T")

_is_inside: ContextVar[bool] = ContextVar("mcp_django.sources.site.is_inside", default=False)


class SiteHandler(BaseHandler):
    """The site's middleware and views; it tells what a view raised from what it answered."""

    def __init__(self) -> None:
        super().__init__()
        self.load_middleware(is_async=False)

    def resolve_request(self, request: Any) -> Any:
        """The view of a request, unless another pattern takes the address first.

        Otherwise a value could be chosen that makes it the address of any page of the site.
        """
        match = super().resolve_request(request)
        if not any(route.leads_to(match) for route in request.routes):
            raise Resolver404({"path": request.path_info})
        return match

    def process_exception_by_middleware(self, exception: Any, request: Any) -> Any:
        """What a middleware answers to an exception; a page about it is none for callers."""
        response: Any = super().process_exception_by_middleware(exception, request)
        request.is_error_page = response is not None and response.status_code >= 500
        return response

    def _get_response(self, request: Any) -> HttpResponseBase:
        try:
            response = super()._get_response(request)  # type: ignore[misc]  # not in the stubs
        except Exception as exc:
            request.failure = exc
            raise
        request.zone = timezone.get_current_timezone()
        if not request.is_error_page:
            request.returned = response
        found: HttpResponseBase = response
        return found


def visit(request: FreshRequest, respond: Callable[[], T]) -> T:
    """What ``respond`` makes of the request, alone: nothing that the site sets outlives it.

    Raises:
        ToolError: a view that runs for a call asks for another one.
    """
    if _is_inside.get():
        raise ToolError(
            f"{request.path} is asked for by a view that itself runs for a call; a view cannot be "
            "called from within another one."
        )
    return copy_context().run(_visit, request, respond)


def _visit(request: FreshRequest, respond: Callable[[], T]) -> T:
    _is_inside.set(True)
    try:
        return respond()
    finally:
        discard_session(request)


def discard_session(request: Any) -> None:
    """Delete the session that somebody began: its cookie goes nowhere."""
    session = getattr(request, "session", None)
    if session is not None and getattr(session, "session_key", None):
        session.delete()


def release(response: HttpResponseBase) -> None:
    """Close the files of a response.

    ``close()`` would also announce the end of a request, at which Django closes connections, those
    in a transaction of our caller included; the MCP request goes on.
    """
    closers = response._resource_closers  # type: ignore[attr-defined]  # not in the stubs
    while closers:
        closers.pop(0)()
    response.closed = True
