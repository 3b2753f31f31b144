"""The token endpoint (RFC 6749, section 3.2; RFC 8707; OAuth 2.1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from oauth2_provider.models import get_grant_model
from oauth2_provider.views import TokenView as ToolkitTokenView

from mcp_django.auth.endpoints import known
from mcp_django.conf import get_settings
from mcp_django.oauth import replaying
from mcp_django.oauth.grants import client_credentials, jwt_bearer
from mcp_django.oauth.refusals import Refused
from mcp_django.oauth.upstream import honoring
from mcp_django.oauth.views.endpoint import FormEndpoint

Grant = Callable[[HttpRequest], dict[str, Any]]


class TokenView(FormEndpoint, ToolkitTokenView):  # type: ignore[misc]  # it has no types
    """Exchanges codes, refresh tokens and, where they are on, what machines and companies have."""

    limit = "token"

    def answer(self, request: HttpRequest) -> HttpResponse:
        """The token of a grant."""
        grant_type = request.POST.get("grant_type", "")
        if not grant_type:
            raise Refused("invalid_request", "Send grant_type.")
        grant = self._grants().get(grant_type)
        if grant is None:
            raise Refused("unsupported_grant_type")
        _name_resources(request)
        return JsonResponse(grant(request))

    def _grants(self) -> Mapping[str, Grant]:
        """The grants in force."""
        settings = get_settings().oauth
        grants: dict[str, Grant] = {
            "authorization_code": self._exchange,
            "refresh_token": self._refresh,
        }
        if settings.client_credentials:
            grants["client_credentials"] = client_credentials.issue
        if settings.trusted_issuers:
            grants[jwt_bearer.GRANT_TYPE] = jwt_bearer.issue
        return grants

    def _exchange(self, request: HttpRequest) -> dict[str, Any]:
        """What the toolkit answers.

        Raises:
            Refused: it answers an error; what it says about it may repeat values, and is dropped.
        """
        try:
            response = self.authorization_flow_token_response(request)
        except get_grant_model().DoesNotExist as exc:
            # The code was used by somebody else, or withdrawn, since the toolkit looked first.
            raise Refused("invalid_grant") from exc
        answer: dict[str, Any] = json.loads(response.content)
        if response.status_code != 200:
            raise Refused(answer.get("error"), status=response.status_code)
        return answer

    def _refresh(self, request: HttpRequest) -> dict[str, Any]:
        # Before the transaction, since what is found to have ended has to stay so.
        honoring.look_before_refresh(request.POST.get("refresh_token", ""))
        return replaying.once(request, self._exchange)


def _name_resources(request: HttpRequest) -> None:
    """Put the canonical names of the resources into the form.

    Raises:
        Refused: one of them is no resource of this site.
    """
    asked = request.POST.getlist("resource")
    if not asked:
        return
    named = known(asked, request)
    if named is None:
        raise Refused("invalid_target")
    form = request.POST.copy()
    form.setlist("resource", named)
    request.POST = form  # type: ignore[assignment]  # a copy that can be written to, as the toolkit reads it
