"""Extensions of authorization that a server advertises (AUT-34): those that are switched on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import apps

from mcp_django.conf import get_settings

CLIENT_CREDENTIALS = "io.modelcontextprotocol/oauth-client-credentials"
ENTERPRISE = "io.modelcontextprotocol/enterprise-managed-authorization"


def advertised(backends: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The extensions of a server with these backends, for its capabilities; often none."""
    if "oauth" not in backends or not apps.is_installed("mcp_django.oauth"):
        return {}
    oauth = get_settings().oauth
    on = {CLIENT_CREDENTIALS: oauth.client_credentials, ENTERPRISE: bool(oauth.trusted_issuers)}
    return {name: {} for name, is_on in on.items() if is_on}
