"""Authentication by Django REST framework's authentication classes, as the site configures them."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.conf import settings
from django.db.models import Model
from django.utils.module_loading import import_string
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.settings import api_settings

from mcp_django.auth.backends import BaseBackend, get_backend
from mcp_django.auth.credentials import Credentials, copy_request
from mcp_django.auth.principal import Principal, principal_for
from mcp_django.conf import get_settings
from mcp_django.exceptions import AuthenticationRequired


class DRFBackend(BaseBackend):
    """Uses the classes of ``MCP_DJANGO["DRF"]`` in their order, else REST framework's default."""

    def authenticate(self, credentials: Credentials) -> Principal | None:
        """Return the user that REST framework authenticates, ``None`` if there is none.

        A class for the OAuth toolkit's tokens accepts all of them, whatever resource they were
        issued for; the ``oauth`` backend checks such a token again, since it knows the resource.

        Raises:
            AuthenticationRequired: a class rejects the request's credential, or it is an OAuth
                token for another resource.
        """
        authenticators = [cls() for cls in authentication_classes()]
        # A copy, since REST framework sets the user on the request. When a call that waited is
        # authenticated again, the session class would take that user for a browser login.
        received = copy_request(credentials.request())
        request = Request(received, parsers=[_NullParser()], authenticators=authenticators)
        try:
            user = request.user
        except APIException as exc:
            raise AuthenticationRequired(str(exc.detail), error="invalid_token") from exc
        if not (getattr(user, "is_authenticated", False) and user.is_active):
            return None
        if not _is_oauth_token(request.auth):
            return principal_for(user, backend="drf")
        # The backend can be imported only if its app is installed.
        if not apps.is_installed("mcp_django.oauth"):
            raise AuthenticationRequired(
                "OAuth tokens are accepted only if 'mcp_django.oauth' is in INSTALLED_APPS.",
                error="invalid_token",
            )
        principal = get_backend("oauth").authenticate(credentials)
        if principal is None:
            raise AuthenticationRequired(
                "The token is unknown, expired or revoked.", error="invalid_token"
            )
        return principal


class _NullParser(BaseParser):
    """Does not parse the body: it is not a form in which a class could look for a CSRF token."""

    media_type = "*/*"

    def parse(self, stream: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {}


def authentication_classes() -> list[type[BaseAuthentication]]:
    """Return the authentication classes in use.

    Raises:
        ImportError: ``MCP_DJANGO["DRF"]`` names something that does not exist.
    """
    names = get_settings().drf
    if names:
        return [import_string(name) for name in names]
    default: Any = api_settings.DEFAULT_AUTHENTICATION_CLASSES  # already imported
    return list(default)


def _is_oauth_token(auth: Any) -> bool:
    """Return whether the credential is a row of the OAuth toolkit, without importing it."""
    if not isinstance(auth, Model) or not apps.is_installed("oauth2_provider"):
        return False
    default = "oauth2_provider.AccessToken"
    return isinstance(
        auth, apps.get_model(getattr(settings, "OAUTH2_PROVIDER_ACCESS_TOKEN_MODEL", default))
    )
