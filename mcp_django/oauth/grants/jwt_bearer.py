"""The word of a company's identity provider in place of a user's consent.

An Identity Assertion JWT Authorization Grant ("ID-JAG", RFC 7523, section 2.1) says that a user of
the company may use a client at a server of this site
(``io.modelcontextprotocol/enterprise-managed-authorization``). It is good once, for one client and
one resource, and what comes of it is short-lived: the company decides anew each time.
"""

from __future__ import annotations

import logging
from typing import Any

from django.contrib.auth import get_user_model
from django.http import HttpRequest
from django.views.decorators.debug import sensitive_variables

from mcp_django.auth import security_log
from mcp_django.auth.backends.external import user_of
from mcp_django.auth.endpoints import canonical, find_server, known
from mcp_django.auth.permissions import can_connect
from mcp_django.conf import JWTIssuer, TrustedIssuer, get_settings
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.models import AuthEvent, ExternalIdentity
from mcp_django.oauth import clients, scopes
from mcp_django.oauth.assertions import import_signed
from mcp_django.oauth.grants.issuing import issue_token, see_upstream
from mcp_django.oauth.issuer import issuer_of
from mcp_django.oauth.refusals import Refused

logger = logging.getLogger("mcp_django.security")

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TYP = "oauth-id-jag+jwt"
TOKEN_SECONDS = 300
MAX_ASSERTION_SECONDS = 600


def issue(request: HttpRequest) -> dict[str, Any]:
    """A token of five minutes for the user whom an assertion is about, and no refresh token.

    Raises:
        Refused: the assertion does not hold, or is not for this client, server or user.
    """
    client = clients.identify_confidential(request)
    claims, entry = _claims(request, client)
    resources = _resources(claims, request)
    granted = _scopes(claims, client, resources, request)
    user = _user(entry, claims)
    for one in resources:
        if not can_connect(user, find_server(one, request), client.client_id):
            raise Refused("invalid_grant")
    see_upstream(user, resources)
    # Last, so that what is refused for another reason can be put right and sent again.
    if not import_signed().use(claims):
        security_log.record(
            AuthEvent.Kind.REPLAY,
            request=request,
            user=user,
            client_id=client.client_id,
            what="identity assertion",
            issuer=entry.issuer,
        )
        raise Refused("invalid_grant")
    return issue_token(
        request,
        user=user,
        client=client,
        scopes=granted,
        resources=resources,
        seconds=TOKEN_SECONDS,
        grant="jwt-bearer",
    )


@sensitive_variables("assertion")
def _claims(request: HttpRequest, client: Any) -> tuple[dict[str, Any], TrustedIssuer]:
    """What the assertion says, and who says it."""
    signed = import_signed()
    assertion = request.POST.get("assertion", "")
    if not assertion:
        raise Refused("invalid_request", "Send the assertion.")
    try:
        named = signed.unverified(assertion).get("iss")
        trusted = get_settings().oauth.trusted_issuers
        entry: Any = next((one for one in trusted if one.issuer == named), None)
        signed.see(entry is not None, "The issuer is not among OAUTH['TRUSTED_ISSUERS'].")
        claims: dict[str, Any] = signed.verified(
            assertion,
            find_key=_keys(entry),
            algorithms=entry.algorithms,
            issuer=entry.issuer,
            required=("iat", "jti", "client_id", "resource"),
            max_seconds=MAX_ASSERTION_SECONDS,
            typ=TYP,
            leeway=entry.leeway,
        )
        signed.see(_is_us(claims["aud"], request), "It is for another authorization server.")
        signed.see(claims["client_id"] == client.client_id, "It was given to another client.")
        signed.see("cnf" not in claims, "It is bound to a key (DPoP), which is not asked for here.")
        # A subject is unique within its tenant alone.
        signed.see(claims.get("tenant", "") == entry.tenant, "It is of another tenant.")
    except signed.NotAccepted as exc:
        logger.info("An identity assertion for %r is not accepted: %s", client.client_id, exc)
        raise Refused("invalid_grant") from exc
    return claims, entry


def _keys(entry: TrustedIssuer) -> Any:
    from mcp_django.auth.backends.jwt import Keys, key_store

    if entry.jwks is not None:
        listed = [key for key in entry.jwks.get("keys", ()) if isinstance(key, dict)]
        return Keys(fetched_at=0, keys=tuple(listed)).find
    return key_store(JWTIssuer(issuer=entry.issuer, jwks_url=entry.jwks_url)).find


def _is_us(audience: Any, request: HttpRequest) -> bool:
    """Whether the audience is our issuer, and nobody else besides."""
    named = audience if isinstance(audience, list) else [audience]
    ours = issuer_of(request)
    return len(named) == 1 and isinstance(named[0], str) and canonical(named[0]) == canonical(ours)


def _resources(claims: dict[str, Any], request: HttpRequest) -> list[str]:
    """The resources of the assertion; the request may name fewer, and none besides."""
    named = claims["resource"]
    listed = [named] if isinstance(named, str) else named
    is_text = isinstance(listed, list) and all(isinstance(one, str) for one in listed)
    vouched = known(listed, request) if is_text else None
    if not vouched:
        raise Refused("invalid_grant", "The resource of the assertion is no MCP server here.")
    asked = request.POST.getlist("resource")
    if not {*asked} <= {*vouched}:
        raise Refused("invalid_target")
    return asked or vouched


def _scopes(
    claims: dict[str, Any], client: Any, resources: list[str], request: HttpRequest
) -> list[str]:
    """What the company vouches for, as far as it is asked for and exists here.

    Without a word of either it is what the servers need of every caller.
    """
    vouched, asked = claims.get("scope"), request.POST.get("scope", "").split()
    if vouched is None:
        vouched = " ".join(scopes.baseline(find_server(one, request) for one in resources))
    if not isinstance(vouched, str) or not scopes.granted(vouched.split(), client):
        raise Refused("invalid_grant", "The assertion has no scope of this site.")
    wanted = [one for one in vouched.split() if not asked or one in asked]
    granted = scopes.granted(wanted, client)
    if not granted:
        raise Refused("invalid_scope")
    return granted


def _user(entry: TrustedIssuer, claims: dict[str, Any]) -> Any:
    """The active user of the assertion's subject."""
    if entry.email_authoritative:
        _link_by_email(entry, claims)
    try:
        return user_of(entry.people, claims)
    except AuthenticationRequired as exc:
        logger.info("A subject of %s has no active account here.", entry.issuer)
        raise Refused("invalid_grant") from exc


def _link_by_email(entry: TrustedIssuer, claims: dict[str, Any]) -> None:
    """Make an unknown subject the one active user who has its email address."""
    email, subject = claims.get("email"), claims.get("sub")
    usable = isinstance(email, str) and email and claims.get("email_verified") is not False
    if not usable or not isinstance(subject, str):
        return
    if ExternalIdentity._default_manager.filter(issuer=entry.issuer, subject=subject).exists():
        return
    model = get_user_model()
    named = {f"{model.get_email_field_name()}__iexact": email, "is_active": True}
    found = list(model._default_manager.filter(**named)[:2])
    if len(found) == 1 and 0 < len(subject) <= 255:
        ExternalIdentity._default_manager.get_or_create(
            issuer=entry.issuer, subject=subject, defaults={"user": found[0]}
        )
