"""A replacement for Django's ``get_asgi_application``, with a fast handler for MCP endpoints.

    from mcp_django.asgi import get_asgi_application

    application = get_asgi_application()

It can also be used as the ``"http"`` entry of a ``ProtocolTypeRouter``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application as get_django_application
from django.core.handlers.asgi import get_script_prefix
from django.urls import Resolver404, resolve
from django.utils import translation
from django.utils.module_loading import import_string

from mcp_django.process import on_settings_change
from mcp_django.transports.asgi_handler import FastASGIHandler
from mcp_django.transports.outcome import Send
from mcp_django.transports.request_checks import Receive, Scope, set_no_delay

# The size of the cache of resolved paths; requests for many different paths only cause misses.
PATH_CACHE_SIZE = 1024
PATH_CACHE_MAX_LENGTH = 256


class Application:
    """Dispatches each request to the fast ASGI handler (``FastASGIHandler``) or to Django."""

    def __init__(self, django: Any, handler: FastASGIHandler | None) -> None:
        self._django = django
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        set_no_delay(send)
        view = None
        if self._handler is not None and scope["type"] == "http":
            prefix = get_script_prefix(scope).rstrip("/")
            view = find_endpoint(scope["path"].removeprefix(prefix))
        if self._handler is not None and view is not None:
            await self._handler(scope, receive, send, view)
        else:
            await self._django(scope, receive, send)


def get_asgi_application() -> Application:
    """Return Django's ASGI application, with a fast handler for the MCP endpoints of the URLconf.

    If a middleware cannot run synchronously, Django's own handler serves all requests, which is
    slower.
    """
    django = get_django_application()
    return Application(django, None if async_only_middleware() else FastASGIHandler())


def async_only_middleware() -> list[str]:
    """Return the middleware in ``MIDDLEWARE`` that is not ``sync_capable``."""
    return [
        path
        for path in settings.MIDDLEWARE
        if not getattr(import_string(path), "sync_capable", True)
    ]


def find_endpoint(path: str) -> Any:
    """Return the view of the MCP endpoint at a path, ``None`` if the path is not an endpoint.

    Language prefixes (``i18n_patterns``) are resolved, too.
    """
    return (
        _resolve_endpoint_cached(path)
        if len(path) <= PATH_CACHE_MAX_LENGTH
        else _resolve_endpoint(path)
    )


def _resolve_endpoint(path: str) -> Any:
    language = translation.get_language_from_path(path) or settings.LANGUAGE_CODE
    with translation.override(language):
        try:
            view = resolve(path).func
        except Resolver404:
            return None
    return view if hasattr(view, "mcp_server") else None


_resolve_endpoint_cached = lru_cache(maxsize=PATH_CACHE_SIZE)(_resolve_endpoint)


@on_settings_change("ROOT_URLCONF", "LANGUAGE_CODE", "LANGUAGES", "USE_I18N", "MCP_DJANGO")
def _clear_path_cache() -> None:
    _resolve_endpoint_cached.cache_clear()
