"""The endpoint as every kind of application serves it."""

import django

django.setup()

from channels.routing import URLRouter  # noqa: E402
from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.urls import re_path  # noqa: E402

from mcp_django.asgi import get_asgi_application as get_fast_application  # noqa: E402
from mcp_django.transports.consumer import MCPConsumer  # noqa: E402
from tests.sites.tenants.mcp import guarded, tenants  # noqa: E402

fast = get_fast_application()
plain = get_asgi_application()
wsgi = get_wsgi_application()
raw = URLRouter([re_path("^mcp", tenants.asgi), re_path("^guarded", guarded.asgi)])
consumer = URLRouter(
    [
        re_path("^mcp", MCPConsumer.as_asgi(server=tenants)),
        re_path("^guarded", MCPConsumer.as_asgi(server=guarded)),
    ]
)
