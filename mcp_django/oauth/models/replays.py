"""What may be used once: digests of it, kept until it would have expired anyway."""

from __future__ import annotations

from django.db import IntegrityError, models, router, transaction
from django.utils.translation import gettext_lazy as _


class OnceOnly(models.Model):
    """Stands for something that one of several, in any process, may use."""

    digest = models.CharField(_("digest"), max_length=64, unique=True)

    class Meta:
        abstract = True

    def claim(self) -> bool:
        """Store the row; whether nobody had stored one of this digest before."""
        try:
            with transaction.atomic(using=router.db_for_write(type(self))):
                self.save(force_insert=True)
        except IntegrityError:
            return False
        return True


class RedeemedCode(OnceOnly):
    """An authorization code that was exchanged, and what came of it."""

    family = models.UUIDField(_("family of tokens"), null=True)
    checksum = models.CharField(_("checksum of the access token"), max_length=64, blank=True)
    redeemed_at = models.DateTimeField(_("redeemed"), auto_now_add=True)

    def __str__(self) -> str:
        return f"code {self.digest[:8]}"


class RefreshReplay(OnceOnly):
    """The answer to a refresh, encrypted under the refresh token that it was the answer to."""

    client_id = models.CharField(_("client"), max_length=255)
    answer = models.BinaryField(_("answer"))
    expires_at = models.DateTimeField(_("expires"))

    def __str__(self) -> str:
        return f"refresh of {self.client_id}"


class UsedAssertion(OnceOnly):
    """An identity assertion or client assertion that was accepted once."""

    expires_at = models.DateTimeField(_("expires"))

    def __str__(self) -> str:
        return f"assertion {self.digest[:8]}"
