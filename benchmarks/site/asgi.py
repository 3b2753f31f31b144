"""One ASGI application with every mount.

``/mcp`` uses the fast handler and ``/raw`` the raw mount. ``/members/mcp`` and ``/members/raw`` are
the same with an access token, and ``/writing/raw`` has a tool that may write. ``/bare``,
``/bare/rows`` and the paths below ``/floor`` are for comparison.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.site.settings")

from mcp_django.asgi import get_asgi_application

# Sets up Django, which the imports below need.
fast_handler = get_asgi_application()

from benchmarks.site.database import check_rows  # noqa: E402
from benchmarks.site.floor import bare, bare_rows  # noqa: E402
from benchmarks.site.mcp import members, server, writing  # noqa: E402

check_rows()

ROUTES: dict[str, Any] = {
    "/bare": bare,
    "/bare/rows": bare_rows,
    "/raw": server.asgi,
    "/members/raw": members.asgi,
    "/writing/raw": writing.asgi,
}


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Serve one connection; the fast handler serves every path that is not in ``ROUTES``."""
    await ROUTES.get(scope.get("path", ""), fast_handler)(scope, receive, send)
