"""Django REST framework's authentication classes, as the site has configured them."""

from __future__ import annotations

from typing import Any

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.settings import api_settings

from mcp_django.auth.backends.base import BaseBackend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal, principal_for
from mcp_django.exceptions import AuthenticationRequired


class _Unread(BaseParser):
    """Leaves the body alone: it is no form, where a class might look for the CSRF token."""

    media_type = "*/*"

    def parse(self, stream: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {}


class DRFBackend(BaseBackend):
    """Asks ``DEFAULT_AUTHENTICATION_CLASSES`` in their order."""

    def authenticate(self, credentials: Credentials) -> Principal | None:
        """The user that REST framework finds, ``None`` when it finds none."""
        classes: list[type[BaseAuthentication]] = api_settings.DEFAULT_AUTHENTICATION_CLASSES  # type: ignore[assignment]  # imported by then
        authenticators = [cls() for cls in classes]
        request = Request(credentials.request(), parsers=[_Unread()], authenticators=authenticators)
        try:
            user = request.user
        except APIException as exc:
            raise AuthenticationRequired(str(exc.detail), error="invalid_token") from exc
        if not (getattr(user, "is_authenticated", False) and user.is_active):
            return None
        return principal_for(user, backend="drf")
