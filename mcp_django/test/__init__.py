"""``MCPClient``: test a site's tools, resources and prompts in the process, without a network.

    client = MCPClient(user=user)
    assert client.call_tool("takings", {"day": "2026-03-01"}).structured == {...}

It speaks any revision to the same runtime that serves real clients, permissions included. The
pytest fixture ``mcp_client`` makes one.
"""

from __future__ import annotations

from mcp_django.test.answers import ACCEPT, CANCEL, DECLINE, CallResult, ErrorResponse, ToolFailed
from mcp_django.test.client import MCPClient

__all__ = ["ACCEPT", "CANCEL", "DECLINE", "CallResult", "ErrorResponse", "MCPClient", "ToolFailed"]
