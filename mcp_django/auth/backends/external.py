"""Tokens of other issuers: check their verified claims, and map their subjects to users.

A token is verified by its signature or by its issuer. Claims are those of RFC 7519, RFC 9068 and
RFC 7662, and those that Entra, Okta, Keycloak and Cognito use instead. No claim is trusted before
the token is verified.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import IntegrityError, router, transaction
from django.db.models import Q
from django.http import HttpRequest
from django.utils.module_loading import import_string
from django.utils.timezone import make_naive

from mcp_django.auth.backends import BaseBackend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.endpoints import canonicalize_url
from mcp_django.auth.principal import Principal, key_of, principal_for
from mcp_django.conf import ExternalIssuer
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.models import ExternalIdentity, token_digest
from mcp_django.storage.writer import note_use

logger = logging.getLogger("mcp_django.security")

# A principal's key is stored in columns of limited length, and begins with the user's key.
MAX_KEY_CLIENT = 60
_LAST_DATE = 253_402_300_799  # the end of the year 9999
_CLIENT_CLAIMS = ("azp", "client_id", "appid", "cid")
# Claims of other kinds of tokens: ID tokens (OpenID Connect Core, section 2), logout tokens and
# security events (RFC 8417).
_OTHER_TOKEN_CLAIMS = ("nonce", "at_hash", "c_hash", "s_hash", "events")
# Claims that name the kind of a token: Keycloak's ``typ``, Cognito's and Hydra's ``token_use``.
_KIND_CLAIMS = {"typ": {"bearer", "at+jwt", "jwt"}, "token_use": {"access", "access_token"}}

IssuerT = TypeVar("IssuerT", bound=ExternalIssuer)


def entries_for(entries: Iterable[IssuerT], server: str) -> list[IssuerT]:
    """Return the entries that apply to the server of this name."""
    return [entry for entry in entries if not entry.servers or server in entry.servers]


class ExternalBackend(BaseBackend):
    """Base class of the backends for tokens of other issuers."""

    @abstractmethod
    def entries(self) -> Sequence[ExternalIssuer]:
        """Return the issuers whose tokens the site accepts."""

    def is_current(self, principal: Principal) -> bool:
        """Return whether the issuer is still trusted and the subject an active user: one query.

        Only requests are checked with the issuer: its tokens are not stored.
        """
        if all(entry.issuer != principal.issuer for entry in self.entries()):
            return False
        same = Q(issuer=principal.issuer, subject=principal.subject, user=principal.user.pk)
        return ExternalIdentity.objects.filter(same, user__is_active=True).exists()

    def issuers(self, request: HttpRequest, server: str = "") -> list[str]:
        """Return the authorization servers whose tokens the server accepts (RFC 9728)."""
        return [entry.issuer for entry in entries_for(self.entries(), server)]


def reject_token(entry: ExternalIssuer, reason: str) -> NoReturn:
    """Reject the request: the token is from this issuer and is not valid.

    Raises:
        AuthenticationRequired: always.
    """
    logger.info("A token of %s was rejected: %s", entry.issuer, reason)
    raise AuthenticationRequired(reason, error="invalid_token")


def _check_kind(entry: ExternalIssuer, claims: Mapping[str, Any]) -> None:
    """Reject everything but an access token that is a bearer token.

    Raises:
        AuthenticationRequired: it is an ID token, a refresh or logout token, or is bound to a key
            whose possession was not proven (RFC 7800).
    """
    if any(claims.get(name) is not None for name in _OTHER_TOKEN_CLAIMS):
        reject_token(entry, "The token is not an access token, but an ID token or another kind.")
    for name, allowed in _KIND_CLAIMS.items():
        kind = claims.get(name)
        if kind is not None and str(kind).lower() not in allowed:
            reject_token(
                entry, "The token is not an access token, but an ID token or another kind."
            )
    if claims.get("cnf") is not None:
        reject_token(entry, "The token is bound to a key; this server accepts only bearer tokens.")


def _check_audience(
    entry: ExternalIssuer, claims: Mapping[str, Any], resource: str, *, is_typed: bool
) -> None:
    """Check that the token was issued for this endpoint (RFC 8707).

    Without ``is_typed``, a token whose audience is its own client cannot be distinguished from an
    ID token.

    Raises:
        AuthenticationRequired: it was issued for another resource, or for none in particular.
    """
    if not resource:
        # The URL has no canonical form (an invalid port, a dot segment), so no audience matches it.
        reject_token(
            entry, "The request's URL is not a valid resource URL; use the server's own URL."
        )
    named = [one for one in _as_list(claims.get("aud")) if isinstance(one, str)]
    meant = [one for one in named if one in entry.audiences or canonicalize_url(one) == resource]
    if not meant:
        reject_token(entry, "The token was not issued for this server.")
    if not is_typed and all(one == _client_of(claims) for one in meant):
        reject_token(entry, "The token was issued for its own client, as ID tokens are.")


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def build_principal(
    entry: ExternalIssuer,
    claims: Mapping[str, Any],
    credentials: Credentials,
    *,
    backend: str,
    credential: str,
    expires_at: float,
    is_typed: bool,
) -> Principal:
    """Return the caller that verified claims identify, with one query for a known subject.

    ``is_typed`` means that the token declares itself an access token (RFC 9068).

    Raises:
        AuthenticationRequired: the token is not an access token for this endpoint, or the subject
            has no user here, or an inactive one.
    """
    _check_kind(entry, claims)
    _check_audience(entry, claims, credentials.resource, is_typed=is_typed)
    user, client = find_user(entry, claims), _client_of(claims)
    return principal_for(
        user,
        key=f"{key_of(user)}@{_key_client(entry.issuer, client)}",
        backend=backend,
        scopes=_scopes_of(entry, claims),
        client_id=client,
        issuer=entry.issuer,
        subject=str(claims["sub"]),
        audience=credentials.resource,
        claims=MappingProxyType(dict(claims)),
        credential=credential,
        expires_at=_to_datetime(expires_at),
    )


def _client_of(claims: Mapping[str, Any]) -> str:
    """Return the client that the token was issued to; empty if the token does not name it."""
    values = (claims.get(name) for name in _CLIENT_CLAIMS)
    return next((value for value in values if isinstance(value, str) and value), "")


def _scopes_of(entry: ExternalIssuer, claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the token's scopes, mapped to the site's own."""
    names = [entry.scope_claim] if entry.scope_claim else ["scope", "scp"]
    found = next((claims[name] for name in names if claims.get(name) is not None), "")
    said = found.split() if isinstance(found, str) else _as_list(found)
    return frozenset(
        meant
        for scope in said
        if isinstance(scope, str)
        for meant in entry.scopes.get(scope, (scope,))
    )


