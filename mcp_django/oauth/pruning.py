"""Clients that nobody uses: hosts register a new one for each connection, and forget the old."""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)

from mcp_django.oauth import leftovers
from mcp_django.oauth.models import ClientProfile
from mcp_django.oauth.upstream import pruning as upstream
from mcp_django.storage.databases import before

UNUSED_SECONDS = 24 * 3600
IDLE_SECONDS = 90 * 24 * 3600


def due() -> dict[str, QuerySet[Any]]:
    """What may be deleted now, by name; each a table of its own."""
    return {"clients": unused_clients(), **leftovers.due(), **upstream.due()}


def unused_clients() -> QuerySet[Any]:
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


def never_used_clients() -> QuerySet[Any]:
    """Clients that no token was ever issued to, and that no user is letting in at the moment."""
    found: QuerySet[Any] = get_application_model()._default_manager.filter(_Uses().never())
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
