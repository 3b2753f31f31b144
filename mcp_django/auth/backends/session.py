"""The site's own login: the session cookie of a browser on the same site.

The endpoint is exempt from Django's CSRF check, so this backend relies on two things that every
mount does first: a foreign ``Origin`` is refused, and a body that is not declared as JSON is
refused, which no cross-site form can declare without a preflight.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest

from mcp_django.auth.backends.base import BaseBackend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal, principal_for


class SessionBackend(BaseBackend):
    """Takes the user that is logged in with the request's session cookie."""

    def authenticate(self, credentials: Credentials) -> Principal | None:
        """The logged-in user, ``None`` when nobody is.

        A request with a token speaks for the token's user: a revoked one must not pass because
        the browser happens to be logged in.
        """
        if credentials.bearer is not None:
            return None
        user = _logged_in_user(credentials.request())
        if not user.is_authenticated or not user.is_active:
            return None
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
