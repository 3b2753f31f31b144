"""The live site with the fast way to its endpoints."""

from __future__ import annotations

from mcp_django.asgi import get_asgi_application

application = get_asgi_application()
