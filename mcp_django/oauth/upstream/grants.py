"""Store, check, renew and end upstream access.

One process renews a grant while the others wait, on any database: the process that sets
``renewing_until`` to a future time with one conditional update has the lease. No database
transaction or lock is held during a request to the provider, and the response is committed
immediately.

``provider`` needs Authlib, an optional dependency, so it is imported only when it is used.
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

from mcp_django.auth.authentication import has_shared_oauth
from mcp_django.auth.backends.external import is_external_id
from mcp_django.auth.security_log import record_event
from mcp_django.conf import get_settings
from mcp_django.models import AuthEvent
from mcp_django.oauth.models import UpstreamBinding, UpstreamGrant
from mcp_django.oauth.upstream.conf import (
    RETRY_SECONDS,
    UpstreamRefused,
    UpstreamUnavailable,
    provider_settings,
)
from mcp_django.storage.revocations import notify_revoked

if TYPE_CHECKING:
    from mcp_django.oauth.upstream.provider import Provider, Tokens

# A token that expires sooner is renewed before the call that uses it.
MARGIN_SECONDS = 30
# Longer than the two requests of a renewal can take together.
LEASE_SECONDS = 30
WAIT_SECONDS = 15
POLL_SECONDS = 0.05


def live_condition(prefix: str = "") -> Q:
    """Return the condition for grants that can be used.

    They are not revoked, and the user authorized them within the last ``UPSTREAM_MAX_AGE`` seconds.
    """
    oldest = timezone.now() - timedelta(seconds=get_settings().oauth.upstream_max_age)
    return Q(**{f"{prefix}status": UpstreamGrant.Status.LIVE, f"{prefix}authorized_at__gt": oldest})


def fresh_condition(prefix: str = "") -> Q:
    """Return the condition for live grants that need no request to the provider."""
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
    return live_condition(prefix) & unexpired & checked


def access_ends_at(grant: UpstreamGrant) -> datetime | None:
    """Return when the access ends even if it is renewed, ``None`` if unknown."""
    ends = [grant.refresh_expires_at] if grant.refresh_cipher else [grant.expires_at]
    if grant.authorized_at is not None:
        ends.append(grant.authorized_at + timedelta(seconds=get_settings().oauth.upstream_max_age))
    known_ends = [end for end in ends if end is not None]
    return min(known_ends, default=None)


def live_grant(user: Any, provider: str) -> UpstreamGrant | None:
    """Return the live access of a user at a provider, or ``None``."""
    if has_shared_oauth():
        return None
    return UpstreamGrant.objects.filter(live_condition(), user=user, provider=provider).first()


@sensitive_variables()
def save_grant(user: Any, provider: str, tokens: Tokens, claims: Any) -> UpstreamGrant:
    """Store the access that the user granted at a provider; it replaces an earlier one.

    If the user had connected another account there, the tokens that depend on it are revoked.
    """
    settings = provider_settings(provider)
    account, now = (settings.issuer[:255], claims.get("sub", "")), timezone.now()
    before = UpstreamGrant.objects.filter(user=user, provider=provider).first()
    # Without OpenID Connect, the provider does not identify the account.
    if before is not None and before.subject and (before.issuer, before.subject) != account:
        revoke_grant(before, reason="another account")
    session_id = claims.get("sid")
    grant, _ = UpstreamGrant.objects.update_or_create(
        user=user,
        provider=provider,
        defaults={
            "issuer": account[0],
            "subject": account[1],
            # Without a session id, any logout of the subject at the provider ends the access.
            "session_id": session_id if is_external_id(session_id) else "",
            "scopes": list(settings.scopes if tokens.scopes is None else tokens.scopes),
            "access_cipher": encrypt(tokens.access_token),
            "refresh_cipher": encrypt(tokens.refresh_token) if tokens.refresh_token else None,
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


def renew_grant(grant: UpstreamGrant) -> UpstreamGrant:
    """Renew the grant if it is not fresh, and return it.

    Raises:
        UpstreamRefused: if the access has ended. The grant and every token that depends on it are
            revoked.
        UpstreamUnavailable: if the provider does not respond; nothing has changed.
    """
    if _is_fresh(grant.pk):
        return grant
    # A revocation or rotation must not be rolled back.
    is_within = transaction.get_connection(router.db_for_write(UpstreamGrant)).in_atomic_block
    renew = partial(_renew_with_lease, grant.pk)
    return run_outside_transaction(renew) if is_within else renew()


def _is_fresh(pk: int) -> bool:
    return UpstreamGrant.objects.filter(fresh_condition(), pk=pk).exists()


def _renew_with_lease(pk: int) -> UpstreamGrant:
    deadline = time.monotonic() + WAIT_SECONDS
    while not _take_lease(pk):
        grant = _get_grant(pk)
        if grant.status != UpstreamGrant.Status.LIVE:
            raise UpstreamRefused("The access was revoked.")
        if _is_fresh(pk):
            return grant
        if grant.last_error or time.monotonic() > deadline:
            raise UpstreamUnavailable("The provider did not respond to another request just now.")
        time.sleep(POLL_SECONDS)
    # Another process may have renewed the grant before this process got the lease.
    grant = _get_grant(pk)
    try:
        if not _is_fresh(pk):
            _refresh_or_probe(grant)
    except UpstreamRefused:
        revoke_grant(grant, reason="refused upstream")
        raise
    except UpstreamUnavailable as exc:
        # Waiting processes fail too, and no process tries again for a moment.
        until = timezone.now() + timedelta(seconds=RETRY_SECONDS)
        UpstreamGrant.objects.filter(pk=pk).update(renewing_until=until, last_error=str(exc)[:200])
        raise
    UpstreamGrant.objects.filter(pk=pk).update(renewing_until=None)
    return _get_grant(pk)


def _take_lease(pk: int) -> bool:
    now = timezone.now()
    free = Q(renewing_until=None) | Q(renewing_until__lte=now)
    rows = UpstreamGrant.objects.filter(free, pk=pk)
    return rows.update(renewing_until=now + timedelta(seconds=LEASE_SECONDS), last_error="") == 1


def _get_grant(pk: int) -> UpstreamGrant:
    grant = UpstreamGrant.objects.filter(pk=pk).first()
    if grant is None:
        raise UpstreamRefused("The access was removed.")
    return grant


@sensitive_variables()
def _refresh_or_probe(grant: UpstreamGrant) -> None:
    """Refresh an expired access token, or check at the provider that it is still valid.

    Raises:
        UpstreamRefused: if the access has ended.
        UpstreamUnavailable: if the provider does not respond.
    """
    if not UpstreamGrant.objects.filter(live_condition(), pk=grant.pk).exists():
        raise UpstreamRefused("The access was revoked, or is too old.")
    provider, now = _provider_of(grant), timezone.now()
    margin = timedelta(seconds=MARGIN_SECONDS if grant.refresh_cipher else 0)
    is_over = grant.expires_at is not None and grant.expires_at <= now + margin
    if not is_over and provider.probe(decrypt(grant.access_cipher)):
        UpstreamGrant.objects.filter(pk=grant.pk).update(checked_at=timezone.now())
        return
    if not grant.refresh_cipher:
        raise UpstreamRefused("The access has expired and cannot be renewed.")
    tokens = provider.refresh(decrypt(grant.refresh_cipher))
    changes: dict[str, Any] = {
        "access_cipher": encrypt(tokens.access_token),
        "expires_at": tokens.expires_at,
        "checked_at": timezone.now(),
    }
    # A provider that does not rotate refresh tokens sends none, or the old one.
    if tokens.refresh_token:
        changes["refresh_cipher"] = encrypt(tokens.refresh_token)
        changes["refresh_expires_at"] = tokens.refresh_expires_at or grant.refresh_expires_at
    if tokens.scopes is not None:
        changes["scopes"] = list(tokens.scopes)
    rows = UpstreamGrant.objects.filter(pk=grant.pk, status=UpstreamGrant.Status.LIVE)
    if not rows.update(**changes):
        # The access ended in the meantime, so the new tokens are revoked at the provider too.
        _revoke_at_provider(provider, tokens.access_token, tokens.refresh_token)
        raise UpstreamRefused("The access was revoked.")


def _provider_of(grant: UpstreamGrant) -> Provider:
    """Return the provider of a grant.

    Raises:
        ImproperlyConfigured: if the provider is no longer configured.
    """
    from mcp_django.oauth.upstream.provider import Provider

    return Provider(grant.provider)


# Tokens of a provider are encrypted with ``OAUTH["FIELD_KEYS"]``. These keys are separate from
# ``SECRET_KEY``, since they are rotated for other reasons. The first key encrypts, and every key
# decrypts. A row that no key decrypts counts as revoked.


@sensitive_variables()
def encrypt(plaintext: str) -> bytes:
    """Encrypt and authenticate the text with the first key."""
    return _cipher().encrypt(plaintext.encode())


@sensitive_variables()
def decrypt(ciphertext: bytes | memoryview) -> str:
    """Decrypt the text.

    Raises:
        UpstreamRefused: if none of the keys decrypts it.
    """
    try:
        return _cipher().decrypt(bytes(ciphertext)).decode()
    except InvalidToken:
        raise UpstreamRefused("No key of FIELD_KEYS decrypts the stored value.") from None


def _cipher() -> MultiFernet:
    return MultiFernet([Fernet(key) for key in get_settings().oauth.field_keys])


# A renewal has to be committed even if the caller's transaction is rolled back: a provider that
# rotates refresh tokens no longer accepts the old one. The transaction of a read-only tool cannot
# write at all.

# Longer than the wait for the lease and the renewal can take together.
MAX_SECONDS = 45
T = TypeVar("T")


def run_outside_transaction(work: Callable[[], T]) -> T:
    """Call ``work`` in a thread with its own database connections, and return the result.

    Raises:
        UpstreamUnavailable: if ``work`` does not end within 45 seconds.
    """
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as exc:  # noqa: BLE001 - raised again in the caller's thread
            failed.append(exc)
        finally:
            connections.close_all()

    thread = Thread(target=run, name="mcp-upstream", daemon=True)
    thread.start()
    thread.join(MAX_SECONDS)
    if thread.is_alive():
        # The thread waits for a row that the caller's transaction has locked.
        raise UpstreamUnavailable("The database is busy.")
    if failed:
        raise failed[0]
    return done[0]


# The end of upstream access -----------------------------------------------------------------------

logger = logging.getLogger("mcp_django.security")


def revoke_grant(grant: UpstreamGrant, *, reason: str, request: Any = None) -> None:
    """Revoke a grant and every token that depends on it, and notify their open streams."""
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
        record_event(
            AuthEvent.Kind.UPSTREAM,
            request=request,
            user=grant.user,
            provider=grant.provider,
            change="ended",
            reason=reason,
        )
        ended = [f"family:{family}" for family in families]
        ended += [f"checksum:{checksum}" for checksum in checksums]
        transaction.on_commit(lambda: notify_revoked(*ended), using=_database(), robust=True)


@sensitive_variables()
def disconnect_grant(grant: UpstreamGrant, *, reason: str, request: Any = None) -> None:
    """Revoke a grant here and, best effort, at the provider, within twenty seconds."""
    access, refresh = map(_decrypt_or_empty, (grant.access_cipher, grant.refresh_cipher))
    with transaction.atomic(using=_database()):
        revoke_grant(grant, reason=reason, request=request)
        try:
            provider = _provider_of(grant)
        except ImproperlyConfigured:
            # Removed from the settings: the access can be ended only here.
            return
        forget = partial(_revoke_at_provider, provider, access, refresh)
        transaction.on_commit(forget, using=_database(), robust=True)


def disconnect_unused(*, families: Sequence[uuid.UUID], checksums: Sequence[str]) -> None:
    """Disconnect the grants that depend only on these tokens, which were revoked."""
    ended = UpstreamBinding.objects.filter(Q(family__in=families) | Q(checksum__in=checksums))
    with transaction.atomic(using=_database()):
        grants = list(UpstreamGrant.objects.filter(bindings__in=ended).distinct())
        ended.delete()
        for grant in grants:
            refreshes = get_refresh_token_model().objects.filter(
                token_family__in=grant.bindings.values("family"), revoked__isnull=True
            )
            accesses = get_access_token_model().objects.filter(
                token_checksum__in=grant.bindings.values("checksum")
            )
            is_live = grant.status == UpstreamGrant.Status.LIVE
            if is_live and not (refreshes.exists() or accesses.exists()):
                disconnect_grant(grant, reason="the last client was disconnected")


@sensitive_variables()
def _revoke_at_provider(provider: Provider, access: str, refresh: str) -> None:
    """Revoke tokens at the provider; a failure is only logged, since they have ended here."""
    tokens = [(refresh, "refresh_token"), (access, "access_token")]
    for token, hint in tokens:
        if token:
            try:
                provider.revoke(token, hint=hint)
            except UpstreamUnavailable as exc:
                logger.warning("The access at %r could not be revoked: %s", provider.name, exc)
                return


def _database() -> str:
    """Return the database of the grants and of the tokens that depend on them."""
    return router.db_for_write(UpstreamGrant)


@sensitive_variables()
def _decrypt_or_empty(ciphertext: bytes | memoryview | None) -> str:
    if not ciphertext or not get_settings().oauth.field_keys:
        return ""
    try:
        return decrypt(ciphertext)
    except UpstreamRefused:
        return ""
