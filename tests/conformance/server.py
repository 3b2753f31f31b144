"""The server under test: open to everybody, as the suite sends no credentials."""

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny

server = MCPServer(
    "conformance",
    title="Conformance fixture",
    version="1",
    description="One component for each thing that the official conformance suite looks at.",
    permission=AllowAny,
)
