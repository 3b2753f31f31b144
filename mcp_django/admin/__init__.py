"""What the site's admin shows of this package."""

from __future__ import annotations

from mcp_django.admin import (
    approvals,
    calls,
    charts,
    components,
    connecting,
    exposures,
    prompts,
    report,
    security,
    seen,
    servers,
    sessions,
    skills,
    tasks,
    tokens,
    trying,
)

__all__ = [
    "approvals",
    "calls",
    "charts",
    "components",
    "connecting",
    "exposures",
    "prompts",
    "report",
    "security",
    "seen",
    "servers",
    "sessions",
    "skills",
    "tasks",
    "tokens",
    "trying",
]
