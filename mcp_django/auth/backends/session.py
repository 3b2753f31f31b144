"""The site's own login: the session cookie of a browser, for pages of the site itself.

A browser sends the cookie along whoever asks it to, and the endpoint is exempt from Django's CSRF
check. So whatever changes something has to carry the CSRF token in its header, as a page of this
origin alone can read it, and an ``Origin`` has to be the site's own: origins in ``ALLOWED_ORIGINS``
may call, with a token, and never with a login.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware

from mcp_django.auth.backends.base import BaseBackend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal, principal_for
from mcp_django.auth.resources import origin_of
from mcp_django.exceptions import AuthenticationRequired


class SessionBackend(BaseBackend):
    """Takes the user that is logged in with the request's session cookie."""

    def authenticate(self, credentials: Credentials) -> Principal | None:
        """The logged-in user, ``None`` when nobody is.

        A request with a token speaks for the token's user: a revoked one must not pass because
        the browser happens to be logged in.

        Raises:
            AuthenticationRequired: somebody is logged in, and the request may be another site's.
        """
        if credentials.bearer is not None:
            return None
        request = credentials.request()
        user = _logged_in_user(request)
        if not user.is_authenticated or not user.is_active:
            return None
        if not _is_same_origin(request):
            raise AuthenticationRequired(
                "A login counts for pages of this site itself; send a token."
            )
        if not _has_csrf_token(request):
            raise AuthenticationRequired(
                f"A login needs the CSRF token of its cookie in the header {_csrf_header()}."
            )
        return principal_for(user, backend="session")


def _logged_in_user(request: HttpRequest) -> Any:
    """The request's user, also where no middleware has looked (the raw mount)."""
    if not hasattr(request, "user"):
        request.session = _open_session(request)
        return get_user(request)
    return request.user


def _open_session(request: HttpRequest) -> SessionBase:
    engine = import_module(settings.SESSION_ENGINE)
    store: SessionBase = engine.SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    return store


def _is_same_origin(request: HttpRequest) -> bool:
    """Whether the browser says that a page of this origin asks; a reading one need not say so."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    if site not in {"same-origin", "none"}:
        return False
    origin = request.headers.get("Origin")
    if origin is None:
        return True
    parts = urlsplit(origin_of(request))
    return origin.lower() == f"{parts.scheme}://{parts.netloc}"


class _Check(CsrfViewMiddleware):
    """Django's check, which says why instead of answering."""

    def _reject(self, request: HttpRequest, reason: str) -> HttpResponse:
        return HttpResponse(reason, status=403)


def _has_csrf_token(request: HttpRequest) -> bool:
    check = _Check(lambda request: HttpResponse())
    check.process_request(request)
    return check.process_view(request, _view, (), {}) is None


def _view(request: HttpRequest) -> HttpResponse:
    """Stands for the endpoint, which is exempt from the check: this one is not."""
    return HttpResponse()


def _csrf_header() -> str:
    return settings.CSRF_HEADER_NAME.removeprefix("HTTP_").replace("_", "-").title()
