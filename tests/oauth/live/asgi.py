"""The live site with the fast way to its endpoints."""

from mcp_django.asgi import get_asgi_application

application = get_asgi_application()
