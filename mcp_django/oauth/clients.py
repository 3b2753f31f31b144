"""Which client posts a form, for the grants and endpoints that the toolkit does not serve."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from oauth2_provider.settings import oauth2_settings
from oauthlib.common import Request

from mcp_django.oauth.refusals import Refused


def identify(request: HttpRequest) -> Any:
    """The client of a form: one that has a secret or keys has proven so, a public one is believed.

    Raises:
        Refused: it is unknown, or did not prove who it is (401, ``invalid_client``).
    """
    asked = as_oauthlib(request)
    validator = oauth2_settings.OAUTH2_VALIDATOR_CLASS()
    if validator.client_authentication_required(asked):
        known = validator.authenticate_client(asked)
    else:
        known = validator.authenticate_client_id(asked.client_id, asked)
    if (
        not known
        or asked.client is None
        or asked.client_id not in ("", None, asked.client.client_id)
    ):
        raise Refused.client()
    return asked.client


def identify_confidential(request: HttpRequest) -> Any:
    """The client of a form, which has proven who it is.

    Raises:
        Refused: it is unknown, public, or did not prove who it is.
    """
    client = identify(request)
    if client.client_type != client.CLIENT_CONFIDENTIAL:
        raise Refused.client()
    return client


def as_oauthlib(request: HttpRequest) -> Request:
    """A request as the toolkit's validator takes it."""
    pairs = [(name, value) for name, values in request.POST.lists() for value in values]
    headers = {name: value for name, value in request.META.items() if isinstance(value, str)}
    if request.is_secure():
        headers["X_DJANGO_OAUTH_TOOLKIT_SECURE"] = "1"
    else:
        headers.pop("X_DJANGO_OAUTH_TOOLKIT_SECURE", None)
    return Request(request.path, request.method or "POST", urlencode(pairs), headers)


class HandedOn(HttpRequest):
    """The part of a Django request that the toolkit hands to its validator: the environment."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.META = dict(request.headers)
        self.method = request.http_method

    def _get_scheme(self) -> str:
        # The toolkit says so in a header that it takes from nobody else.
        return "https" if self.META.get("X_DJANGO_OAUTH_TOOLKIT_SECURE") else "http"
