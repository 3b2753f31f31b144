"""Which backend knows the caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from django.contrib.auth import get_user_model

from mcp_django.auth.backends import get_backend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal, anonymous
from mcp_django.exceptions import AuthenticationRequired


def authenticate(names: Sequence[str], credentials: Credentials) -> Principal:
    """The caller of a request; the anonymous principal when no credentials came.

    Raises:
        AuthenticationRequired: credentials came and no backend accepts them. A bad token is
            never treated as no token: its owner has to learn that it does not work.
    """
    presented = credentials.bearer is not None
    for name in names:
        principal = get_backend(name).authenticate(credentials)
        if principal is not None:
            return principal
    if presented or credentials.has_authorization:
        raise AuthenticationRequired(
            "The token is unknown, expired or revoked.", error="invalid_token"
        )
    return anonymous()


def refresh(principal: Principal) -> Principal | None:
    """The principal of an open stream as it is now, ``None`` when it would not be let in again.

    The user is read anew, so that permissions that were taken away are gone. Uses the database.
    """
    if not principal.backend:
        return principal
    if not get_backend(principal.backend).is_current(principal):
        return None
    user = get_user_model()._default_manager.filter(pk=principal.user.pk).first()
    return replace(principal, user=user) if user is not None else None
