"""The end of upstream access: what stands on it ends here, and it ends at the provider."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import router, transaction
from django.db.models import Q
from django.views.decorators.debug import sensitive_variables
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from mcp_django.auth.security_log import record
from mcp_django.conf import get_settings
from mcp_django.models import AuthEvent
from mcp_django.oauth.models import UpstreamBinding, UpstreamGrant
from mcp_django.oauth.upstream.errors import UpstreamRefused, UpstreamUnavailable
from mcp_django.oauth.upstream.provider import Provider
from mcp_django.oauth.upstream.sealing import unseal
from mcp_django.storage.revocations import announce_revoked

logger = logging.getLogger("mcp_django.security")


def end(grant: UpstreamGrant, *, reason: str, request: Any = None) -> None:
    """Revoke a grant here, with every token of ours that stands on it; open streams look again."""
    with transaction.atomic(using=_database()):
        bound = list(grant.bindings.values_list("family", "checksum"))
        families = {family for family, _ in bound if family is not None}
        checksums = {checksum for _, checksum in bound}
        for family in families:
            get_refresh_token_model().revoke_family(family)
        get_access_token_model().objects.filter(token_checksum__in=checksums).delete()
        grant.bindings.all().delete()
        UpstreamGrant.objects.filter(pk=grant.pk).update(
            status=UpstreamGrant.Status.REVOKED,
            access_cipher=b"",
            refresh_cipher=None,
            renewing_until=None,
            last_error=reason[:200],
        )
        record(
            AuthEvent.Kind.UPSTREAM,
            request=request,
            user=grant.user,
            provider=grant.provider,
            change="ended",
            reason=reason,
        )
        ended = [f"family:{one}" for one in families] + [f"checksum:{one}" for one in checksums]
        transaction.on_commit(lambda: announce_revoked(*ended), using=_database(), robust=True)


@sensitive_variables()
def disconnect(grant: UpstreamGrant, *, reason: str, request: Any = None) -> None:
    """End a grant here and, as well as it goes, at the provider; within twenty seconds."""
    access, refresh = _opened(grant.access_cipher), _opened(grant.refresh_cipher)
    with transaction.atomic(using=_database()):
        end(grant, reason=reason, request=request)
        try:
            provider = Provider(grant.provider)
        except ImproperlyConfigured:
            # Removed from the settings: it cannot be told, but access still ends here.
            return
        forget = partial(forget_upstream, provider, access, refresh)
        transaction.on_commit(forget, using=_database(), robust=True)


def release(*, families: Sequence[uuid.UUID], checksums: Sequence[str]) -> None:
    """Disconnect the grants on which nothing stands but these tokens, which have ended."""
    ended = Q(family__in=families) | Q(checksum__in=checksums)
    with transaction.atomic(using=_database()):
        grants = list(
            UpstreamGrant.objects.filter(
                bindings__in=UpstreamBinding.objects.filter(ended)
            ).distinct()
        )
        UpstreamBinding.objects.filter(ended).delete()
        for grant in grants:
            if grant.status == UpstreamGrant.Status.LIVE and not _is_stood_on(grant):
                disconnect(grant, reason="the last client was disconnected")


@sensitive_variables()
def forget_upstream(provider: Provider, access: str, refresh: str) -> None:
    """End tokens at the provider. Its failure is logged: here they have ended already."""
    named = [(refresh, "refresh_token"), (access, "access_token")]
    for token, hint in named:
        if token:
            try:
                provider.revoke(token, hint=hint)
            except UpstreamUnavailable as exc:
                logger.warning("Access could not be ended at %r: %s", provider.name, exc)
                return


def _database() -> str:
    """Where grants are, and the tokens that stand on them."""
    return router.db_for_write(UpstreamGrant)


def _is_stood_on(grant: UpstreamGrant) -> bool:
    """Whether a token of ours that still exists stands on it."""
    bound = grant.bindings.values_list("family", "checksum")
    families = {family for family, _ in bound if family is not None}
    checksums = {checksum for _, checksum in bound}
    refreshes = get_refresh_token_model().objects.filter(
        token_family__in=families, revoked__isnull=True
    )
    accesses = get_access_token_model().objects.filter(token_checksum__in=checksums)
    return bool(refreshes.exists() or accesses.exists())


@sensitive_variables()
def _opened(ciphertext: bytes | memoryview | None) -> str:
    if not ciphertext or not get_settings().oauth.field_keys:
        return ""
    try:
        return unseal(ciphertext)
    except UpstreamRefused:
        return ""
