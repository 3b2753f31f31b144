"""Rows of third-party authorization that nobody needs any more."""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.functions import Now
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from mcp_django.oauth.models import UpstreamBinding, UpstreamTransaction


def due() -> dict[str, QuerySet[Any]]:
    """What may be deleted now, by name; each a table of its own."""
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
