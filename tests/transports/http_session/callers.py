"""Callers that a test declares."""

from __future__ import annotations

from django.contrib.auth.models import User

from mcp_django.auth.backends import BaseBackend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal, principal_for


class Anybody(BaseBackend):
    """Authenticates every caller as the first user in the database."""

    def authenticate(self, credentials: Credentials) -> Principal | None:
        return principal_for(User.objects.first())
