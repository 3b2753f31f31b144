"""Ways to find out who is calling; ``MCP_DJANGO["AUTH"]`` lists the ones in use."""

from __future__ import annotations

from functools import cache

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from mcp_django.auth.backends.base import BaseBackend

SHORT_NAMES = {
    "tokens": "mcp_django.auth.backends.tokens.TokenBackend",
    "session": "mcp_django.auth.backends.session.SessionBackend",
    "drf": "mcp_django.auth.backends.drf.DRFBackend",
}


@cache
def get_backend(name: str) -> BaseBackend:
    """The backend of a short name (``tokens``, ``session``, ``drf``) or a dotted path.

    Raises:
        ImproperlyConfigured: there is no such backend.
    """
    try:
        backend = import_string(SHORT_NAMES.get(name, name))
    except ImportError as exc:
        known = ", ".join(SHORT_NAMES)
        raise ImproperlyConfigured(
            f"AUTH names {name!r}, which cannot be imported ({exc}); "
            f"use {known} or the dotted path of a BaseBackend."
        ) from exc
    if not (isinstance(backend, type) and issubclass(backend, BaseBackend)):
        raise ImproperlyConfigured(f"AUTH names {name!r}, which is no BaseBackend.")
    return backend()
