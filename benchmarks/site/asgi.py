"""One ASGI application with every mount.

``/mcp`` uses the fast handler and ``/raw`` the raw mount. ``/members/mcp`` and
``/members/raw`` are the same with an access token of the site, ``/connected/…`` with an OAuth
token and ``/signed/…`` with a JWT. ``/exposed/mcp`` and ``/exposed/raw`` have generated tools,
``/writing/raw`` has tools that may write, and ``/routed`` is the raw mount in a ``URLRouter``.
``/bare``, ``/view`` and ``/rows`` are for comparison.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.site.settings")

from channels.routing import URLRouter
from django.urls import re_path

from mcp_django.asgi import get_asgi_application

# Sets up Django, which the imports below need.
fast_handler = get_asgi_application()

from benchmarks.site.database import check_rows  # noqa: E402
from benchmarks.site.exposed import exposed  # noqa: E402
from benchmarks.site.issuer import cache_keys  # noqa: E402
from benchmarks.site.mcp import connected, members, server, signed, writing  # noqa: E402
from benchmarks.site.views import bare  # noqa: E402

check_rows()
cache_keys()

ROUTES: dict[str, Any] = {
    "/bare": bare,
    "/raw": server.asgi,
    "/members/raw": members.asgi,
    "/connected/raw": connected.asgi,
    "/signed/raw": signed.asgi,
    "/exposed/raw": exposed.asgi,
    "/writing/raw": writing.asgi,
    "/routed": URLRouter([re_path(r"^routed$", server.asgi)]),
}


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Serve one connection; the fast handler serves every path that is not in ``ROUTES``."""
    await ROUTES.get(scope.get("path", ""), fast_handler)(scope, receive, send)
