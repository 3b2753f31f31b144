"""Models of the authorization server, in addition to the toolkit's own.

No foreign key refers to the toolkit's models: they are swappable, so ``makemigrations`` would
create different migrations for each site.
"""

from __future__ import annotations

import time
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, models, router, transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from django.utils.translation import gettext_lazy as _

from mcp_django.models.fields import ExactCharField
from mcp_django.models.tokens import user_foreign_key
from mcp_django.storage.cache import forget
from mcp_django.storage.databases import after_commit


class ClientProfile(models.Model):
    """Service account and limits of a machine client, and time of last use of any client."""

    client_id = ExactCharField(_("client"), max_length=255, unique=True)
    service_user = user_foreign_key(
        null=True,
        blank=True,
        verbose_name=_("service account"),
        help_text=_("The account the client acts as when no user signs in (client credentials)."),
    )
    allowed_scopes = models.JSONField(_("allowed scopes"), default=list, blank=True)
    allowed_resources = models.JSONField(_("allowed servers"), default=list, blank=True)
    """The URLs of servers."""
    jwks = models.JSONField(
        _("public keys"),
        null=True,
        blank=True,
        help_text=_("A JSON Web Key Set. A client with keys can authenticate only with them."),
    )
    jwks_url = models.URLField(_("URL of the public keys"), max_length=500, blank=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True, editable=False)

    class Meta:
        verbose_name = _("client profile")
        verbose_name_plural = _("client profiles")

    def __str__(self) -> str:
        return self.client_id

    @classmethod
    def of_client(cls, client_id: str) -> ClientProfile | None:
        """Return the profile of a client with its service account, ``None`` if there is none."""
        return cls.objects.select_related("service_user").filter(client_id=client_id).first()

    @property
    def has_keys(self) -> bool:
        """Return whether the client authenticates with keys (``private_key_jwt``)."""
        return bool(self.jwks or self.jwks_url)

    def clean(self) -> None:
        """Validate the lists, the public keys and their URL.

        Raises:
            ValidationError: if any is not valid, with the errors by field.
        """
        problems = {}
        for name in ("allowed_scopes", "allowed_resources"):
            value = getattr(self, name)
            if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
                problems[name] = _('Enter a list of strings: ["…", "…"].')
        keys = self.jwks.get("keys") if isinstance(self.jwks, dict) else None
        is_public = isinstance(keys, list) and all(
            isinstance(key, dict) and key.get("kty") in ("RSA", "EC", "OKP") and "d" not in key
            for key in keys
        )
        if self.jwks and not is_public:
            problems["jwks"] = _('Enter {"keys": […]} with only public RSA, EC or OKP keys.')
        if self.jwks_url and not self.jwks_url.startswith("https://"):
            problems["jwks_url"] = _("Enter an https:// URL.")
        if problems:
            raise ValidationError(problems)


def _model_of_toolkit(name: str) -> str:
    """Return the name of a model of the toolkit, which the site may have swapped."""
    setting = f"OAUTH2_PROVIDER_{name.upper()}_MODEL"
    default = "".join(part.capitalize() for part in name.split("_"))
    return str(getattr(settings, setting, f"oauth2_provider.{default}"))


@receiver([post_save, post_delete], sender=_model_of_toolkit("access_token"))
def _access_token_changed(
    instance: Any, *, signal: Any, using: str, created: bool = False, **_: Any
) -> None:
    # A field may be deferred, or have a value that the database converts.
    expires = vars(instance).get("expires")
    # Expired tokens are deleted in bulk, and none of them is accepted anyway.
    is_over = isinstance(expires, datetime) and expires.timestamp() <= time.time()
    if not created and not (is_over and signal is post_delete):
        after_commit(partial(forget, f"oauth-token:{instance.pk}"), using=using)


@receiver([post_save, post_delete], sender=_model_of_toolkit("refresh_token"))
def _refresh_token_changed(instance: Any, *, using: str, created: bool = False, **_: Any) -> None:
    token = vars(instance).get("access_token_id")
    if not created and token is not None:
        after_commit(partial(forget, f"oauth-token:{token}"), using=using)


@receiver([post_save, post_delete], sender=_model_of_toolkit("application"))
def _application_changed(instance: Any, *, using: str, created: bool = False, **_: Any) -> None:
    if not created:
        after_commit(partial(forget, f"client:{instance.pk}"), using=using)


class Consent(models.Model):
    """A user's consent that a client may use one server with these scopes.

    A later consent updates the row.
    """

    user = user_foreign_key()
    client_id = ExactCharField(_("client"), max_length=255)
    resource = ExactCharField(_("server"), max_length=500)
    scopes = models.JSONField(_("scopes"), default=list)
    agreed = models.JSONField(_("scopes of the last approval"), default=list, editable=False)
    redirect_host = models.CharField(_("redirect host"), max_length=255)
    created_at = models.DateTimeField(_("first approved"), auto_now_add=True)
    updated_at = models.DateTimeField(_("last approved"), auto_now=True)

    class Meta:
        default_permissions = ("view", "delete")
        verbose_name = _("connected assistant")
        verbose_name_plural = _("connected assistants")
        constraints = [
            models.UniqueConstraint(
                fields=["user", "client_id", "resource"], name="mcp_oauth_one_consent"
            )
        ]

    def __str__(self) -> str:
        return f"{self.client_id} → {self.resource}"


