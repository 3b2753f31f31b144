"""Expired rows and unused clients of the authorization server, for the cleanup of the site.

``storage.cleanup`` deletes them. Of the toolkit's own rows only those are listed that are for a
server of this site: the toolkit's ``cleartokens`` deletes what a site's other clients leave
behind, when the site wants it.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
    refresh_token_expire_timedelta,
)

from mcp_django.oauth.models import (
    ClientProfile,
    RedeemedCode,
    RefreshReplay,
    UpstreamBinding,
    UpstreamTransaction,
    UsedAssertion,
)
from mcp_django.storage.databases import before

# A code is good for a minute, and told from one that nobody ever had for a day.
REDEEMED_SECONDS = 24 * 3600
_UNBOUND: list[str] = []


def due() -> dict[str, QuerySet[Any]]:
    """What may be deleted now, by name; each a table of its own."""
    return {"clients": _unused_clients(), **_used_up(), **_of_the_toolkit(), **_upstream()}


def _used_up() -> dict[str, QuerySet[Any]]:
    return {
        "redeemed_codes": RedeemedCode._default_manager.filter(
            redeemed_at__lt=before(REDEEMED_SECONDS)
        ),
        "refresh_replays": RefreshReplay._default_manager.filter(expires_at__lt=Now()),
        "used_assertions": UsedAssertion._default_manager.filter(expires_at__lt=Now()),
    }


def _of_the_toolkit() -> dict[str, QuerySet[Any]]:
    expired = Q(expires__lt=Now()) & ~Q(resource=_UNBOUND)
    found = {
        # An expired access token that still carries a refresh token goes with that one.
        "codes": get_grant_model()._default_manager.filter(expired),
        "access_tokens": get_access_token_model()._default_manager.filter(
            expired, refresh_token__isnull=True
        ),
    }
    lifetime = refresh_token_expire_timedelta()
    if lifetime is not None:
        since = before(lifetime.total_seconds())
        # A refresh token that was replaced is kept as long as it could have lived, so that its
        # reuse is noticed. One whose access token is gone cannot be used at all.
        over = (
            Q(revoked__lt=since)
            | Q(revoked=None, access_token__expires__lt=since)
            | Q(revoked=None, access_token__isnull=True)
        )
        found["refresh_tokens"] = get_refresh_token_model()._default_manager.filter(
            over & ~Q(resource=_UNBOUND)
        )
    return found


def _upstream() -> dict[str, QuerySet[Any]]:
    access = get_access_token_model().objects.filter(token_checksum=OuterRef("checksum"))
    refresh = get_refresh_token_model().objects.filter(
        token_family=OuterRef("family"), revoked__isnull=True
    )
    return {
        "upstream_transactions": UpstreamTransaction.objects.filter(expires_at__lt=Now()),
        "upstream_bindings": UpstreamBinding.objects.exclude(Exists(access)).exclude(
            Exists(refresh)
        ),
    }


# Unused clients -----------------------------------------------------------------------------------

# Hosts register a new client for each connection, and forget the old one.

UNUSED_SECONDS = 24 * 3600
IDLE_SECONDS = 90 * 24 * 3600


def never_used_clients() -> QuerySet[Any]:
    """Clients that no token was ever issued to, and that no user is letting in at the moment."""
    found: QuerySet[Any] = get_application_model()._default_manager.filter(_Uses().never())
    return found


def _unused_clients() -> QuerySet[Any]:
    """Clients that registered themselves and got no token in a day, or none for 90 days.

    A client registered by hand is never among them. A document that is deleted here is fetched
    again when its client comes back.
    """
    model = get_application_model()
    sources = model.RegistrationSource
    since = before(IDLE_SECONDS)
    of = _Uses()
    idle = (
        Q(created__lt=since)
        & ~Exists(of.tokens.filter(Q(created__gte=since) | Q(expires__gt=Now())))
        & ~Exists(of.refreshes.filter(updated__gte=since))
        & ~Exists(of.grants)
        & ~Exists(of.profiles.filter(last_used_at__gte=since))
    )
    found: QuerySet[Any] = model._default_manager.filter(
        (Q(created__lt=before(UNUSED_SECONDS)) & of.never()) | idle,
        registration_source__in=[sources.DCR, sources.CIMD],
    )
    return found


class _Uses:
    """What the use of a client leaves, within a query of clients."""

    def __init__(self) -> None:
        mine = Q(application=OuterRef("pk"))
        self.tokens = get_access_token_model()._default_manager.filter(mine)
        self.refreshes = get_refresh_token_model()._default_manager.filter(mine)
        self.grants = get_grant_model()._default_manager.filter(mine, expires__gt=Now())
        self.profiles = ClientProfile._default_manager.filter(client_id=OuterRef("client_id"))

    def never(self) -> Q:
        """Nothing at all."""
        return (
            ~Exists(self.tokens)
            & ~Exists(self.refreshes)
            & ~Exists(self.grants)
            & ~Exists(self.profiles.filter(last_used_at__isnull=False))
        )
