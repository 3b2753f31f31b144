"""Machine clients: programs that act as a service account, without anybody who signs in.

Only a client that somebody registered by hand, with a grant for it and a ``ClientProfile``, is one;
the user in the toolkit's own row is who owns the registration, and never who the client acts as.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from oauth2_provider.models import get_access_token_model

from mcp_django.auth.endpoints import all_resources, canonical, find_server
from mcp_django.auth.permissions import can_connect
from mcp_django.oauth import scopes
from mcp_django.oauth.families import end_token
from mcp_django.oauth.models import ClientProfile
from mcp_django.oauth.refusals import Refused


def profile_of(client: Any) -> ClientProfile:
    """The profile of a machine client, whose service account is active.

    Raises:
        Refused: the client is none (``unauthorized_client``).
    """
    profile = ClientProfile._default_manager.select_related("service_user").filter(
        client_id=client.client_id
    )
    found = profile.first()
    if (
        client.authorization_grant_type != client.GRANT_CLIENT_CREDENTIALS
        or client.client_type != client.CLIENT_CONFIDENTIAL
        or not scopes.is_manual(client)
        or found is None
        or found.service_user is None
        or not found.service_user.is_active
    ):
        raise Refused("unauthorized_client")
    return found


def resources_for(profile: ClientProfile, request: HttpRequest) -> list[str]:
    """The resources a token is to be good for: those asked for, or the only one there is.

    Raises:
        Refused: one is not allowed, several are possible, or the account may not connect
            (``invalid_target``).
    """
    allowed = {canonical(one) for one in profile.allowed_resources} or {*all_resources(request)}
    asked = request.POST.getlist("resource")
    if not asked:
        asked = [one for one in allowed if one and find_server(one, request)]
        if len(asked) != 1:
            raise Refused("invalid_target", "Send the resource: there is not exactly one.")
    for one in asked:
        server = find_server(one, request)
        if (
            server is None
            or (profile.allowed_resources and one not in allowed)
            or not can_connect(profile.service_user, server, profile.client_id)
        ):
            raise Refused("invalid_target")
    return asked


def scopes_for(
    profile: ClientProfile, client: Any, resources: list[str], request: HttpRequest
) -> list[str]:
    """The scopes of a token: what is asked for as far as it is allowed, all that is without asking.

    Raises:
        Refused: nothing of what is asked for is allowed (``invalid_scope``).
    """
    servers = [server for one in resources if (server := find_server(one, request)) is not None]
    allowed = profile.allowed_scopes or scopes.baseline(servers)
    asked = request.POST.get("scope", "").split() or allowed
    granted = [one for one in scopes.granted(asked, client) if one in allowed]
    if not granted:
        raise Refused("invalid_scope")
    return granted


def end_tokens(client_id: str) -> None:
    """End the tokens that a machine client holds."""
    tokens = get_access_token_model()._default_manager.filter(
        application__client_id=client_id,
        application__authorization_grant_type="client-credentials",
        refresh_token=None,
    )
    for checksum in list(tokens.values_list("token_checksum", flat=True)):
        end_token(checksum)
