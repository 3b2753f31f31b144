"""Client credentials (RFC 6749, section 4.4), which is the extension
``io.modelcontextprotocol/oauth-client-credentials``.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from oauth2_provider.settings import oauth2_settings

from mcp_django.oauth import clients, machines
from mcp_django.oauth.grants.issuing import issue_token, see_upstream


def issue(request: HttpRequest) -> dict[str, Any]:
    """A token for the service account of a machine client.

    Raises:
        Refused: the client is no machine client, or asks for what it may not have.
    """
    client = clients.identify_confidential(request)
    profile = machines.profile_of(client)
    resources = machines.resources_for(profile, request)
    granted = machines.scopes_for(profile, client, resources, request)
    see_upstream(profile.service_user, resources)
    return issue_token(
        request,
        user=profile.service_user,
        client=client,
        scopes=granted,
        resources=resources,
        seconds=int(oauth2_settings.ACCESS_TOKEN_EXPIRE_SECONDS),
        grant="client_credentials",
    )
