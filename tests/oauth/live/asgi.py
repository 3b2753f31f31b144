"""The live site with the fast ASGI handler."""

from mcp_django.asgi import get_asgi_application

application = get_asgi_application()
