"""The demo as an ASGI application, with the fast path for its MCP servers."""

from __future__ import annotations

import os

from mcp_django.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "demo_project.settings")

application = get_asgi_application()
