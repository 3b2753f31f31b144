"""``MCPClient`` and what tests of a site use with it; ``mcp_django.testing`` is where it lives."""

from __future__ import annotations

from mcp_django.testing import (
    ACCEPT,
    CANCEL,
    DECLINE,
    CallResult,
    ErrorResponse,
    MCPClient,
    ToolFailed,
)

__all__ = ["ACCEPT", "CANCEL", "DECLINE", "CallResult", "ErrorResponse", "MCPClient", "ToolFailed"]
