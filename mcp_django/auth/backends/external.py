"""Tokens of other issuers: check their verified claims, and map their subjects to users.

A token is verified by its signature or by its issuer. Claims are those of RFC 7519, RFC 9068 and
RFC 7662, and those that Entra, Okta, Keycloak and Cognito use instead. No claim is trusted before
the token is verified.

The process remembers the data of a verified token for a while (``Verified``), so that only its user
is looked up again.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, NoReturn, TypeGuard, TypeVar
from weakref import WeakSet

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import IntegrityError, router, transaction
from django.http import HttpRequest
from django.utils.module_loading import import_string
from django.utils.timezone import make_naive
from django.views.decorators.debug import sensitive_variables

from mcp_django.auth.backends import BaseBackend, CallerKey
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.endpoints import canonicalize_url
from mcp_django.auth.principal import Claims, Principal, key_of, principal_for
from mcp_django.conf import ExternalIssuer
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.models import TOKEN_PREFIX, ExternalIdentity, token_digest
from mcp_django.process import at_fork, on_settings_change
from mcp_django.protocol.text import storable
from mcp_django.storage.cache import Confirmed, confirm_seconds
from mcp_django.storage.revocations import identity_tag
from mcp_django.storage.writer import note_use
from mcp_django.tenants import current_tenant

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

# The maximum number of tokens that a backend remembers; those verified first are forgotten.
MAX_VERIFIED = 10_000
# The maximum length of the claims of such a token, as JSON. Introspected claims may be longer;
# their token is not remembered.
MAX_CLAIMS = 8_000

IssuerT = TypeVar("IssuerT", bound=ExternalIssuer)


def entries_for(entries: Iterable[IssuerT], server: str) -> list[IssuerT]:
    """Return the entries that apply to the server of this name."""
    return [issuer for issuer in entries if not issuer.servers or server in issuer.servers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The data of a token that was verified for one endpoint, without its user."""

    issuer: ExternalIssuer
    subject: str
    client: str
    """The client that the token was issued to; empty if the token does not name it."""
    scopes: frozenset[str]
    groups: frozenset[str]
    """The site's groups that the issuer's settings map the token's groups to."""
    claims: Claims
    credential: str
    audience: str
    expires_at: datetime
    until: float
    """When the token has to be verified again, in seconds since the epoch."""
    source: object
    """What the token was verified with, such as its issuer's keys."""

    def is_worth_remembering(self) -> bool:
        """Return whether the data can be used again, and is small enough to be remembered."""
        return self.until > time.time() and len(self.claims.text) <= MAX_CLAIMS

    def principal(self, user: Any, backend: str) -> Principal:
        """Return the principal of this user, whom the token's subject identifies."""
        # The client's name is unique among issuers; the column of the key limits its length.
        client = f"{self.issuer.issuer.partition('://')[2]}#{self.client}"
        if len(client) > MAX_KEY_CLIENT:
            client = token_digest(client)[:40]
        return principal_for(
            user,
            key=f"{key_of(user)}@{client}",
            backend=backend,
            scopes=self.scopes,
            client_id=self.client,
            issuer=self.issuer.issuer,
            subject=self.subject,
            audience=self.audience,
            claims=self.claims,
            credential=self.credential,
            expires_at=self.expires_at,
        )


def read_verified(
    issuer: ExternalIssuer,
    claims: Mapping[str, Any],
    resource: str,
    *,
    credential: str,
    expires_at: float,
    until: float,
    is_typed: bool,
    source: object = None,
) -> Verified:
    """Check and return the data of a verified token's claims.

    ``expires_at`` and ``until`` are seconds since the epoch; ``is_typed`` means that the token
    declares itself an access token (RFC 9068).

    Raises:
        AuthenticationRequired: the token is not an access token for this resource, or has no
            subject.
    """
    _check_kind(claims)
    _check_audience(issuer, claims, resource, is_typed=is_typed)
    expires = datetime.fromtimestamp(min(expires_at, _LAST_DATE - 86_400), tz=UTC)
    return Verified(
        issuer=issuer,
        subject=_read_subject(claims),
        client=_client_of(claims),
        scopes=_scopes_of(issuer, claims),
        groups=_read_groups(issuer, claims),
        claims=Claims(json.dumps(claims)),
        credential=credential,
        audience=resource,
        expires_at=expires if settings.USE_TZ else make_naive(expires),
        until=until,
        source=source,
    )


