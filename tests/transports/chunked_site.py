"""A site with an open server and an authorization server, for servers of WSGI and ASGI."""

from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application

wsgi = get_wsgi_application()
asgi = get_asgi_application()

from django.urls import include, path  # noqa: E402

from tests.sites.example.mcp import open_server  # noqa: E402

urlpatterns = [path("mcp", open_server.urls), path("", include("mcp_django.oauth.urls"))]
