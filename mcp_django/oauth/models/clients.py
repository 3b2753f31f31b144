"""What the site knows of a client beyond its registration."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from django.utils.translation import gettext_lazy as _


class ClientProfile(models.Model):
    """Whom a machine client acts as, how far it may go, and when any client was last used."""

    client_id = models.CharField(_("client"), max_length=255, unique=True)
    service_user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("service account"),
        help_text=_("Whom the client acts as when no user signs in (client credentials)."),
    )
    allowed_scopes = models.JSONField(
        _("allowed scopes"),
        default=list,
        blank=True,
        help_text=_("Empty: what the servers need of every caller."),
    )
    allowed_resources = models.JSONField(
        _("allowed servers"),
        default=list,
        blank=True,
        help_text=_("Their addresses. Empty: every server of this site."),
    )
    jwks = models.JSONField(
        _("public keys"),
        null=True,
        blank=True,
        help_text=_("A JSON Web Key Set. With keys the client proves itself by them alone."),
    )
    jwks_url = models.URLField(_("address of the public keys"), max_length=500, blank=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True, editable=False)

    class Meta:
        verbose_name = _("client profile")
        verbose_name_plural = _("client profiles")

    def __str__(self) -> str:
        return self.client_id

    @property
    def has_keys(self) -> bool:
        """Whether the client proves itself by keys (``private_key_jwt``)."""
        return bool(self.jwks or self.jwks_url)

    def clean(self) -> None:
        """See that lists are lists and keys are public ones.

        Raises:
            ValidationError: they are not, by field.
        """
        problems = {}
        for name in ("allowed_scopes", "allowed_resources"):
            value = getattr(self, name)
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                problems[name] = _('Write a list of texts: ["…", "…"].')
        if self.jwks and not _is_public(self.jwks):
            problems["jwks"] = _('Write {"keys": […]} with public RSA, EC or OKP keys alone.')
        if self.jwks_url and not self.jwks_url.startswith("https://"):
            problems["jwks_url"] = _("Write an https:// address.")
        if problems:
            raise ValidationError(problems)


def _is_public(jwks: Any) -> bool:
    keys = jwks.get("keys") if isinstance(jwks, dict) else None
    return isinstance(keys, list) and all(
        isinstance(key, dict) and key.get("kty") in ("RSA", "EC", "OKP") and "d" not in key
        for key in keys
    )


@receiver([post_save, post_delete], sender=ClientProfile, dispatch_uid="mcp_oauth.machine_tokens")
def _end_machine_tokens(sender: Any, instance: ClientProfile, **kwargs: Any) -> None:
    """Let what was changed hold at once: a machine asks for a new token, or gets none."""
    if kwargs.get("created"):
        return
    # The toolkit's models are not there yet when this module is imported.
    from mcp_django.oauth import machines

    machines.end_tokens(instance.client_id)
