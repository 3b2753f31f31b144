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
from django.utils.translation import gettext_lazy as _

TOKEN_PREFIX = "mcp_"


def digest(plaintext: str) -> str:
    """The form in which a token is stored.

    A plain SHA-256 is enough: tokens carry 256 random bits, so there is nothing to guess, and a
    slow hash would be paid on every request.
    """
    return hashlib.sha256(plaintext.encode()).hexdigest()


def validate_networks(values: object) -> None:
    """Refuse what is no list of addresses and CIDR ranges.

    Raises:
        ValidationError: names the first that is none.
    """
    for one in values if isinstance(values, list) else [values]:
        try:
            ip_network(str(one))
        except ValueError as exc:
            raise ValidationError(
                _("%(value)s is no network: %(reason)s."),
                params={"value": repr(one), "reason": exc},
            ) from None


class AccessTokenManager(models.Manager["AccessToken"]):
    """Issues tokens."""

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
        """Make a token and return it with its plaintext, which is not stored and never shown again.

        ``servers`` are names of servers and ``networks`` addresses or CIDR ranges that it is good
        for; without any, it is good everywhere and from everywhere. ``secret`` replaces the random
        part, for a site that derives it from a key of its own.

        Raises:
            ValueError: a network is none.
        """
        plaintext = TOKEN_PREFIX + (secret or secrets.token_urlsafe(32))
        token = self.create(
            digest=digest(plaintext),
            hint=plaintext[-4:],
            user=user,
            name=name,
            scopes=sorted(set(scopes)),
            servers=sorted(set(servers)),
            networks=[str(ip_network(one)) for one in networks],
            expires_at=expires,
        )
        return token, plaintext


class AccessToken(models.Model):
    """A bearer token that a user made for one client: only its digest is kept."""

    digest = models.CharField(_("digest"), max_length=64, unique=True, editable=False)
    hint = models.CharField(_("last characters"), max_length=4, editable=False)
    name = models.CharField(_("name"), max_length=100, help_text=_("What the token is for."))
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", verbose_name=_("user")
    )
    scopes = models.JSONField(_("scopes"), default=list, blank=True)
    servers = models.JSONField(
        _("servers"),
        default=list,
        blank=True,
        help_text=_("The names of the servers that it opens; none: every server."),
    )
    networks = models.JSONField(
        _("networks"),
        default=list,
        blank=True,
        validators=[validate_networks],
        help_text=_("The addresses it may come from, such as 192.0.2.0/24; none: any."),
    )
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True, editable=False)

    objects = AccessTokenManager()

    class Meta:
        verbose_name = _("access token")
        verbose_name_plural = _("access tokens")
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} (…{self.hint})"

    @property
    def is_usable(self) -> bool:
        """Whether a request that carries the token is let in now."""
        expired = self.expires_at is not None and self.expires_at <= timezone.now()
        return self.revoked_at is None and not expired and self.user.is_active

    @property
    def credential(self) -> str:
        """What a principal that came with this token names it by."""
        return str(self.pk)

    def allows(self, *, server: str, address: str | None) -> bool:
        """Whether it opens a server, by name, to a caller at an address.

        An address that is not known is in no network.
        """
        if self.servers and server not in self.servers:
            return False
        if not self.networks:
            return True
        if address is None:
            return False
        found = ip_address(address)
        # Behind a dual-stack socket an IPv4 client comes as ::ffff:192.0.2.1.
        found = getattr(found, "ipv4_mapped", None) or found
        return any(found in ip_network(one) for one in self.networks)

    def revoke(self) -> None:
        """End the token; requests that carry it are refused from now on."""
        if self.revoked_at is None:
            self.revoked_at = timezone.now()
            self.save(update_fields=["revoked_at"])


# Security events and external identities ----------------------------------------------------------


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
    """The user that a subject of another issuer is on this site."""

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