_backends: WeakSet[ExternalBackend] = WeakSet()


class ExternalBackend(BaseBackend):
    """Base class of the backends for tokens of other issuers.

    The process owns the verified tokens that they remember, and changed settings clear them. A
    forked child may use them, since their data does not depend on the database.
    """

    name: ClassVar[str]
    """The short name of the backend."""

    def __init__(self) -> None:
        # By the digest of the token and the server that it was verified for.
        self._verified: dict[tuple[str, str], Verified] = {}
        # Protects ``_verified`` against concurrent changes.
        self._lock = threading.Lock()
        _backends.add(self)

    @abstractmethod
    def entries(self) -> Sequence[ExternalIssuer]:
        """Return the issuers whose tokens the site accepts."""

    @abstractmethod
    def find_entry(self, bearer: str, server: str) -> ExternalIssuer | None:
        """Return the issuer's entry for a bearer on this server, ``None`` if there is none."""

    @abstractmethod
    def verify(self, issuer: Any, bearer: str, resource: str) -> Verified | None:
        """Return the data of a token; ``None`` if the issuer does not know it.

        Raises:
            AuthenticationRequired: the token is not a valid access token for the resource.
            AuthenticationUnavailable: the token cannot be verified at the moment.
        """

    def is_current(self, principal: Principal) -> bool:
        """Return whether the issuer is still trusted and the subject an active user: one query.

        Tokens are not stored, so a token is checked with its issuer only on requests.
        """
        if all(issuer.issuer != principal.issuer for issuer in self.entries()):
            return False
        identity = find_identity(principal.issuer, principal.subject)
        return (
            identity is not None
            and identity.user_id == principal.user.pk
            and identity.user.is_active
        )

    def issuers(self, request: HttpRequest, server: str = "") -> list[str]:
        """Return the authorization servers whose tokens the server accepts (RFC 9728)."""
        return [issuer.issuer for issuer in entries_for(self.entries(), server)]

    @sensitive_variables("bearer")
    def authenticate(self, credentials: Credentials) -> Principal | None:
        """Return the user of the token's subject; ``None`` if no issuer of the site knows it.

        Uses one query for a known subject, and one more if the entry maps groups.

        Raises:
            AuthenticationRequired: the token is not valid here, or its subject has no active user.
            AuthenticationUnavailable: the issuer does not respond.
        """
        issuer, bearer = self._presented(credentials)
        if issuer is None:
            return None
        try:
            verified = self._verify(issuer, bearer, credentials)
        except AuthenticationRequired as exc:
            logger.info("A token of %s was rejected: %s", issuer.issuer, exc)
            raise
        if verified is None:
            return None
        return verified.principal(find_user(issuer, verified.claims), self.name)

    @sensitive_variables("bearer")
    def _presented(self, credentials: Credentials) -> tuple[Any, str]:
        """Return the issuer's entry and the token; no entry if the token is for other backends.

        Raises:
            AuthenticationRequired: the credential is malformed.
        """
        bearer = credentials.bearer
        if bearer is None or bearer.startswith(TOKEN_PREFIX):
            return None, ""
        return self.find_entry(bearer, credentials.server), bearer

    @sensitive_variables("bearer")
    def _verify(
        self, issuer: ExternalIssuer, bearer: str, credentials: Credentials
    ) -> Verified | None:
        """Verify a token, and remember its data."""
        resource = credentials.resource
        verified = self.verify(issuer, bearer, resource)
        if verified is not None and confirm_seconds() and verified.is_worth_remembering():
            place = (token_digest(bearer), credentials.server)
            # This request parses the claims of ``verified``; only their text is remembered.
            stored = replace(verified, claims=Claims(verified.claims.text))
            with self._lock:
                self._verified.pop(place, None)
                self._verified[place] = stored
                while len(self._verified) > MAX_VERIFIED:
                    del self._verified[next(iter(self._verified))]
        return verified

    def is_proven(self, verified: Verified) -> bool:
        """Return whether what a token was verified with is still valid; true by default."""
        return True

    def find_verified(self, key: CallerKey) -> Verified | None:
        """Return the remembered data of a key's bearer; ``None`` if it has to be verified first."""
        verified = self._verified.get((key.digest, key.server))
        if verified is None or verified.audience != key.resource or verified.until <= time.time():
            return None
        return verified if self.is_proven(verified) else None

    def confirm(
        self, keys: Collection[CallerKey], alias: str
    ) -> dict[CallerKey, Confirmed[Principal]]:
        """Return the users of verified tokens; one query, and two more if entries map groups."""
        verified_by_key = {
            key: verified for key in keys if (verified := self.find_verified(key)) is not None
        }
        if not verified_by_key:
            return {}
        identities = {
            (identity.issuer, identity.subject): identity
            for identity in ExternalIdentity.objects.using(alias)
            .select_related("user")
            .filter(
                issuer__in={verified.issuer.issuer for verified in verified_by_key.values()},
                subject__in={verified.subject for verified in verified_by_key.values()},
                user__is_active=True,
            )
        }
        callers = {
            key: (verified, identities[verified.issuer.issuer, verified.subject])
            for key, verified in verified_by_key.items()
            if (verified.issuer.issuer, verified.subject) in identities
        }
        confirmed: dict[CallerKey, Confirmed[Principal]] = {}
        for key in callers.keys() - _with_other_groups(alias, callers):
            verified, identity = callers[key]
            note_use(identity)
            principal = verified.principal(identity.user, self.name)
            tags = frozenset({identity_tag(identity.pk)})
            confirmed[key] = Confirmed(principal, tags, verified.until - time.time())
        return confirmed


