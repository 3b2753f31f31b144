"""The MCP section of the admin. Importing this package registers its ``ModelAdmin`` classes."""

from __future__ import annotations

from mcp_django.admin import (  # noqa: F401
    approvals,
    calls,
    charts,
    client_view,
    components,
    exposures,
    prompts,
    servers,
    sessions,
    tasks,
    tokens,
)
from mcp_django.admin.playground import page  # noqa: F401
