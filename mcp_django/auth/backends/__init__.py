"""Ways to find out who is calling; ``MCP_DJANGO["AUTH"]`` lists the ones in use."""

from __future__ import annotations

from functools import cache

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from mcp_django.auth.backends.base import BaseBackend

SHORT_NAMES = {
    "oauth": "mcp_django.oauth.backend.OAuthBackend",
    "jwt": "mcp_django.auth.backends.jwt.JWTBackend",
    "introspection": "mcp_django.auth.backends.introspection.IntrospectionBackend",
    "tokens": "mcp_django.auth.backends.tokens.TokenBackend",
    "session": "mcp_django.auth.backends.session.SessionBackend",
    "drf": "mcp_django.auth.backends.drf.DRFBackend",
}

# What to install for a backend whose library is missing, by the name of the library.
EXTRAS = {"jwt": "jwt", "oauth2_provider": "oauth", "rest_framework": "drf"}

BEARER_ONLY = frozenset({"oauth", "jwt", "introspection", "tokens"})
"""Those that look at nothing but the Authorization header, and without one do nothing."""

SESSION = frozenset({"session", SHORT_NAMES["session"]})
"""That which looks at the login cookie of a browser alone."""


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
