"""Authentication backends, which identify the caller of a request.
``MCP_DJANGO["AUTH"]`` lists the ones in use.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.module_loading import import_string

from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal
from mcp_django.storage.cache import Confirmed

SHORT_NAMES = {
    "oauth": "mcp_django.oauth.backend.OAuthBackend",
    "jwt": "mcp_django.auth.backends.jwt.JWTBackend",
    "introspection": "mcp_django.auth.backends.introspection.IntrospectionBackend",
    "tokens": "mcp_django.auth.backends.site_tokens.TokenBackend",
    "session": "mcp_django.auth.backends.site_tokens.SessionBackend",
    "drf": "mcp_django.auth.backends.drf.DRFBackend",
}

# The extra to install if a backend's library is missing, by the name of the library.
EXTRAS = {"jwt": "jwt", "oauth2_provider": "oauth", "rest_framework": "drf"}

BEARER_BACKENDS = frozenset({"oauth", "jwt", "introspection", "tokens"})
"""Backends that use only the Authorization header, and do nothing without one."""

SESSION_BACKENDS = frozenset({"session", SHORT_NAMES["session"]})
"""The backend that uses only the login cookie of a browser."""


class CallerKey(NamedTuple):
    """A bearer, and everything else that determines which caller it identifies."""

    digest: str
    """The SHA-256 of the bearer."""
    is_site_token: bool
    server: str
    resource: str
    issuer: str
    """The issuer of the tokens of this site."""
    backends: tuple[str, ...]
    alias: str
    """The database of the tokens and users."""


class BaseBackend:
    """Identifies the caller of a request. Runs in a worker thread and may use the database."""

    def prepare(self, key: CallerKey, credentials: Credentials) -> None:
        """Check what ``confirm`` needs besides the database; by default nothing.

        Raises:
            AuthenticationUnavailable: it cannot be checked at the moment.
        """

    def confirm(
        self, keys: Collection[CallerKey], alias: str
    ) -> Mapping[CallerKey, Confirmed[Principal]]:
        """Return the callers of the bearers that are valid now, with a few queries for all.

        ``alias`` is the database to query. Each caller is returned with tags of the rows that it
        depends on, besides its user and its credential. By default no caller is returned, so that
        each request is authenticated.
        """
        return {}

    def why_not_confirmable(self) -> str:
        """Return why callers have to be authenticated on each request; empty if they do not."""
        return ""

    def authenticate(self, credentials: Credentials) -> Principal | None:
        """Return the caller, or ``None`` if the request has no credential for this backend.

        Raises:
            AuthenticationRequired: the request's credential for this backend is not valid.
        """
        return None

    def issuers(self, request: HttpRequest, server: str = "") -> Sequence[str]:
        """Return the issuers of the tokens that this backend accepts on the server of this name.

        They are the ``authorization_servers`` of the endpoint's metadata (RFC 9728). There are none
        by default, so that clients are not sent anywhere for a token. Does not use the database.
        """
        return ()

    def is_current(self, principal: Principal) -> bool:
        """Return whether a principal of this backend is still authorized; checked for open streams.

        By default that is as long as the user is active.
        """
        users = get_user_model()._default_manager.filter(pk=principal.user.pk)
        return any(user.is_active for user in users)


@cache
def get_backend(name: str) -> BaseBackend:
    """Return the backend of a short name (``SHORT_NAMES``) or a dotted path.

    Raises:
        ImproperlyConfigured: the backend does not exist.
    """
    try:
        backend = import_string(SHORT_NAMES.get(name, name))
    except ImportError as exc:
        library = (exc.name or "").partition(".")[0]
        hint = f"use {', '.join(SHORT_NAMES)} or the dotted path of a BaseBackend"
        if isinstance(exc, ModuleNotFoundError) and library in EXTRAS:
            hint = f'pip install "django-mcp-provider[{EXTRAS[library]}]"'
        raise ImproperlyConfigured(
            f"AUTH names {name!r}, which cannot be imported ({exc}); {hint}."
        ) from exc
    if not (isinstance(backend, type) and issubclass(backend, BaseBackend)):
        raise ImproperlyConfigured(f"AUTH names {name!r}, which is not a subclass of BaseBackend.")
    return backend()
