"""Bind this site's tokens to the upstream access they depend on, and revoke them with it.

MCP 2025-03-26, "Session Binding Requirements". The query that finds an access token also returns
whether its upstream access is fresh, so a call needs no further query. Only stale access is loaded,
checked at the provider or renewed. Without a configured provider, nothing is queried.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.views.decorators.debug import sensitive_variables
from oauth2_provider.models import get_refresh_token_model

from mcp_django.auth.endpoints import server_of
from mcp_django.conf import get_settings
from mcp_django.exceptions import AuthenticationRequired, AuthenticationUnavailable
from mcp_django.models import token_digest
from mcp_django.oauth.models import UpstreamBinding, UpstreamGrant
from mcp_django.oauth.responses import OAuthError
from mcp_django.oauth.upstream.conf import UpstreamRefused, UpstreamUnavailable
from mcp_django.oauth.upstream.grants import (
    access_ends_at,
    disconnect_unused,
    fresh_condition,
    live_condition,
    renew_grant,
)

logger = logging.getLogger("mcp_django.security")


def annotate_tokens(tokens: QuerySet[Any], upstream: str) -> QuerySet[Any]:
    """Annotate access tokens for ``check_token``; return them unchanged without a provider.

    ``upstream`` is the provider that the called server needs, empty for none.
    """
    configured = get_settings().oauth.upstream
    if not configured:
        return tokens
    bindings = UpstreamBinding.objects.filter(
        checksum=OuterRef("token_checksum"), grant__provider__in=configured
    )
    annotated: QuerySet[Any] = tokens.annotate(
        stands_on_upstream=Exists(bindings.filter(grant__provider=upstream)),
        has_stale_upstream=Exists(bindings.exclude(fresh_condition("grant__"))),
    )
    return annotated


def check_token(token: Any, upstream: str) -> None:
    """Check the upstream access of a token from ``annotate_tokens``; no query if it is fresh.

    Raises:
        AuthenticationRequired: if the access has ended (401, ``invalid_token``); the token and its
            family are then revoked as well.
        AuthenticationUnavailable: if the provider does not respond, or is not configured (503); the
            token stays valid.
    """
    configured = get_settings().oauth.upstream
    if upstream and upstream not in configured:
        logger.error("A server needs the provider %r, which is not in UPSTREAM.", upstream)
        raise AuthenticationUnavailable("The provider that this server needs is not configured.")
    if not configured:
        return
    if upstream and not token.stands_on_upstream:
        raise _access_ended()
    if not token.has_stale_upstream:
        return
    try:
        _renew_all(UpstreamBinding.objects.filter(checksum=token.token_checksum))
    except UpstreamRefused as exc:
        raise _access_ended() from exc
    except UpstreamUnavailable as exc:
        raise AuthenticationUnavailable(
            "The provider that this server needs does not respond. Try again in a moment.",
            retry_after=exc.retry_after,
        ) from exc


@sensitive_variables()
def renew_before_refresh(refresh_token: str) -> None:
    """Renew stale upstream access before a refresh token is used, outside of any transaction.

    If the access has ended, the token family is revoked here, so the refresh fails as it does for
    any revoked family. For an unknown token, no request is sent to the provider.

    Raises:
        OAuthError: if the provider does not respond (503, ``temporarily_unavailable``).
    """
    if not get_settings().oauth.upstream:
        return
    checksum = token_digest(refresh_token)
    tokens = get_refresh_token_model()._default_manager.filter(revoked__isnull=True)
    families = tokens.filter(token_checksum=checksum).values("token_family")
    try:
        _renew_all(UpstreamBinding.objects.filter(family__in=families))
    except UpstreamRefused:
        return
    except UpstreamUnavailable as exc:
        raise OAuthError(
            "temporarily_unavailable", status=503, retry_after=exc.retry_after
        ) from exc


def has_live_access(family: uuid.UUID | None) -> bool:
    """Return whether a family's upstream access is live, without a request to the provider."""
    if family is None or not get_settings().oauth.upstream:
        return True
    return (
        not UpstreamBinding.objects.filter(family=family)
        .exclude(live_condition("grant__"))
        .exists()
    )


def missing_provider(user: Any, resources: Iterable[str]) -> str:
    """Return a provider that these resources need and the user has not connected, or ``""``."""
    if not get_settings().oauth.upstream:
        return ""
    names = _providers_for_resources(resources)
    held = UpstreamGrant.objects.filter(live_condition(), user=user, provider__in=names)
    return min(names - set(held.values_list("provider", flat=True)), default="")


def bind_token(token: Any, *, family: uuid.UUID | None = None) -> None:
    """Bind an issued or rotated access token to the upstream access that it depends on.

    ``token`` is the toolkit's saved access token; ``family`` is that of its refresh token. If the
    user has no live access at one of the providers, no binding is created, so the token is not
    valid for any server that needs a provider.
    """
    if not get_settings().oauth.upstream or token.user_id is None:
        return
    names = _providers_for_resources(token.resource)
    grants = list(
        UpstreamGrant.objects.filter(live_condition(), user_id=token.user_id, provider__in=names)
    )
    if len(grants) < len(names):
        grants = []
    if family is not None:
        UpstreamBinding.objects.filter(family=family).delete()
    UpstreamBinding.objects.bulk_create(
        UpstreamBinding(family=family, checksum=token.token_checksum, grant=grant)
        for grant in grants
    )
    ends = [end for grant in grants if (end := access_ends_at(grant)) is not None]
    if ends and min(ends) < token.expires:
        token.expires = min(ends)
        token.save(update_fields=["expires"])


def release_tokens(*, families: Iterable[uuid.UUID] = (), checksums: Iterable[str] = ()) -> None:
    """Disconnect upstream access that depends only on these tokens, which the user revoked.

    Revocation at the provider is best effort. Access that a user connected without a client has no
    bindings and is kept.
    """
    if get_settings().oauth.upstream:
        disconnect_unused(families=tuple(families), checksums=tuple(checksums))


def _renew_all(bindings: QuerySet[UpstreamBinding]) -> None:
    """Renew the stale access of the bindings.

    Raises:
        UpstreamRefused: if any of it has ended.
        UpstreamUnavailable: if a provider does not respond.
    """
    # Grants of a provider that is no longer configured are ignored.
    grants = UpstreamGrant.objects.filter(provider__in=get_settings().oauth.upstream)
    for grant in grants.filter(pk__in=bindings.values("grant_id")):
        renew_grant(grant)


def _providers_for_resources(resources: Iterable[str]) -> set[str]:
    """Return the upstream providers that the servers at these resources need."""
    return {getattr(server_of(resource), "upstream", "") for resource in resources} - {""}


def _access_ended() -> AuthenticationRequired:
    return AuthenticationRequired(
        "The upstream access of this token has ended. Sign in again.", error="invalid_token"
    )
