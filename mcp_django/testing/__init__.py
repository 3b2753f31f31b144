"""``MCPClient``: a test client for a site's tools, resources and prompts, without a network.

    client = MCPClient(user=user)
    assert client.call_tool("takings", {"day": "2026-03-01"}).structured == {...}

It supports every revision and uses the same runtime as real clients, including permissions. The
pytest fixture ``mcp_client`` creates clients.
"""

from __future__ import annotations

from mcp_django.testing.answers import (
    ACCEPT,
    CANCEL,
    DECLINE,
    CallResult,
    ErrorResponse,
    ToolFailed,
)
from mcp_django.testing.client import MCPClient

__all__ = ["ACCEPT", "CANCEL", "DECLINE", "CallResult", "ErrorResponse", "MCPClient", "ToolFailed"]
