"""django-mcpz with the middleware of ``startproject``, for ASGI and WSGI."""

from __future__ import annotations

import django
import msgspec
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.urls import path

settings.configure(
    SECRET_KEY="only-for-benchmarks-and-long-enough-to-sign-with",
    ALLOWED_HOSTS=["localhost", "127.0.0.1", "[::1]"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=[
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "django.contrib.messages",
    ],
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
    ],
)
django.setup()

from django_mcpz.server import MCPServer, Text, public  # noqa: E402

server = MCPServer(name="bench", version="1", instructions="", auth=public)


class Numbers(msgspec.Struct):
    """The numbers to add."""

    a: int
    b: int


@server.tool(name="add_sync", description="Add two numbers.", read_only=True)
def add_sync(request: object, params: Numbers) -> Text:
    """Add two numbers; tools of django-mcpz are synchronous."""
    return Text(str(params.a + params.b))


urlpatterns = [path("mcp", server)]
application = get_asgi_application()
wsgi = get_wsgi_application()
