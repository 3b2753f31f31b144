"""What the authorization server keeps beside the toolkit's own tables.

No foreign key leads to the toolkit's models: they are swappable, and ``makemigrations`` would ask
each site for its own.
"""

from __future__ import annotations

from mcp_django.oauth.models.clients import ClientProfile
from mcp_django.oauth.models.consents import Consent
from mcp_django.oauth.models.replays import RedeemedCode, RefreshReplay, UsedAssertion
from mcp_django.oauth.models.upstream import UpstreamBinding, UpstreamGrant, UpstreamTransaction

__all__ = [
    "ClientProfile",
    "Consent",
    "RedeemedCode",
    "RefreshReplay",
    "UpstreamBinding",
    "UpstreamGrant",
    "UpstreamTransaction",
    "UsedAssertion",
]
