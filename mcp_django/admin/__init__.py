"""The MCP section of the admin. Importing this package registers its ``ModelAdmin`` classes."""

from __future__ import annotations

from mcp_django.admin import (
    approvals,
    calls,
    charts,
    client_view,
    components,
    exposures,
    playground,
    prompts,
    servers,
    sessions,
    tasks,
    tokens,
)

__all__ = [
    "approvals",
    "calls",
    "charts",
    "client_view",
    "components",
    "exposures",
    "playground",
    "prompts",
    "servers",
    "sessions",
    "tasks",
    "tokens",
]
