"""Binds this site's tokens to the upstream access they depend on; they end with it (AUT-31).

The one query that finds an access token also says whether everything it depends on is fresh, so a
call costs no further query; only what is stale is read, asked about or renewed. Where no provider
is configured nothing is asked at all.
"""

from __future__ import annotations

import hashlib
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
from mcp_django.oauth.models import UpstreamBinding, UpstreamGrant
from mcp_django.oauth.responses import Refused
from mcp_django.oauth.upstream.conf import UpstreamRefused, UpstreamUnavailable
from mcp_django.oauth.upstream.grants import end_of, end_released, fresh, live, renew

logger = logging.getLogger("mcp_django.security")


def annotate(tokens: QuerySet[Any], upstream: str) -> QuerySet[Any]:
    """Access tokens with what ``check`` wants to know; unchanged where there is no provider.

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
        has_stale_upstream=Exists(bindings.exclude(fresh("grant__"))),
    )
    return annotated


def check(token: Any, upstream: str) -> None:
    """Let a token of ``annotate`` pass whose upstream access is good; no query where it is fresh.

    Raises:
        AuthenticationRequired: what the token stands on is gone (401, ``invalid_token``); so is the
            token then, with its family.
        AuthenticationUnavailable: the provider cannot be asked now, or is not configured (503); the
            token is kept.
    """
    configured = get_settings().oauth.upstream
    if upstream and upstream not in configured:
        logger.error("A server needs the provider %r, which UPSTREAM does not have.", upstream)
        raise AuthenticationUnavailable("The provider behind this server is not configured.")
    if not configured:
        return
    if upstream and not token.stands_on_upstream:
        raise _gone()
    if not token.has_stale_upstream:
        return
    try:
        _renew_all(UpstreamBinding.objects.filter(checksum=token.token_checksum))
    except UpstreamRefused as exc:
        raise _gone() from exc
    except UpstreamUnavailable as exc:
        raise AuthenticationUnavailable(
            "The provider behind this server does not answer. Try again in a moment.",
            retry_after=exc.retry_after,
        ) from exc


@sensitive_variables()
def look_before_refresh(refresh_token: str) -> None:
    """Look upstream before a refresh token is used, outside of any transaction.

    Where the access is gone the family of the token has ended after this, so the refresh fails as
    that of any other ended family. A made-up token is nobody's, and nothing is asked.

    Raises:
        Refused: the provider cannot be asked now (503, ``temporarily_unavailable``).
    """
    if not get_settings().oauth.upstream:
        return
    checksum = hashlib.sha256(refresh_token.encode("utf-8", "replace")).hexdigest()
    tokens = get_refresh_token_model()._default_manager.filter(revoked__isnull=True)
    families = tokens.filter(token_checksum=checksum).values("token_family")
    try:
        _renew_all(UpstreamBinding.objects.filter(family__in=families))
    except UpstreamRefused:
        return
    except UpstreamUnavailable as exc:
        raise Refused("temporarily_unavailable", status=503, retry_after=exc.retry_after) from exc


def check_for_refresh(family: uuid.UUID | None) -> bool:
    """Whether what a family stands on is live; asks nobody, since it is asked in a transaction."""
    if family is None or not get_settings().oauth.upstream:
        return True
    return not UpstreamBinding.objects.filter(family=family).exclude(live("grant__")).exists()


def missing(user: Any, resources: Iterable[str]) -> str:
    """A provider at which the user has no live access but a token for these needs it, or empty."""
    if not get_settings().oauth.upstream:
        return ""
    names = {name for one in resources if (name := _upstream_of(one))}
    held = UpstreamGrant.objects.filter(live(), user=user, provider__in=names)
    return min(names - set(held.values_list("provider", flat=True)), default="")


def bind(token: Any, *, family: uuid.UUID | None = None) -> None:
    """Tie an access token that was issued or rotated to the upstream access that it stands on.

    ``token`` is the toolkit's access token, saved; ``family`` that of its refresh token. Where the
    user lacks live access to one of the providers there is no binding, so the token opens no server
    that needs any.
    """
    if not get_settings().oauth.upstream or token.user_id is None:
        return
    names = {name for one in token.resource if (name := _upstream_of(one))}
    grants = list(UpstreamGrant.objects.filter(live(), user_id=token.user_id, provider__in=names))
    if len(grants) < len(names):
        grants = []
    if family is not None:
        UpstreamBinding.objects.filter(family=family).delete()
    UpstreamBinding.objects.bulk_create(
        UpstreamBinding(family=family, checksum=token.token_checksum, grant=grant)
        for grant in grants
    )
    ends = [end for grant in grants if (end := end_of(grant)) is not None]
    if ends and min(ends) < token.expires:
        token.expires = min(ends)
        token.save(update_fields=["expires"])


def release(*, families: Iterable[uuid.UUID] = (), checksums: Iterable[str] = ()) -> None:
    """The user ended these tokens: end upstream what no other token stands on, as well as it goes.

    Access that a user connected without a client stands on nothing and is left alone.
    """
    if get_settings().oauth.upstream:
        end_released(families=tuple(families), checksums=tuple(checksums))


def _renew_all(bindings: QuerySet[UpstreamBinding]) -> None:
    """Renew what is stale.

    Raises:
        UpstreamRefused: one of them is gone for good.
        UpstreamUnavailable: a provider cannot be asked now.
    """
    # What a provider granted that the site has done away with holds nothing up.
    grants = UpstreamGrant.objects.filter(provider__in=get_settings().oauth.upstream)
    for grant in grants.filter(pk__in=bindings.values("grant_id")):
        renew(grant)


def _upstream_of(resource: str) -> str:
    """The provider of the server at a resource of this site, empty for none."""
    server = server_of(resource)
    return getattr(server, "upstream", "") if server is not None else ""


def _gone() -> AuthenticationRequired:
    return AuthenticationRequired(
        "The access behind this token has ended. Sign in again.", error="invalid_token"
    )