@at_fork
def _replace_locks() -> None:
    """Replace the locks in a forked child, since a thread of its parent may have held them."""
    for backend in list(_backends):
        backend._lock = threading.Lock()


@on_settings_change()
def _forget_verified() -> None:
    for backend in list(_backends):
        backend._verified.clear()


def reject_token(reason: str) -> NoReturn:
    """Reject the request: the token is from an issuer of the site and is not valid.

    Raises:
        AuthenticationRequired: always.
    """
    raise AuthenticationRequired(reason, error="invalid_token")


def _check_kind(claims: Mapping[str, Any]) -> None:
    """Reject everything but an access token that is a bearer token.

    Raises:
        AuthenticationRequired: it is an ID token, a refresh or logout token, or is bound to a key
            whose possession was not proven (RFC 7800).
    """
    if any(claims.get(name) is not None for name in _OTHER_TOKEN_CLAIMS):
        reject_token("The token is not an access token, but an ID token or another kind.")
    for name, allowed in _KIND_CLAIMS.items():
        kind = claims.get(name)
        if kind is not None and str(kind).lower() not in allowed:
            reject_token("The token is not an access token, but an ID token or another kind.")
    if claims.get("cnf") is not None:
        reject_token("The token is bound to a key; this server accepts only bearer tokens.")


def _check_audience(
    issuer: ExternalIssuer, claims: Mapping[str, Any], resource: str, *, is_typed: bool
) -> None:
    """Check that the token was issued for this endpoint (RFC 8707).

    Without ``is_typed``, a token whose audience is its own client cannot be distinguished from an
    ID token.

    Raises:
        AuthenticationRequired: it was issued for another resource, or for none in particular.
    """
    if not resource:
        # The URL has no canonical form (an invalid port, a dot segment), so no audience matches it.
        reject_token("The request's URL is not a valid resource URL; use the server's own URL.")
    audiences = [audience for audience in _as_list(claims.get("aud")) if isinstance(audience, str)]
    meant = [
        audience
        for audience in audiences
        if audience in issuer.audiences or canonicalize_url(audience) == resource
    ]
    if not meant:
        reject_token("The token was not issued for this server.")
    if not is_typed and all(audience == _client_of(claims) for audience in meant):
        reject_token("The token was issued for its own client, as ID tokens are.")


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _client_of(claims: Mapping[str, Any]) -> str:
    """Return the client that the token was issued to; empty if the token does not name it."""
    values = (claims.get(name) for name in _CLIENT_CLAIMS)
    return next((value for value in values if isinstance(value, str) and value), "")


