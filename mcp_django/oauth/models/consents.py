"""What users have agreed to."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _


class Consent(models.Model):
    """A user let a client use one server with these scopes; renewed by each approval."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", verbose_name=_("user")
    )
    client_id = models.CharField(_("client"), max_length=255)
    resource = models.CharField(_("server"), max_length=500)
    scopes = models.JSONField(_("scopes"), default=list)
    agreed = models.JSONField(_("scopes of the last approval"), default=list, editable=False)
    redirect_host = models.CharField(_("redirect host"), max_length=255)
    created_at = models.DateTimeField(_("first given"), auto_now_add=True)
    updated_at = models.DateTimeField(_("last given"), auto_now=True)

    class Meta:
        verbose_name = _("connected assistant")
        verbose_name_plural = _("connected assistants")
        constraints = [
            models.UniqueConstraint(
                fields=["user", "client_id", "resource"], name="mcp_oauth_one_consent"
            )
        ]

    def __str__(self) -> str:
        return f"{self.client_id} for {self.resource}"
