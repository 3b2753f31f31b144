"""The drop-in for Django's ASGI application, which serves the MCP endpoints of the URLconf faster.

    from mcp_django.asgi import get_asgi_application

    application = get_asgi_application()

It is also what the ``"http"`` entry of a ``ProtocolTypeRouter`` takes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application as get_django_application
from django.core.handlers.asgi import get_script_prefix
from django.core.signals import setting_changed
from django.urls import Resolver404, resolve
from django.utils import translation
from django.utils.module_loading import import_string

from mcp_django.transports.asgi_handler import LaneHandler
from mcp_django.transports.request_checks import Receive, Scope, Send, send_at_once

# Paths whose view was looked up; an attacker who asks for many only makes us look again.
REMEMBERED_PATHS = 1024
REMEMBERED_LENGTH = 256


class Application:
    """Sends each request to the ``LaneHandler`` or to Django."""

    def __init__(self, django: Any, lane: LaneHandler | None) -> None:
        self._django = django
        self._lane = lane

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        send_at_once(send)
        view = None
        if self._lane is not None and scope["type"] == "http":
            view = endpoint_of(_path_info(scope))
        if self._lane is not None and view is not None:
            await self._lane(scope, receive, send, view)
        else:
            await self._django(scope, receive, send)


def get_asgi_application() -> Application:
    """Django's ASGI application, with a faster way to the MCP endpoints of the URLconf.

    A site with middleware that cannot run synchronously keeps Django's own handler for
    everything: slower, and correct.
    """
    django = get_django_application()
    return Application(django, None if async_only_middleware() else LaneHandler())


def async_only_middleware() -> list[str]:
    """The middleware of the site that has no synchronous form."""
    return [
        path
        for path in settings.MIDDLEWARE
        if not getattr(import_string(path), "sync_capable", True)
    ]


def _path_info(scope: Scope) -> str:
    prefix = get_script_prefix(scope).rstrip("/")
    path: str = scope["path"]
    return path.removeprefix(prefix) if prefix else path


def endpoint_of(path: str) -> Any:
    """The view of the MCP endpoint that the URLconf has for a path, ``None`` where it has none.

    Language prefixes are looked at, too.
    """
    return _remembered(path) if len(path) <= REMEMBERED_LENGTH else _resolved(path)


def _resolved(path: str) -> Any:
    language = translation.get_language_from_path(path) or settings.LANGUAGE_CODE
    with translation.override(language):
        try:
            view = resolve(path).func
        except Resolver404:
            return None
    return view if hasattr(view, "mcp_server") else None


_remembered = lru_cache(maxsize=REMEMBERED_PATHS)(_resolved)


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in {"ROOT_URLCONF", "LANGUAGE_CODE", "LANGUAGES", "USE_I18N", "MCP_DJANGO"}:
        _remembered.cache_clear()


setting_changed.connect(_forget, dispatch_uid="mcp_django.asgi")
