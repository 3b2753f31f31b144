"""Checks of third parties: whether what is configured and declared can work."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from django.core.checks import CheckMessage, Error

from mcp_django.conf import get_settings
from mcp_django.oauth.checks.readiness import when_ready
from mcp_django.server import all_servers


@when_ready
def check_providers(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E014: a provider, or a key, that cannot be used."""
    configured = get_settings().oauth.upstream
    if not configured:
        return []
    if find_spec("authlib") is None:
        return [
            Error(
                "MCP_DJANGO['OAUTH']['UPSTREAM'] needs a client library that is not installed.",
                hint="pip install 'django-mcp-provider[upstream]'",
                id="mcp_oauth.E014",
            )
        ]
    # An extra of its own.
    from mcp_django.oauth.upstream.conf import problems

    keys = get_settings().oauth.field_keys
    # Their absence is told by E012.
    return [
        Error(what, hint=hint, id="mcp_oauth.E014")
        for what, hint in problems()
        if keys or "FIELD_KEYS" not in what
    ]


@when_ready
def check_servers(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E015: a server stands on a provider that is not configured, so nobody could use it."""
    configured = get_settings().oauth.upstream
    known = ", ".join(map(repr, configured))
    return [
        Error(
            f"The server {server.name!r} has upstream={server.upstream!r}, which "
            "MCP_DJANGO['OAUTH']['UPSTREAM'] does not have.",
            hint=f"Configure it{known and f', or use one of: {known}'}.",
            id="mcp_oauth.E015",
        )
        for server in all_servers()
        if server.upstream and server.upstream not in configured
    ]
