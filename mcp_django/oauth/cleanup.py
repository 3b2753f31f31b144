"""Querysets of expired rows and unused clients of the authorization server.

``storage.cleanup`` deletes them. Rows of the toolkit are listed only if they are bound to an MCP
server; the toolkit's ``cleartokens`` command deletes the rows of the site's other clients.
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
from mcp_django.storage.databases import seconds_ago

# A code is valid for a minute; its reuse is detected for a day.
REDEEMED_SECONDS = 24 * 3600
_UNBOUND: list[str] = []


def expired_rows() -> dict[str, QuerySet[Any]]:
    """Return the rows that may be deleted now, by name; each queryset has its own table."""
    redeemed_since = seconds_ago(REDEEMED_SECONDS)
    access = get_access_token_model().objects.filter(token_checksum=OuterRef("checksum"))
    refresh = get_refresh_token_model().objects.filter(
        token_family=OuterRef("family"), revoked__isnull=True
    )
    expired = Q(expires__lt=Now()) & ~Q(resource=_UNBOUND)
    querysets: dict[str, QuerySet[Any]] = {
        "clients": _unused_clients(),
        "redeemed_codes": RedeemedCode.objects.filter(redeemed_at__lt=redeemed_since),
        "refresh_replays": RefreshReplay.objects.filter(expires_at__lt=Now()),
        "used_assertions": UsedAssertion.objects.filter(expires_at__lt=Now()),
        # An expired access token with a refresh token is deleted with the refresh token.
        "codes": get_grant_model()._default_manager.filter(expired),
        "access_tokens": get_access_token_model()._default_manager.filter(
            expired, refresh_token__isnull=True
        ),
    }
    lifetime = refresh_token_expire_timedelta()
    if lifetime is not None:
        since = seconds_ago(lifetime.total_seconds())
        # A rotated refresh token is kept for its full lifetime, so that its reuse is detected. A
        # refresh token without an access token cannot be used.
        over = (
            Q(revoked__lt=since)
            | Q(revoked=None, access_token__expires__lt=since)
            | Q(revoked=None, access_token__isnull=True)
        )
        querysets["refresh_tokens"] = get_refresh_token_model()._default_manager.filter(
            over & ~Q(resource=_UNBOUND)
        )
    return querysets | {
        "upstream_transactions": UpstreamTransaction.objects.filter(expires_at__lt=Now()),
        "upstream_bindings": UpstreamBinding.objects.exclude(Exists(access) | Exists(refresh)),
    }


# Some assistants register a new client for each connection, and forget the old one.

UNUSED_SECONDS = 24 * 3600
IDLE_SECONDS = 90 * 24 * 3600


def never_used_clients() -> QuerySet[Any]:
    """Return clients that never got a token and have no pending authorization code."""
    clients: QuerySet[Any] = get_application_model()._default_manager.filter(
        _ClientUses().never_used()
    )
    return clients


def _unused_clients() -> QuerySet[Any]:
    """Return self-registered clients without any token after a day, or unused for 90 days.

    Manually registered clients are excluded. The metadata document of a deleted client is fetched
    again when the client returns.
    """
    model = get_application_model()
    sources = model.RegistrationSource
    since = seconds_ago(IDLE_SECONDS)
    uses = _ClientUses()
    idle = (
        Q(created__lt=since)
        & ~Exists(uses.tokens.filter(Q(created__gte=since) | Q(expires__gt=Now())))
        & ~Exists(uses.refreshes.filter(updated__gte=since))
        & ~Exists(uses.grants)
        & ~Exists(uses.profiles.filter(last_used_at__gte=since))
    )
    clients: QuerySet[Any] = model._default_manager.filter(
        (Q(created__lt=seconds_ago(UNUSED_SECONDS)) & uses.never_used()) | idle,
        registration_source__in=[sources.DCR, sources.CIMD],
    )
    return clients


class _ClientUses:
    """Subqueries that find what a client has used, for a query of clients."""

    def __init__(self) -> None:
        mine = Q(application=OuterRef("pk"))
        self.tokens = get_access_token_model()._default_manager.filter(mine)
        self.refreshes = get_refresh_token_model()._default_manager.filter(mine)
        self.grants = get_grant_model()._default_manager.filter(mine, expires__gt=Now())
        self.profiles = ClientProfile._default_manager.filter(client_id=OuterRef("client_id"))

    def never_used(self) -> Q:
        """Return the condition that a client was never used."""
        return (
            ~Exists(self.tokens)
            & ~Exists(self.refreshes)
            & ~Exists(self.grants)
            & ~Exists(self.profiles.filter(last_used_at__isnull=False))
        )
