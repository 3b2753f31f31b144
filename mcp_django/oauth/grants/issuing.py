"""A single access token, without a refresh token: who holds the grant asks again."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables
from oauth2_provider.models import get_access_token_model, set_token_value

from mcp_django.oauth.refusals import Refused
from mcp_django.oauth.upstream import honoring
from mcp_django.oauth.usage import note_use
from mcp_django.oauth.validator import note_issue, seconds_left


def see_upstream(user: Any, resources: Sequence[str]) -> None:
    """See that a token for these resources would open them: nobody is there to sign in upstream.

    Raises:
        Refused: a server stands on access that the user has not given (``invalid_target``).
    """
    if missing := honoring.missing(user, resources):
        raise Refused(
            "invalid_target",
            f"The server needs the user's account at {missing!r}, which is not connected. "
            "The user connects it on the page of connected assistants.",
        )


@sensitive_variables("value")
def issue_token(
    request: HttpRequest,
    *,
    user: Any,
    client: Any,
    scopes: Sequence[str],
    resources: Sequence[str],
    seconds: int,
    grant: str,
) -> dict[str, Any]:
    """A new access token for some seconds, as the token endpoint answers it."""
    value = secrets.token_urlsafe(32)
    token = get_access_token_model()(
        user=user,
        application=client,
        scope=" ".join(scopes),
        resource=list(resources),
        expires=timezone.now() + timedelta(seconds=seconds),
    )
    set_token_value(token, value)
    token.save()
    honoring.bind(token)
    note_use(client.client_id)
    note_issue(token, request, grant=grant)
    return {
        "access_token": value,
        "token_type": "Bearer",
        "expires_in": seconds_left(token),
        "scope": token.scope,
    }
