"""The endpoint of `tests.transports.http_session.logged` as a worker process serves it.

With `MCP_TEST_PRELOAD` the process that imports it has served a call before it forks.
"""

import os

import django

django.setup()

from mcp_django.asgi import get_asgi_application  # noqa: E402
from mcp_django.storage.call_rows import call_log  # noqa: E402
from mcp_django.test import MCPClient  # noqa: E402
from tests.transports.http_session.logged import server  # noqa: E402

if os.environ.get("MCP_TEST_PRELOAD"):
    MCPClient(server=server, transport="http").call_tool("write", {"name": "preloaded"})
    call_log.flush()

application = get_asgi_application()
