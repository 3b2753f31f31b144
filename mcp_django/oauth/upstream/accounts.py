"""A user's accounts at third parties, as the page of connected assistants lists them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from mcp_django.conf import get_settings
from mcp_django.oauth.models import UpstreamGrant


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One provider of this site, and whether the user has let the site in there."""

    name: str
    label: str
    is_connected: bool


def accounts_of(user: Any) -> list[Account]:
    """An account for each provider; one query, and none where no provider is configured."""
    configured = get_settings().oauth.upstream
    # Without the extra there are no addresses to connect them at; a system check says so.
    if not configured or not find_spec("authlib"):
        return []
    from mcp_django.oauth.upstream.conf import provider_settings
    from mcp_django.oauth.upstream.grants import live

    held = UpstreamGrant.objects.filter(live(), user=user)
    connected = set(held.values_list("provider", flat=True))
    return [
        Account(name=one, label=provider_settings(one).label, is_connected=one in connected)
        for one in configured
    ]