def _to_datetime(seconds: float) -> datetime:
    """Return the time of a claim (seconds since the epoch), aware or naive as ``USE_TZ`` says."""
    found = datetime.fromtimestamp(min(seconds, _LAST_DATE - 86_400), tz=UTC)
    return found if settings.USE_TZ else make_naive(found)


def _key_client(issuer: str, client: str) -> str:
    """Return a name of a client that is unique among issuers, of ``MAX_KEY_CLIENT`` at most."""
    name = f"{issuer.partition('://')[2]}#{client}"
    return name if len(name) <= MAX_KEY_CLIENT else token_digest(name)[:40]


# Users of other issuers ---------------------------------------------------------------------------

# The first request of a subject stores an ``ExternalIdentity``, so a user name that the issuer
# reassigns later does not give access to the account. An unknown subject is rejected, unless the
# issuer's entry says otherwise.

MAX_SUBJECT = 255


def find_user(entry: ExternalIssuer, claims: Mapping[str, Any]) -> Any:
    """Return the active user that the ``sub`` of verified claims identifies.

    One query for a known subject, one more if the entry maps groups.

    Raises:
        AuthenticationRequired: the user does not exist or is inactive. The response does
            not tell which.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT:
        raise _no_account_error()
    identity = _find_identity(entry, subject) or _link_identity(entry, subject, claims)
    if not identity.user.is_active:
        raise _no_account_error()
    note_use(identity)
    if entry.groups:
        _sync_groups(entry, identity.user, claims)
    return identity.user


def _no_account_error() -> AuthenticationRequired:
    return AuthenticationRequired(
        "The token's subject has no active account here; ask the site's administrators.",
        error="invalid_token",
    )


def _link_identity(
    entry: ExternalIssuer, subject: str, claims: Mapping[str, Any]
) -> ExternalIdentity:
    """Return the identity of an unknown subject, which is stored if the entry allows the user."""
    with suppress(IntegrityError), transaction.atomic(using=router.db_for_write(ExternalIdentity)):
        user = import_string(entry.user)(claims, entry.issuer) if entry.user else None
        user = user or _find_or_create_user(entry, claims)
        if user is not None and user.is_active:
            identity, is_new = ExternalIdentity.objects.get_or_create(
                issuer=entry.issuer, subject=subject, defaults={"user": user}
            )
            if is_new:
                logger.info("%s is now linked to the user %s.", identity, user.pk)
            return identity
    # A concurrent request may have stored the same subject, and created the user of this name.
    found = _find_identity(entry, subject)
    if found is None:
        raise _no_account_error()
    return found


def _find_identity(entry: ExternalIssuer, subject: str) -> ExternalIdentity | None:
    identities = ExternalIdentity.objects.select_related("user")
    return identities.filter(issuer=entry.issuer, subject=subject).first()


def _find_or_create_user(entry: ExternalIssuer, claims: Mapping[str, Any]) -> Any:
    """Return the user whose name is in a claim: an existing or a new one, as the entry allows."""
    name = claims.get(entry.username_claim)
    if entry.unknown_users == "refuse" or not isinstance(name, str) or not name:
        return None
    if entry.username_claim == "email" and claims.get("email_verified") is not True:
        return None
    model = get_user_model()
    name = model.normalize_username(name)
    user = model._default_manager.filter(**{model.USERNAME_FIELD: name}).first()
    if user is not None:
        return user if "link" in entry.unknown_users else None
    return _create_user(name, claims) if "create" in entry.unknown_users else None


def _create_user(name: str, claims: Mapping[str, Any]) -> Any:
    """Create a user without a password and permissions; return ``None`` if it is not valid."""
    model = get_user_model()
    user = model(**{model.USERNAME_FIELD: name})
    email = claims.get("email")
    if claims.get("email_verified") is True and isinstance(email, str):
        setattr(user, model.get_email_field_name(), email)
    user.set_unusable_password()
    try:
        user.full_clean(exclude=["password"])
    except ValidationError as exc:
        logger.info("A token's claims are not valid for a user: %s", ", ".join(exc.message_dict))
        return None
    user.save(force_insert=True)
    return user


def _sync_groups(entry: ExternalIssuer, user: Any, claims: Mapping[str, Any]) -> None:
    """Add and remove the groups that the entry maps; a missing claim removes all of them."""
    said = _as_list(_read_claim(claims, entry.groups_claim))
    wanted = {entry.groups[one] for one in said if isinstance(one, str) and one in entry.groups}
    mapped = set(entry.groups.values())
    held = set(user.groups.filter(name__in=mapped).values_list("name", flat=True))
    if wanted == held:
        return
    given = list(Group.objects.filter(name__in=wanted - held))
    user.groups.add(*given)
    user.groups.remove(*Group.objects.filter(name__in=held - wanted))
    absent = wanted - held - {group.name for group in given}
    if absent:
        logger.warning("%s maps to groups that do not exist: %s", entry.issuer, sorted(absent))


def _read_claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim by its name; if there is none, use dots as a path into nested objects."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
