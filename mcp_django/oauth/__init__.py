"""OAuth authorization server for MCP clients, on django-oauth-toolkit (RFC 6749, OAuth 2.1)."""

from __future__ import annotations

from mcp_django.oauth.conf import provider_settings

__all__ = ["provider_settings"]
