"""ASGI application of the demo; its MCP servers use the fast ASGI handler."""

from __future__ import annotations

import os

from mcp_django.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "demo_project.settings")

application = get_asgi_application()
