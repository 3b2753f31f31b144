"""Access that users have given this site at somebody else's."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _


class UpstreamGrant(models.Model):
    """A user's access at one upstream provider; its tokens are encrypted."""

    class Status(models.TextChoices):
        """Whether it can be used."""

        LIVE = "live", _("live")
        REVOKED = "revoked", _("revoked")

    provider = models.CharField(_("provider"), max_length=50)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", verbose_name=_("user")
    )
    issuer = models.CharField(_("issuer"), max_length=255, blank=True)
    subject = models.CharField(_("subject"), max_length=255, blank=True)
    session_id = models.CharField(_("upstream session"), max_length=255, blank=True)
    scopes = models.JSONField(_("scopes"), default=list)
    access_cipher = models.BinaryField(_("access token, encrypted"))
    refresh_cipher = models.BinaryField(_("refresh token, encrypted"), null=True)
    expires_at = models.DateTimeField(_("expires"), null=True)
    refresh_expires_at = models.DateTimeField(_("refresh expires"), null=True)
    status = models.CharField(
        _("status"), max_length=10, choices=Status.choices, default=Status.LIVE
    )
    checked_at = models.DateTimeField(_("last checked"), null=True)
    last_error = models.CharField(_("last error"), max_length=200, blank=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    authorized_at = models.DateTimeField(_("last granted by the user"), null=True)
    # Whoever moves this into the future renews the access; the others wait until it is past.
    renewing_until = models.DateTimeField(null=True, editable=False)

    class Meta:
        verbose_name = _("upstream access")
        verbose_name_plural = _("upstream accesses")
        constraints = [
            models.UniqueConstraint(fields=["provider", "user"], name="mcp_oauth_upstream_grant")
        ]

    def __str__(self) -> str:
        return f"{self.provider}: {self.subject}"


class UpstreamBinding(models.Model):
    """Which of our tokens stands on which upstream access; one for each that it needs."""

    family = models.UUIDField(_("family of tokens"), null=True, db_index=True)
    checksum = models.CharField(_("checksum of the access token"), max_length=64)
    grant = models.ForeignKey(
        UpstreamGrant, models.CASCADE, related_name="bindings", verbose_name=_("upstream access")
    )

    class Meta:
        verbose_name = _("upstream binding")
        verbose_name_plural = _("upstream bindings")
        constraints = [
            models.UniqueConstraint(fields=["checksum", "grant"], name="mcp_oauth_upstream_binding")
        ]

    def __str__(self) -> str:
        return f"{self.checksum[:8]}… on {self.grant_id}"


class UpstreamTransaction(models.Model):
    """An authorization request that waits for its user to come back from upstream.

    An empty ``request`` is a user who connects his account by himself, without a client.
    """

    digest = models.CharField(_("digest of the state"), max_length=64, unique=True)
    provider = models.CharField(_("provider"), max_length=50)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", verbose_name=_("user")
    )
    verifier_cipher = models.BinaryField(_("PKCE verifier, encrypted"))
    nonce_digest = models.CharField(_("digest of the nonce"), max_length=64)
    request = models.JSONField(_("request"), default=dict)
    expires_at = models.DateTimeField(_("expires"))

    class Meta:
        verbose_name = _("upstream transaction")
        verbose_name_plural = _("upstream transactions")

    def __str__(self) -> str:
        return f"{self.provider}: {self.user_id}"
