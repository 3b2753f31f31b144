"""Which backend knows the caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from django.contrib.auth import get_user_model
from django.views.decorators.debug import sensitive_variables

from mcp_django.auth import brute_force, token_cache
from mcp_django.auth.backends import SESSION, get_backend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal, anonymous
from mcp_django.exceptions import AuthenticationRequired


@sensitive_variables("credentials")
def authenticate(names: Sequence[str], credentials: Credentials) -> Principal:
    """The caller of a request; the anonymous principal when no credentials came.

    Raises:
        AuthenticationRequired: credentials came and no backend accepts them. A bad token is
            never treated as no token: its owner has to learn that it does not work.
        TooManyAttempts: too many such credentials came from the same address.
    """
    if credentials.has_token_in_query:
        # It is in the logs of every proxy by now, of which the site should hear.
        brute_force.note_leaked(credentials)
    presented = credentials.bearer is not None
    if not presented and not credentials.has_authorization:
        known = _identify(names, credentials)
        if known is None:
            # A login cookie is a browser's, and no client of MCP can come by one.
            return anonymous(may_sign_in=any(one not in SESSION for one in names))
        brute_force.note_login(credentials.headers, known.user_key)
        return known
    fingerprint = brute_force.check(credentials)
    try:
        identify = partial(_identified, names, credentials)
        principal = token_cache.through(identify, names, credentials)
    except AuthenticationRequired as exc:
        brute_force.note_bad(credentials, fingerprint, reason=exc.error)
        raise
    brute_force.note_good(fingerprint, principal.user_key)
    return principal


def _identified(names: Sequence[str], credentials: Credentials) -> Principal:
    principal = _identify(names, credentials)
    if principal is None:
        raise AuthenticationRequired(
            "The token is unknown, expired or revoked.", error="invalid_token"
        )
    return principal


def _identify(names: Sequence[str], credentials: Credentials) -> Principal | None:
    for name in names:
        principal = get_backend(name).authenticate(credentials)
        if principal is not None:
            return principal
    return None


def refresh(principal: Principal) -> Principal | None:
    """The principal of an open stream as it is now, ``None`` when it would not be let in again.

    The user is read anew, so that permissions that were taken away are gone. Uses the database.
    """
    if not principal.backend:
        return principal
    if not get_backend(principal.backend).is_current(principal):
        return None
    return with_user_anew(principal)


def with_user_anew(principal: Principal) -> Principal | None:
    """The principal with its user as it is now, whose permissions are kept with it; ``None``
    where there is no such user any more. Uses the database.
    """
    if not principal.backend or not principal.is_authenticated:
        return principal
    user = get_user_model()._default_manager.filter(pk=principal.user.pk).first()
    return replace(principal, user=user) if user is not None else None