class SingleUse(models.Model):
    """Mark a code, token or assertion as used, so that only one process can use it.

    Only its digest is stored, until it would have expired.
    """

    digest = models.CharField(_("digest"), max_length=64, unique=True)

    class Meta:
        default_permissions = ()
        abstract = True

    def mark_used(self) -> bool:
        """Store the row; return ``False`` if a row with this digest already exists."""
        try:
            with transaction.atomic(using=router.db_for_write(type(self))):
                self.save(force_insert=True)
        except IntegrityError:
            return False
        return True


class RedeemedCode(SingleUse):
    """An authorization code that was exchanged, with the tokens issued for it."""

    family = models.UUIDField(_("token family"), null=True)
    checksum = models.CharField(_("checksum of the access token"), max_length=64, blank=True)
    redeemed_at = models.DateTimeField(_("redeemed"), auto_now_add=True)

    def __str__(self) -> str:
        return f"code {self.digest[:8]}"


class RefreshReplay(SingleUse):
    """The response to a refresh request, encrypted with a key derived from its refresh token."""

    client_id = ExactCharField(_("client"), max_length=255)
    answer = models.BinaryField(_("response"))
    expires_at = models.DateTimeField(_("expires"))

    def __str__(self) -> str:
        return f"refresh of {self.client_id}"


class UsedAssertion(SingleUse):
    """An identity assertion, client assertion or logout token that was accepted."""

    expires_at = models.DateTimeField(_("expires"))

    def __str__(self) -> str:
        return f"assertion {self.digest[:8]}"


class UpstreamGrant(models.Model):
    """A user's access at one upstream provider; its tokens are encrypted."""

    class Status(models.TextChoices):
        """Whether the access can be used."""

        LIVE = "live", _("live")
        REVOKED = "revoked", _("revoked")

    provider = ExactCharField(_("provider"), max_length=50)
    user = user_foreign_key()
    issuer = ExactCharField(_("issuer"), max_length=255, blank=True)
    subject = ExactCharField(_("subject"), max_length=255, blank=True)
    session_id = ExactCharField(_("upstream session"), max_length=255, blank=True)
    scopes = models.JSONField(_("scopes"), default=list)
    access_cipher = models.BinaryField(_("access token, encrypted"))
    refresh_cipher = models.BinaryField(_("refresh token, encrypted"), null=True)
    expires_at = models.DateTimeField(_("expires"), null=True)
    refresh_expires_at = models.DateTimeField(_("refresh token expires"), null=True)
    status = models.CharField(
        _("status"), max_length=10, choices=Status.choices, default=Status.LIVE
    )
    checked_at = models.DateTimeField(_("last checked"), null=True)
    last_error = models.CharField(_("last error"), max_length=200, blank=True)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    authorized_at = models.DateTimeField(_("last authorized by the user"), null=True)
    # Lease: the process that sets this to a future time renews the access; the others wait.
    renewing_until = models.DateTimeField(null=True, editable=False)

    class Meta:
        default_permissions = ("view", "delete")
        verbose_name = _("upstream access")
        verbose_name_plural = _("upstream access")
        constraints = [
            models.UniqueConstraint(fields=["provider", "user"], name="mcp_oauth_upstream_grant")
        ]

    def __str__(self) -> str:
        return f"{self.provider}: {self.subject}"


class UpstreamBinding(models.Model):
    """Binds a token of this site to an upstream access that it depends on."""

    family = models.UUIDField(_("token family"), null=True, db_index=True)
    checksum = models.CharField(_("checksum of the access token"), max_length=64)
    grant = models.ForeignKey(
        UpstreamGrant, models.CASCADE, related_name="bindings", verbose_name=_("upstream access")
    )

    class Meta:
        default_permissions = ()
        verbose_name = _("upstream binding")
        verbose_name_plural = _("upstream bindings")
        constraints = [
            models.UniqueConstraint(fields=["checksum", "grant"], name="mcp_oauth_upstream_binding")
        ]

    def __str__(self) -> str:
        return f"{self.checksum[:8]}… on {self.grant_id}"


class UpstreamTransaction(models.Model):
    """An authorization request whose user is at the upstream provider.

    ``request`` is empty if the user connects the account without a client.
    """

    digest = models.CharField(_("digest of the state"), max_length=64, unique=True)
    provider = ExactCharField(_("provider"), max_length=50)
    user = user_foreign_key()
    verifier_cipher = models.BinaryField(_("PKCE verifier, encrypted"))
    nonce_digest = models.CharField(_("digest of the nonce"), max_length=64)
    request = models.JSONField(_("request"), default=dict)
    expires_at = models.DateTimeField(_("expires"))

    class Meta:
        default_permissions = ()
        verbose_name = _("upstream transaction")
        verbose_name_plural = _("upstream transactions")

    def __str__(self) -> str:
        return f"{self.provider}: {self.user_id}"
