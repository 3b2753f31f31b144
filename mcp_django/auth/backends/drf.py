"""Django REST framework's authentication classes, as the site has configured them."""

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
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal, principal_for
from mcp_django.conf import get_settings
from mcp_django.exceptions import AuthenticationRequired


class DRFBackend(BaseBackend):
    """Asks the classes of ``MCP_DJANGO["DRF"]`` in their order, else the framework's own."""

    def authenticate(self, credentials: Credentials) -> Principal | None:
        """The user that REST framework finds, ``None`` when it finds none.

        A class that takes the OAuth toolkit's tokens takes any of them, for whatever they were
        issued; such a token is looked at again by the ``oauth`` backend, which knows for what.

        Raises:
            AuthenticationRequired: a class refuses what the request carries, or it is an OAuth
                token for something else.
        """
        authenticators = [cls() for cls in authentication_classes()]
        request = Request(credentials.request(), parsers=[_Unread()], authenticators=authenticators)
        try:
            user = request.user
        except APIException as exc:
            raise AuthenticationRequired(str(exc.detail), error="invalid_token") from exc
        if not (getattr(user, "is_authenticated", False) and user.is_active):
            return None
        if _is_oauth_token(request.auth):
            return _as_oauth(credentials)
        return principal_for(user, backend="drf")


class _Unread(BaseParser):
    """Leaves the body alone: it is no form, where a class might look for the CSRF token."""

    media_type = "*/*"

    def parse(self, stream: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {}


def authentication_classes() -> list[type[BaseAuthentication]]:
    """The classes that are asked.

    Raises:
        ImportError: ``MCP_DJANGO["DRF"]`` names something that is not there.
    """
    named = get_settings().drf
    if named:
        return [import_string(one) for one in named]
    default: Any = api_settings.DEFAULT_AUTHENTICATION_CLASSES  # imported by then
    return list(default)


def _is_oauth_token(auth: Any) -> bool:
    """Whether the credential is a row of the OAuth toolkit, which is not imported for it."""
    if not isinstance(auth, Model) or not apps.is_installed("oauth2_provider"):
        return False
    default = "oauth2_provider.AccessToken"
    return isinstance(
        auth, apps.get_model(getattr(settings, "OAUTH2_PROVIDER_ACCESS_TOKEN_MODEL", default))
    )


def _as_oauth(credentials: Credentials) -> Principal:
    # A backend is imported only where its app is installed.
    if not apps.is_installed("mcp_django.oauth"):
        raise AuthenticationRequired(
            "OAuth tokens are taken once 'mcp_django.oauth' is in INSTALLED_APPS.",
            error="invalid_token",
        )
    principal = get_backend("oauth").authenticate(credentials)
    if principal is None:
        raise AuthenticationRequired(
            "The token is unknown, expired or revoked.", error="invalid_token"
        )
    return principal
