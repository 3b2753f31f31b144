"""FastMCP with the two tools, stateless and with JSON responses."""

from __future__ import annotations

from fastmcp import FastMCP

server = FastMCP("bench")


@server.tool(output_schema=None)
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(output_schema=None)
def add_sync(a: int, b: int) -> str:
    """Add two numbers in a thread."""
    return str(a + b)


application = server.http_app(stateless_http=True, json_response=True, allowed_hosts=["127.0.0.1"])
