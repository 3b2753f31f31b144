"""Access tokens, the security log, and the users of external issuers.

A token is stored as a SHA-256 digest; its plaintext is shown once and never stored. A security
event holds no token, code or secret.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime
from ipaddress import ip_address, ip_network
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy as _
from django.views.decorators.debug import sensitive_variables

from mcp_django.models.fields import (
    ExactCharField,
    UniqueByTenant,
    UserForeignKey,
    set_null,
    tenant_column,
)
from mcp_django.tenants import current_tenant

TOKEN_PREFIX = "mcp_"


def token_digest(plaintext: str) -> str:
    """Return the SHA-256 of a token, code or state in hexadecimal, as it is stored.

    A plain SHA-256 is sufficient: tokens have 256 random bits and cannot be guessed, and a slow
    hash would slow down every request.
    """
    return hashlib.sha256(plaintext.encode("utf-8", "replace")).hexdigest()


def user_foreign_key(on_delete: Any = models.CASCADE, **options: Any) -> Any:
    """Return a foreign key to the user model, without a reverse relation."""
    options = {"verbose_name": _("user"), "related_name": "+", **options}
    return models.ForeignKey(settings.AUTH_USER_MODEL, on_delete, **options)


def validate_networks(values: object) -> None:
    """Validate a list of addresses and CIDR ranges.

    Raises:
        ValidationError: names the first invalid value.
    """
    for value in values if isinstance(values, list) else [values]:
        try:
            ip_network(str(value))
        except ValueError as exc:
            raise ValidationError(
                _("%(value)s is not a valid network: %(reason)s."),
                params={"value": repr(value), "reason": exc},
            ) from None


class AccessTokenManager(models.Manager["AccessToken"]):
    """The manager that issues and looks up tokens."""

    @sensitive_variables("plaintext")
    def find(self, plaintext: str) -> AccessToken | None:
        """Return the token of this plaintext, with its user; ``None`` if it is not usable."""
        mine = self.select_related("user").filter(tenant=current_tenant())
        token = mine.filter(digest=token_digest(plaintext)).first()
        return token if token is not None and token.is_usable else None

    def issue(
        self,
        user: Any,
        *,
        name: str,
        scopes: Iterable[str] = (),
        servers: Iterable[str] = (),
        networks: Iterable[str] = (),
        expires: datetime | None = None,
        secret: str | None = None,
    ) -> tuple[AccessToken, str]:
        """Create a token and return it with its plaintext, which is not stored.

        ``servers`` are the names of the servers that the token is valid for, and ``networks`` the
        addresses or CIDR ranges that it is accepted from; empty: all. ``secret`` replaces the
        random part, for a site that derives it from a key of its own.

        Raises:
            ValueError: a network is invalid.
        """
        plaintext = TOKEN_PREFIX + (secret or secrets.token_urlsafe(32))
        token = self.create(
            digest=token_digest(plaintext),
            hint=plaintext[-4:],
            user=user,
            name=name,
            scopes=sorted(set(scopes)),
            servers=sorted(set(servers)),
            networks=[str(ip_network(network)) for network in networks],
            expires_at=expires,
        )
        return token, plaintext


class AccessToken(models.Model):
    """A bearer token that a user created for a client; only its digest is stored."""

    digest = models.CharField(_("digest"), max_length=64, unique=True, editable=False)
    tenant = tenant_column()
    hint = models.CharField(_("last characters"), max_length=4, editable=False)
    name = models.CharField(_("name"), max_length=100, help_text=_("The purpose of the token."))
    user: Any = UserForeignKey()
    scopes = models.JSONField(_("scopes"), default=list, blank=True)
    servers = models.JSONField(
        _("servers"),
        default=list,
        blank=True,
        help_text=_("The names of the servers that the token is valid for; empty: all servers."),
    )
    networks = models.JSONField(
        _("networks"),
        default=list,
        blank=True,
        validators=[validate_networks],
        help_text=_(
            "The networks that the token is accepted from, such as 192.0.2.0/24; empty: all."
        ),
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True, editable=False)

    objects = AccessTokenManager()

    class Meta:
        default_permissions = ("add", "view", "delete")
        verbose_name = _("access token")
        verbose_name_plural = _("access tokens")
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} (…{self.hint})"

    @property
    def is_usable(self) -> bool:
        """Whether the token is valid now."""
        expired = self.expires_at is not None and self.expires_at <= timezone.now()
        return self.revoked_at is None and not expired and self.user.is_active

    @property
    def credential(self) -> str:
        """The identifier of this token in ``Principal.credential``."""
        return str(self.pk)

    def allows(self, *, server: str, address: str | None) -> bool:
        """Return whether the token is valid for a server and a caller's address.

        An unknown address (``None``) is not in any network.
        """
        if self.servers and server not in self.servers:
            return False
        if not self.networks:
            return True
        if address is None:
            return False
        ip = ip_address(address)
        # On a dual-stack socket the address of an IPv4 client is ::ffff:192.0.2.1.
        ip = getattr(ip, "ipv4_mapped", None) or ip
        return any(ip in ip_network(network) for network in self.networks)

    def revoke(self) -> None:
        """Revoke the token; requests with it are rejected from now on."""
        if self.revoked_at is None:
            self.revoked_at = timezone.now()
            self.save(update_fields=["revoked_at"])


class AuthEvent(models.Model):
    """An event of the security log; contains no token, code or secret."""

    class Kind(models.TextChoices):
        """The type of the event."""

        CONSENT = "consent", _("access granted")
        DENIAL = "denial", _("access denied by the user")
        ISSUE = "issue", _("token issued")
        STEP_UP = "step_up", _("more scopes requested")
        REUSE = "reuse", _("refresh token reused")
        REPLAY = "replay", _("code or assertion replayed")
        REVOKE = "revoke", _("access revoked")
        REFUSED = "refused", _("credential rejected")
        REGISTER = "register", _("client registered")
        RATE_LIMIT = "rate_limit", _("rate limit reached")
        UPSTREAM = "upstream", _("upstream access changed")
        DOCUMENT = "document", _("client metadata document rejected")

    kind = models.CharField(_("kind"), max_length=20, choices=Kind.choices)
    at = models.DateTimeField(_("time"), auto_now_add=True, db_index=True)
    tenant = tenant_column()
    user: Any = UserForeignKey(set_null, null=True, blank=True)
    username = models.CharField(_("username at the time"), max_length=150, blank=True)
    client_id = ExactCharField(_("client"), max_length=255, blank=True)
    server = ExactCharField(_("server"), max_length=100, blank=True)
    address = models.GenericIPAddressField(_("address"), null=True, blank=True)
    details = models.JSONField(_("details"), default=dict, blank=True)

    class Meta:
        default_permissions = ("view",)
        verbose_name = _("security event")
        verbose_name_plural = _("security events")
        ordering = ["-at", "-pk"]

    def __str__(self) -> str:
        names = {
            "event": self.get_kind_display(),
            "user": self.username or gettext("no user"),
            "client": self.client_id or gettext("no client"),
        }
        return gettext("%(event)s: %(user)s, %(client)s") % names

    def as_dict(self) -> dict[str, Any]:
        """Return the event as a dictionary for the structured log."""
        names = ("kind", "username", "client_id", "server", "address", "details")
        return {name: getattr(self, name) for name in names}


class ExternalIdentity(UniqueByTenant):
    """Maps a subject of another issuer to a user of this site."""

    issuer = ExactCharField(_("issuer"), max_length=255)
    subject = ExactCharField(_("subject"), max_length=255)
    tenant = tenant_column()
    user: Any = UserForeignKey()
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True, editable=False)

    class Meta:
        verbose_name = _("external identity")
        verbose_name_plural = _("external identities")
        constraints = [
            models.UniqueConstraint(
                fields=["issuer", "subject", "tenant"], name="mcp_external_identity"
            )
        ]

    def __str__(self) -> str:
        return f"{self.subject} ({self.issuer})"
