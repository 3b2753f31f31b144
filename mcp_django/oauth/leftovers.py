"""Rows of the token endpoint that nobody needs any more, for the sweep (``store/pruning.py``).

Of the toolkit's own rows only those that are for a server of this site: what a site's other clients
leave behind is swept up by the toolkit's ``cleartokens``, when the site wants it.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from oauth2_provider.models import (
    get_access_token_model,
    get_grant_model,
    get_refresh_token_model,
    refresh_token_expire_timedelta,
)

from mcp_django.oauth.models import RedeemedCode, RefreshReplay, UsedAssertion
from mcp_django.storage.databases import before

# A code is good for a minute, and told from one that nobody ever had for a day.
REDEEMED_SECONDS = 24 * 3600
_UNBOUND: list[str] = []


def due() -> dict[str, QuerySet[Any]]:
    """What may be deleted now, by name; each a table of its own."""
    used_up = {
        "redeemed_codes": RedeemedCode._default_manager.filter(
            redeemed_at__lt=before(REDEEMED_SECONDS)
        ),
        "refresh_replays": RefreshReplay._default_manager.filter(expires_at__lt=Now()),
        "used_assertions": UsedAssertion._default_manager.filter(expires_at__lt=Now()),
    }
    return used_up | _of_the_toolkit()


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
