"""The security log and the subjects of foreign issuers."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _


class AuthEvent(models.Model):
    """Something that was decided about a caller; holds no token, code or secret."""

    class Kind(models.TextChoices):
        """What happened."""

        CONSENT = "consent", _("access granted")
        DENIAL = "denial", _("access denied by the user")
        ISSUE = "issue", _("token issued")
        STEP_UP = "step_up", _("more scopes asked for")
        REUSE = "reuse", _("refresh token reused")
        REPLAY = "replay", _("code or assertion replayed")
        REVOKE = "revoke", _("access revoked")
        REFUSED = "refused", _("credential refused")
        REGISTER = "register", _("client registered")
        RATE_LIMIT = "rate_limit", _("rate limit reached")
        UPSTREAM = "upstream", _("upstream access changed")
        DOCUMENT = "document", _("client's document not taken")

    kind = models.CharField(_("kind"), max_length=20, choices=Kind.choices)
    at = models.DateTimeField(_("time"), auto_now_add=True, db_index=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("user"),
    )
    username = models.CharField(_("user name then"), max_length=150, blank=True)
    client_id = models.CharField(_("client"), max_length=255, blank=True)
    server = models.CharField(_("server"), max_length=100, blank=True)
    address = models.GenericIPAddressField(_("address"), null=True, blank=True)
    details = models.JSONField(_("details"), default=dict, blank=True)

    class Meta:
        verbose_name = _("security event")
        verbose_name_plural = _("security events")
        ordering = ["-at", "-pk"]

    def __str__(self) -> str:
        who = self.username or "nobody"
        return f"{self.get_kind_display()}: {who} by {self.client_id or 'no client'}"

    def as_dict(self) -> dict[str, Any]:
        """The event as the structured log has it."""
        names = ("kind", "username", "client_id", "server", "address", "details")
        return {name: getattr(self, name) for name in names}


class ExternalIdentity(models.Model):
    """Who a subject of a foreign issuer is here."""

    issuer = models.CharField(_("issuer"), max_length=255)
    subject = models.CharField(_("subject"), max_length=255)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", verbose_name=_("user")
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True, editable=False)

    class Meta:
        verbose_name = _("external identity")
        verbose_name_plural = _("external identities")
        constraints = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="mcp_external_identity")
        ]

    def __str__(self) -> str:
        return f"{self.subject} of {self.issuer}"
