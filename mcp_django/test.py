"""``MCPClient`` and the names that tests use with it, imported from ``mcp_django.testing``."""

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
