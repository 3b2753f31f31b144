"""A site's own way to identify callers: by a header with the name of a user."""

from __future__ import annotations

from django.contrib.auth import get_user_model

from mcp_django.auth.backends import BaseBackend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal, principal_for


class ByHeader(BaseBackend):
    """Looks the user up in the tenant of the request."""

    def authenticate(self, credentials: Credentials) -> Principal | None:
        name = credentials.headers.get("x-user")
        if name is None:
            return None
        user = get_user_model().objects.get(username=name)
        return principal_for(user, backend="tests.sites.tenants.callers.ByHeader")
