"""Users, clients and tokens, created directly for tests that are about something else."""

from __future__ import annotations

import base64
import hashlib
import secrets
import uuid
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_refresh_token_model,
    set_token_value,
)

ORIGIN = "http://testserver"
RESOURCE = f"{ORIGIN}/mcp"
OTHER_RESOURCE = f"{ORIGIN}/billing/mcp"
REDIRECT = "https://client.example/callback"
SETTINGS = {
    "SCOPES": {
        "mcp": "Use the tools of this site",
        "mcp:write": "Change things",
        "orders:refund": "Refund orders",
    },
    "SCOPE_IMPLIES": {"mcp:write": ["mcp"]},
}


def make_user(username: str = "ada", **more: Any) -> Any:
    """Create a user whose password is the username."""
    return get_user_model().objects.create_user(username, password=username, **more)


def make_app(**more: Any) -> Any:
    """Create an application: by default, a public client that registered itself."""
    values = {
        "name": "Example Client",
        "redirect_uris": REDIRECT,
        "client_type": "public",
        "authorization_grant_type": "authorization-code",
        "registration_source": "dcr",
    }
    return get_application_model().objects.create(**(values | more))


def make_token(
    user: Any,
    app: Any,
    *,
    scope: str = "mcp",
    resource: tuple[str, ...] = (RESOURCE,),
    seconds: int = 3600,
    refresh: bool = True,
) -> str:
    """An access token with its refresh token, as the token endpoint stores them; its plaintext."""
    plaintext = secrets.token_urlsafe(32)
    token = get_access_token_model()(
        user=user,
        application=app,
        scope=scope,
        resource=list(resource),
        expires=timezone.now() + timedelta(seconds=seconds),
    )
    set_token_value(token, plaintext)
    token.save()
    if refresh:
        second = get_refresh_token_model()(
            user=user, application=app, access_token=token, resource=list(resource)
        )
        set_token_value(second, secrets.token_urlsafe(32))
        second.token_family = uuid.uuid4()
        second.save()
    return plaintext


def pkce() -> tuple[str, str]:
    """Return a verifier and its S256 challenge (RFC 7636)."""
    verifier = secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    return verifier, base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
