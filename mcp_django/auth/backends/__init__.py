"""Authentication backends: ways to find out who is calling.

``MCP_DJANGO["AUTH"]`` lists the ones in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.module_loading import import_string

from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal

SHORT_NAMES = {
    "oauth": "mcp_django.oauth.backend.OAuthBackend",
    "jwt": "mcp_django.auth.backends.jwt.JWTBackend",
    "introspection": "mcp_django.auth.backends.introspection.IntrospectionBackend",
    "tokens": "mcp_django.auth.backends.site_tokens.TokenBackend",
    "session": "mcp_django.auth.backends.site_tokens.SessionBackend",
    "drf": "mcp_django.auth.backends.drf.DRFBackend",
}

# What to install for a backend whose library is missing, by the name of the library.
EXTRAS = {"jwt": "jwt", "oauth2_provider": "oauth", "rest_framework": "drf"}

BEARER_ONLY = frozenset({"oauth", "jwt", "introspection", "tokens"})
"""Those that look at nothing but the Authorization header, and without one do nothing."""

SESSION = frozenset({"session", SHORT_NAMES["session"]})
"""That which looks at the login cookie of a browser alone."""


class BaseBackend:
    """Finds the caller of a request. Runs in a worker thread and may use the database."""

    def authenticate(self, credentials: Credentials) -> Principal | None:
        """The caller, or ``None`` when the request carries nothing this backend looks at.

        Raises:
            AuthenticationRequired: it carries something of this backend's that does not hold.
        """
        return None

    def issuers(self, request: HttpRequest, server: str = "") -> Sequence[str]:
        """Who issues the tokens that this backend takes on the server of this name.

        They are the ``authorization_servers`` of the endpoint's metadata (RFC 9728). None, unless a
        backend knows better: then no client is sent anywhere for a token. Uses no database.
        """
        return ()

    def is_current(self, principal: Principal) -> bool:
        """Whether a principal of this backend would be let in again; open streams ask this.

        Unless a backend knows better: as long as the user is active.
        """
        users = get_user_model()._default_manager.filter(pk=principal.user.pk)
        return any(user.is_active for user in users)


@cache
def get_backend(name: str) -> BaseBackend:
    """The backend of a short name (``SHORT_NAMES``) or a dotted path.

    Raises:
        ImproperlyConfigured: there is no such backend.
    """
    try:
        backend = import_string(SHORT_NAMES.get(name, name))
    except ImportError as exc:
        raise ImproperlyConfigured(
            f"AUTH names {name!r}, which cannot be imported ({exc}); {_remedy(exc)}."
        ) from exc
    if not (isinstance(backend, type) and issubclass(backend, BaseBackend)):
        raise ImproperlyConfigured(f"AUTH names {name!r}, which is no BaseBackend.")
    return backend()


def _remedy(exc: ImportError) -> str:
    library = (exc.name or "").partition(".")[0]
    if isinstance(exc, ModuleNotFoundError) and library in EXTRAS:
        return f'pip install "django-mcp-provider[{EXTRAS[library]}]"'
    return f"use {', '.join(SHORT_NAMES)} or the dotted path of a BaseBackend"
