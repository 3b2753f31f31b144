"""Upstream access in the database: whether it is fresh, how it is renewed, and how it ends.

One process renews a grant and the others wait, on any database: the process that moves
``renewing_until`` into the future by one conditional update has the lease. No transaction and no
lock of the database is held while the provider is asked, and what it answers is committed at
once.

The library that asks a provider is an extra of its own, so it is imported only where one is asked.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router, transaction
from django.db.models import Q
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from mcp_django.auth.security_log import record
from mcp_django.conf import get_settings
from mcp_django.models import AuthEvent
from mcp_django.oauth.models import UpstreamBinding, UpstreamGrant
from mcp_django.oauth.upstream.conf import (
    RETRY_SECONDS,
    UpstreamRefused,
    UpstreamUnavailable,
    provider_settings,
)
from mcp_django.storage.revocations import announce_revoked

if TYPE_CHECKING:
    from mcp_django.oauth.upstream.provider import Provider, Tokens

# A token that is about to expire is renewed before the call that uses it.
MARGIN_SECONDS = 30
# Longer than the two requests of a renewal may take together.
LEASE_SECONDS = 30
WAIT_SECONDS = 15
LOOK_SECONDS = 0.05


def live(prefix: str = "") -> Q:
    """Grants that were not revoked and whose user signed in recently enough."""
    oldest = timezone.now() - timedelta(seconds=get_settings().oauth.upstream_max_age)
    return Q(**{f"{prefix}status": UpstreamGrant.Status.LIVE, f"{prefix}authorized_at__gt": oldest})


def fresh(prefix: str = "") -> Q:
    """Live grants that nothing has to be asked about."""
    now = timezone.now()
    margin = now + timedelta(seconds=MARGIN_SECONDS)
    unexpired = Q(**{f"{prefix}expires_at": None}) | Q(**{f"{prefix}expires_at__gt": margin})
    checked = Q(pk__in=[])
    for name in get_settings().oauth.upstream:
        provider = provider_settings(name)
        same = Q(**{f"{prefix}provider": name})
        if provider.probe:
            oldest = now - timedelta(seconds=provider.probe_seconds)
            same &= Q(**{f"{prefix}checked_at__gt": oldest})
        checked |= same
    return live(prefix) & unexpired & checked


def end_of(grant: UpstreamGrant) -> datetime | None:
    """When the access ends whatever is done; ``None`` where nobody knows."""
    ends = [grant.refresh_expires_at] if grant.refresh_cipher else [grant.expires_at]
    if grant.authorized_at is not None:
        ends.append(grant.authorized_at + timedelta(seconds=get_settings().oauth.upstream_max_age))
    known = [one for one in ends if one is not None]
    return min(known, default=None)


def live_grant(user: Any, provider: str) -> UpstreamGrant | None:
    """The live access of a user at a provider."""
    return UpstreamGrant.objects.filter(live(), user=user, provider=provider).first()


@sensitive_variables()
def keep(user: Any, provider: str, tokens: Tokens, claims: Any) -> UpstreamGrant:
    """Store what a user has given us access to; it replaces what he gave before.

    Tokens of ours that stand on another account of his are ended: they were issued for that one.
    """
    settings = provider_settings(provider)
    subject, now = str(claims.get("sub", ""))[:255], timezone.now()
    before = UpstreamGrant.objects.filter(user=user, provider=provider).first()
    if before is not None and before.subject and before.subject != subject:
        end(before, reason="another account")
    grant, _ = UpstreamGrant.objects.update_or_create(
        user=user,
        provider=provider,
        defaults={
            "issuer": settings.issuer[:255],
            "subject": subject,
            "session_id": str(claims.get("sid", ""))[:255],
            "scopes": list(settings.scopes if tokens.scopes is None else tokens.scopes),
            "access_cipher": seal(tokens.access_token),
            "refresh_cipher": seal(tokens.refresh_token) if tokens.refresh_token else None,
            "expires_at": tokens.expires_at,
            "refresh_expires_at": tokens.refresh_expires_at,
            "status": UpstreamGrant.Status.LIVE,
            "checked_at": now,
            "authorized_at": now,
            "renewing_until": None,
            "last_error": "",
        },
    )
    return grant


def renew(grant: UpstreamGrant) -> UpstreamGrant:
    """The grant, fresh; at once where it is.

    Raises:
        UpstreamRefused: the access is gone. The grant is revoked, and every token of ours that
            stands on it has ended.
        UpstreamUnavailable: the provider does not answer; nothing has changed.
    """
    if _is_fresh(grant.pk):
        return grant
    # What is ended or rotated here has to stay so.
    is_within = transaction.get_connection(router.db_for_write(UpstreamGrant)).in_atomic_block
    return outside(lambda: _renew(grant.pk)) if is_within else _renew(grant.pk)


def _is_fresh(pk: int) -> bool:
    return UpstreamGrant.objects.filter(fresh(), pk=pk).exists()


def _renew(pk: int) -> UpstreamGrant:
    deadline = time.monotonic() + WAIT_SECONDS
    while not _take_lease(pk):
        grant = _look(pk)
        if grant.status != UpstreamGrant.Status.LIVE:
            raise UpstreamRefused("The access was revoked.")
        if _is_fresh(pk):
            return grant
        if grant.last_error or time.monotonic() > deadline:
            raise UpstreamUnavailable("The provider has just not answered.")
        time.sleep(LOOK_SECONDS)
    # Somebody else may have renewed it before the lease was ours.
    grant = _look(pk)
    try:
        if not _is_fresh(pk):
            _bring_up_to_date(grant)
    except UpstreamRefused:
        end(grant, reason="refused upstream")
        raise
    except UpstreamUnavailable as exc:
        # Whoever waits is told so, and for a moment nobody tries again.
        until = timezone.now() + timedelta(seconds=RETRY_SECONDS)
        UpstreamGrant.objects.filter(pk=pk).update(renewing_until=until, last_error=str(exc)[:200])
        raise
    UpstreamGrant.objects.filter(pk=pk).update(renewing_until=None)
    return _look(pk)


def _take_lease(pk: int) -> bool:
    now = timezone.now()
    free = Q(renewing_until=None) | Q(renewing_until__lte=now)
    rows = UpstreamGrant.objects.filter(free, pk=pk)
    return rows.update(renewing_until=now + timedelta(seconds=LEASE_SECONDS), last_error="") == 1


def _look(pk: int) -> UpstreamGrant:
    grant = UpstreamGrant.objects.filter(pk=pk).first()
    if grant is None:
        raise UpstreamRefused("The access was removed.")
    return grant


@sensitive_variables()
def _bring_up_to_date(grant: UpstreamGrant) -> None:
    """Refresh what has expired, ask about the rest.

    Raises:
        UpstreamRefused: the access is gone.
        UpstreamUnavailable: the provider does not answer.
    """
    if not UpstreamGrant.objects.filter(live(), pk=grant.pk).exists():
        raise UpstreamRefused("The access was revoked, or is too old.")
    provider, now = _provider_of(grant), timezone.now()
    margin = timedelta(seconds=MARGIN_SECONDS if grant.refresh_cipher else 0)
    is_over = grant.expires_at is not None and grant.expires_at <= now + margin
    if not is_over and provider.probe(unseal(grant.access_cipher)):
        UpstreamGrant.objects.filter(pk=grant.pk).update(checked_at=timezone.now())
        return
    if not grant.refresh_cipher:
        raise UpstreamRefused("The access has expired and cannot be renewed.")
    _write(grant, provider, provider.refresh(unseal(grant.refresh_cipher)))


def _provider_of(grant: UpstreamGrant) -> Provider:
    """The provider of a grant.

    Raises:
        ImproperlyConfigured: the site has done away with it.
    """
    from mcp_django.oauth.upstream.provider import Provider

    return Provider(grant.provider)


@sensitive_variables()
def _write(grant: UpstreamGrant, provider: Provider, tokens: Tokens) -> None:
    changes: dict[str, Any] = {
        "access_cipher": seal(tokens.access_token),
        "expires_at": tokens.expires_at,
        "checked_at": timezone.now(),
    }
    # A provider that does not rotate sends none, or the old one.
    if tokens.refresh_token:
        changes["refresh_cipher"] = seal(tokens.refresh_token)
        changes["refresh_expires_at"] = tokens.refresh_expires_at or grant.refresh_expires_at
    if tokens.scopes is not None:
        changes["scopes"] = list(tokens.scopes)
    rows = UpstreamGrant.objects.filter(pk=grant.pk, status=UpstreamGrant.Status.LIVE)
    if not rows.update(**changes):
        # It was disconnected in the meantime, and is not to live on upstream.
        _forget_upstream(provider, tokens.access_token, tokens.refresh_token)
        raise UpstreamRefused("The access was revoked.")


# Encryption of upstream tokens --------------------------------------------------------------------

# What a provider issued is encrypted under ``OAUTH["FIELD_KEYS"]``. These keys are apart from
# ``SECRET_KEY``, since they are rotated for other reasons: the first one encrypts, all of them
# decrypt. A row that none of them opens is as good as revoked.


@sensitive_variables()
def seal(plaintext: str) -> bytes:
    """The text, encrypted and authenticated."""
    return _keys().encrypt(plaintext.encode())


@sensitive_variables()
def unseal(ciphertext: bytes | memoryview) -> str:
    """What was sealed.

    Raises:
        UpstreamRefused: no key in force opens it.
    """
    try:
        return _keys().decrypt(bytes(ciphertext)).decode()
    except InvalidToken:
        raise UpstreamRefused("No key of FIELD_KEYS opens what is stored.") from None


def reseal(ciphertext: bytes | memoryview) -> bytes:
    """The same, under the first key.

    Raises:
        UpstreamRefused: no key in force opens it.
    """
    try:
        return _keys().rotate(bytes(ciphertext))
    except InvalidToken:
        raise UpstreamRefused("No key of FIELD_KEYS opens what is stored.") from None


def _keys() -> MultiFernet:
    return MultiFernet([Fernet(key) for key in get_settings().oauth.field_keys])


# Work outside the caller's transaction ------------------------------------------------------------

# It has to be committed whatever becomes of the transaction around it. A provider that rotates
# refresh tokens has forgotten the old one by the time that transaction could be rolled back, and
# a read-only tool may not write at all.

# More than waiting for a renewal and doing one may take.
MAX_SECONDS = 45
T = TypeVar("T")


def outside(work: Callable[[], T]) -> T:
    """What the work returns, done in a thread that has database connections of its own.

    Raises:
        UpstreamUnavailable: it is not done within 45 seconds.
    """
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as exc:  # noqa: BLE001 - raised again where it is waited for
            failed.append(exc)
        finally:
            connections.close_all()

    thread = Thread(target=run, name="mcp-upstream", daemon=True)
    thread.start()
    thread.join(MAX_SECONDS)
    if thread.is_alive():
        # It waits for a row that the transaction around us has locked.
        raise UpstreamUnavailable("The database is busy.")
    if failed:
        raise failed[0]
    return done[0]


# The end of upstream access -----------------------------------------------------------------------

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
            provider = _provider_of(grant)
        except ImproperlyConfigured:
            # Removed from the settings: it cannot be told, but access still ends here.
            return
        forget = partial(_forget_upstream, provider, access, refresh)
        transaction.on_commit(forget, using=_database(), robust=True)


def end_released(*, families: Sequence[uuid.UUID], checksums: Sequence[str]) -> None:
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
def _forget_upstream(provider: Provider, access: str, refresh: str) -> None:
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
