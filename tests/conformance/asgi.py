"""The endpoint behind the mount that `MCP_TEST_MOUNT` names."""

import os

import django
from channels.routing import URLRouter
from django.urls import re_path

django.setup()

from django.core.asgi import get_asgi_application as get_django_application  # noqa: E402

from mcp_django.asgi import get_asgi_application  # noqa: E402
from tests.conformance.server import server  # noqa: E402

mounts = {
    "fast": get_asgi_application(),
    "raw": URLRouter([re_path(r"^mcp/?$", server.asgi)]),
    "view": get_django_application(),
}
application = mounts[os.environ["MCP_TEST_MOUNT"]]