def _scopes_of(issuer: ExternalIssuer, claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the token's scopes, mapped to the site's own."""
    names = [issuer.scope_claim] if issuer.scope_claim else ["scope", "scp"]
    claim = next((claims[name] for name in names if claims.get(name) is not None), "")
    scopes = claim.split() if isinstance(claim, str) else _as_list(claim)
    return frozenset(
        meant
        for scope in scopes
        if isinstance(scope, str)
        for meant in issuer.scopes.get(scope, (scope,))
    )


# Users of other issuers ---------------------------------------------------------------------------

# The first request of a subject stores an ``ExternalIdentity``, so a user name that the issuer
# reassigns later does not give access to the account. An unknown subject is rejected, unless the
# issuer's entry says otherwise.

MAX_SUBJECT = 255


def find_user(issuer: ExternalIssuer, claims: Mapping[str, Any]) -> Any:
    """Return the active user that the ``sub`` of verified claims identifies.

    Uses one query for a known subject, and one more if the entry maps groups.

    Raises:
        AuthenticationRequired: the user does not exist or is inactive. The response does
            not tell which.
    """
    subject = _read_subject(claims)
    identity = find_identity(issuer.issuer, subject) or _link_identity(issuer, subject, claims)
    if not identity.user.is_active:
        raise _no_account_error()
    note_use(identity)
    if issuer.groups:
        _sync_groups(issuer, identity.user, claims)
    return identity.user


def is_external_id(value: object) -> TypeGuard[str]:
    """Return whether a claim can identify a subject or session of an issuer.

    Such a claim has 1 to 255 characters (OpenID Connect Core, section 2) that databases can store.
    """
    return isinstance(value, str) and 0 < len(value) <= MAX_SUBJECT and value == storable(value)


def find_identity(issuer: str, subject: str) -> ExternalIdentity | None:
    """Return the identity of exactly this issuer and subject, with its user; one query.

    Subjects are case-sensitive (OpenID Connect Core, section 2; RFC 7519, section 4.1.2).
    """
    mine = ExternalIdentity.objects.select_related("user").filter(tenant=current_tenant())
    rows = mine.filter(issuer=issuer, subject=subject)
    # The column compares exactly, unless the collation of the site's tables was converted.
    return next((row for row in rows if (row.issuer, row.subject) == (issuer, subject)), None)


def _read_subject(claims: Mapping[str, Any]) -> str:
    subject = claims.get("sub")
    if not is_external_id(subject):
        raise _no_account_error()
    return subject


def _no_account_error() -> AuthenticationRequired:
    return AuthenticationRequired(
        "The token's subject has no active account here; ask the site's administrators.",
        error="invalid_token",
    )


def _link_identity(
    issuer: ExternalIssuer, subject: str, claims: Mapping[str, Any]
) -> ExternalIdentity:
    """Store and return the identity of an unknown subject, if the entry allows its user."""
    with suppress(IntegrityError), transaction.atomic(using=router.db_for_write(ExternalIdentity)):
        user = import_string(issuer.user)(dict(claims), issuer.issuer) if issuer.user else None
        user = user or _find_or_create_user(issuer, claims)
        if user is not None and user.is_active:
            return link_identity(issuer.issuer, subject, user)
    # A concurrent request may have stored the same subject, and created the user of this name.
    identity = find_identity(issuer.issuer, subject)
    if identity is None:
        raise _no_account_error()
    return identity


def link_identity(issuer: str, subject: str, user: Any) -> ExternalIdentity:
    """Store and return an identity that links the subject to the user.

    Raises:
        IntegrityError: the subject has an identity already.
    """
    identity = ExternalIdentity.objects.create(issuer=issuer, subject=subject, user=user)
    logger.info("%s is now linked to the user %s.", identity, user.pk)
    return identity


def _find_or_create_user(issuer: ExternalIssuer, claims: Mapping[str, Any]) -> Any:
    """Return the user whose name is in a claim: an existing or a new one, as the entry allows.

    A user's name has to be equal, character for character: a database may ignore case, accents and
    blanks, and Unicode has names that only look alike.
    """
    name = claims.get(issuer.username_claim)
    if issuer.unknown_users == "refuse" or not isinstance(name, str) or not name:
        return None
    if issuer.username_claim == "email" and claims.get("email_verified") is not True:
        return None
    model = get_user_model()
    if name != model.normalize_username(storable(name)):
        # Django stores the normalized name, which may be another user's, now or later.
        logger.info("A token of %s names a user %a, which is not normalized.", issuer.issuer, name)
        return None
    user = model._default_manager.filter(**{model.USERNAME_FIELD: name}).first()
    if user is not None:
        is_same = user.get_username() == name
        return user if is_same and "link" in issuer.unknown_users else None
    return _create_user(name, claims) if "create" in issuer.unknown_users else None


def _create_user(name: str, claims: Mapping[str, Any]) -> Any:
    """Create a user without a password or permissions; return ``None`` if it is not valid.

    An address that another user has is left out: two users with one address can no longer be
    identified by it.
    """
    model = get_user_model()
    user = model(**{model.USERNAME_FIELD: name})
    email, field = claims.get("email"), model.get_email_field_name()
    is_verified = claims.get("email_verified") is True
    if is_verified and isinstance(email, str) and email == storable(email):
        others = model._default_manager.filter(**{f"{field}__iexact": email})
        setattr(user, field, "" if others.exists() else email)
    user.set_unusable_password()
    try:
        user.full_clean(exclude=["password"])
    except ValidationError as exc:
        logger.info("A token's claims are not valid for a user: %s", ", ".join(exc.message_dict))
        return None
    user.save(force_insert=True)
    return user


def _sync_groups(issuer: ExternalIssuer, user: Any, claims: Mapping[str, Any]) -> None:
    """Add and remove the groups that the entry maps; a missing claim removes all of them."""
    names, mapped = _read_groups(issuer, claims), set(issuer.groups.values())
    # A database that ignores case finds groups of other names too.
    held = mapped.intersection(user.groups.filter(name__in=mapped).values_list("name", flat=True))
    if names == held:
        return
    changed = Group.objects.filter(name__in=names ^ held)
    added = [group for group in changed if group.name in names - held]
    user.groups.add(*added)
    user.groups.remove(*(group for group in changed if group.name in held - names))
    absent = names - held - {group.name for group in added}
    if absent:
        logger.warning("%s maps to groups that do not exist: %s", issuer.issuer, sorted(absent))


def _read_groups(issuer: ExternalIssuer, claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the site's groups that the settings of the issuer map the token's groups to."""
    path = issuer.groups_claim
    value: Any = claims
    # If there is no claim of this name, dots are a path into nested objects.
    for step in [path] if path in claims else path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    names = _as_list(value)
    return frozenset(
        issuer.groups[name] for name in names if isinstance(name, str) and name in issuer.groups
    )


def _with_other_groups(
    alias: str, callers: Mapping[CallerKey, tuple[Verified, ExternalIdentity]]
) -> set[CallerKey]:
    """Return the callers whose users do not have the groups that their tokens are mapped to."""
    mapped = {key: caller for key, caller in callers.items() if caller[0].issuer.groups}
    if not mapped:
        return set()
    names = {name for verified, _ in mapped.values() for name in verified.issuer.groups.values()}
    groups = Group._default_manager.using(alias).filter(name__in=names).order_by()
    existing = set(groups.values_list("name", flat=True))
    held: defaultdict[Any, set[str]] = defaultdict(set)
    member = get_user_model()._meta.get_field("groups").related_query_name()
    members = groups.filter(
        **{f"{member}__in": {identity.user_id for _, identity in mapped.values()}}
    )
    for pk, name in members.values_list(member, "name"):
        held[pk].add(name)
    return {
        key
        for key, (verified, identity) in mapped.items()
        if held[identity.user_id].intersection(verified.issuer.groups.values())
        != verified.groups & existing
    }
