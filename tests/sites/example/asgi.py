"""The example site as ASGI applications, for tests that start a real server."""

import os

import django
from channels.routing import URLRouter
from django.urls import re_path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from django.core.asgi import get_asgi_application as get_django_application  # noqa: E402

from mcp_django import mcp  # noqa: E402
from mcp_django.asgi import get_asgi_application  # noqa: E402
from mcp_django.transports.consumer import MCPConsumer  # noqa: E402
from tests.sites.example.mcp import open_server  # noqa: E402

plain = get_django_application()
application = get_asgi_application()
raw = URLRouter(
    [
        re_path(r"^mcp/?$", mcp.asgi),
        re_path(r"^open/mcp/?$", open_server.asgi),
    ]
)
consumer = URLRouter(
    [
        re_path(r"^mcp/?$", MCPConsumer.as_asgi(server=mcp)),
        re_path(r"^open/mcp/?$", MCPConsumer.as_asgi(server=open_server)),
    ]
)
