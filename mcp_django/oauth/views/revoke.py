"""The revocation endpoint (RFC 7009)."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.debug import sensitive_variables
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from mcp_django.auth import security_log
from mcp_django.models import AuthEvent
from mcp_django.oauth import clients
from mcp_django.oauth.families import end_family, end_token, family_of
from mcp_django.oauth.refusals import Refused
from mcp_django.oauth.upstream import honoring
from mcp_django.oauth.validator import digest
from mcp_django.oauth.views.endpoint import FormEndpoint


class RevokeView(FormEndpoint):
    """Ends what a client no longer needs: with either token of a sign-in all of that sign-in.

    What the user let the same client do elsewhere, with another sign-in, goes on.
    """

    limit = "revoke"

    def answer(self, request: HttpRequest) -> HttpResponse:
        """An empty answer, whether or not there was such a token (RFC 7009, section 2.2)."""
        token = request.POST.get("token", "")
        if not token:
            raise Refused("invalid_request", "Send token.")
        _end(token, clients.identify(request), request)
        return JsonResponse({})


@sensitive_variables("token", "checksum")
def _end(token: str, client: Any, request: HttpRequest) -> None:
    checksum = digest(token)
    mine = {"token_checksum": checksum, "application": client}
    refresh = get_refresh_token_model()._default_manager.filter(**mine).order_by("-pk").first()
    access = (
        get_access_token_model()._default_manager.select_related("refresh_token").filter(**mine)
    ).first()
    found = refresh or access
    if found is None:
        return
    family = refresh.token_family if refresh is not None else family_of(access)
    if family is not None:
        honoring.release(families=[family])
        ended = end_family(family)
    else:
        honoring.release(checksums=[checksum])
        ended = end_token(checksum)
    if ended:
        security_log.record(
            AuthEvent.Kind.REVOKE,
            request=request,
            user=found.user,
            client_id=client.client_id,
            by="client",
        )
