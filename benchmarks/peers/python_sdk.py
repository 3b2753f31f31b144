"""The official SDK with the two tools, stateless and with JSON responses."""

from __future__ import annotations

from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

server = MCPServer("bench")


@server.tool(structured_output=False)
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(structured_output=False)
def add_sync(a: int, b: int) -> str:
    """Add two numbers in a thread."""
    return str(a + b)


application = server.streamable_http_app(
    stateless_http=True,
    json_response=True,
    transport_security=TransportSecuritySettings(allowed_hosts=["127.0.0.1"]),
)
