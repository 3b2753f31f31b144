"""The ASGI mounts of the test servers, for tests in one process and for real servers."""

from channels.routing import URLRouter
from django.urls import re_path

# Sets Django up first.
from tests.sites.example.asgi import application, plain  # isort: split

from mcp_django import mcp
from mcp_django.transports.consumer import MCPConsumer
from tests.sites.example.mcp import open_server, staff
from tests.transports.http_session.parlor import parlor
from tests.transports.stage import stage

SERVERS = {
    "mcp": mcp,
    "staff/mcp": staff,
    "open/mcp": open_server,
    "stage/mcp": stage,
    "parlor/mcp": parlor,
}

# The endpoint, and the two endpoints of HTTP+SSE.
PLACES = {f"^{path}(?:/sse|/messages)?/?$": server for path, server in SERVERS.items()}

raw = URLRouter([re_path(place, server.asgi) for place, server in PLACES.items()])
consumer = URLRouter(
    [re_path(place, MCPConsumer.as_asgi(server=server)) for place, server in PLACES.items()]
)

MOUNTS = {"view": plain, "lane": application, "raw": raw, "consumer": consumer}
