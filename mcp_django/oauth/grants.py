"""Grants that the toolkit does not have: client credentials, and JWT bearer (ID-JAG).

Both issue a single access token without a refresh token: the client that holds the grant asks
again.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.http import HttpRequest
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables
from oauth2_provider.models import get_access_token_model, set_token_value
from oauth2_provider.settings import oauth2_settings

from mcp_django.auth import security_log
from mcp_django.auth.backends.external import user_of
from mcp_django.auth.endpoints import all_resources, canonical, find_server, known
from mcp_django.auth.permissions import can_connect
from mcp_django.conf import TrustedIssuer, get_settings
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.models import AuthEvent, ExternalIdentity
from mcp_django.oauth import clients
from mcp_django.oauth.assertions import import_signed
from mcp_django.oauth.models import ClientProfile
from mcp_django.oauth.responses import Refused, issuer_of
from mcp_django.oauth.revoking import end_token
from mcp_django.oauth.upstream import bindings
from mcp_django.oauth.validator import note_issue, seconds_left

# Client credentials -------------------------------------------------------------------------------

# RFC 6749, section 4.4, which is the extension
# ``io.modelcontextprotocol/oauth-client-credentials``: programs that act as a service account,
# without a user who signs in. Only a client that was registered by hand, with a grant for it and a
# ``ClientProfile``, is such a machine client; the user in the toolkit's own row is the owner of the
# registration, and never the user that the client acts as.


def issue_client_credentials(request: HttpRequest) -> dict[str, Any]:
    """A token for the service account of a machine client.

    Raises:
        Refused: the client is no machine client, or asks for what it may not have.
    """
    client = clients.identify_confidential(request)
    profile = _profile_of(client)
    resources = _resources_for(profile, request)
    granted = _scopes_for(profile, client, resources, request)
    _see_upstream(profile.service_user, resources)
    return _issue_token(
        request,
        user=profile.service_user,
        client=client,
        scopes=granted,
        resources=resources,
        seconds=int(oauth2_settings.ACCESS_TOKEN_EXPIRE_SECONDS),
        grant="client_credentials",
    )


def end_tokens(client_id: str) -> None:
    """End the tokens that a machine client holds."""
    tokens = get_access_token_model()._default_manager.filter(
        application__client_id=client_id,
        application__authorization_grant_type="client-credentials",
        refresh_token=None,
    )
    for checksum in list(tokens.values_list("token_checksum", flat=True)):
        end_token(checksum)


def _profile_of(client: Any) -> ClientProfile:
    """The profile of a machine client, whose service account is active.

    Raises:
        Refused: the client is none (``unauthorized_client``).
    """
    profile = ClientProfile._default_manager.select_related("service_user").filter(
        client_id=client.client_id
    )
    found = profile.first()
    if (
        client.authorization_grant_type != client.GRANT_CLIENT_CREDENTIALS
        or client.client_type != client.CLIENT_CONFIDENTIAL
        or not clients.is_manual(client)
        or found is None
        or found.service_user is None
        or not found.service_user.is_active
    ):
        raise Refused("unauthorized_client")
    return found


def _resources_for(profile: ClientProfile, request: HttpRequest) -> list[str]:
    """The resources a token is to be good for: those asked for, or the only one there is.

    Raises:
        Refused: one is not allowed, several are possible, or the account may not connect
            (``invalid_target``).
    """
    allowed = {canonical(one) for one in profile.allowed_resources} or {*all_resources(request)}
    asked = request.POST.getlist("resource")
    if not asked:
        asked = [one for one in allowed if one and find_server(one, request)]
        if len(asked) != 1:
            raise Refused("invalid_target", "Send the resource: there is not exactly one.")
    for one in asked:
        server = find_server(one, request)
        if (
            server is None
            or (profile.allowed_resources and one not in allowed)
            or not can_connect(profile.service_user, server, profile.client_id)
        ):
            raise Refused("invalid_target")
    return asked


def _scopes_for(
    profile: ClientProfile, client: Any, resources: list[str], request: HttpRequest
) -> list[str]:
    """The scopes of a token: what is asked for as far as it is allowed, all that is without asking.

    Raises:
        Refused: nothing of what is asked for is allowed (``invalid_scope``).
    """
    servers = [server for one in resources if (server := find_server(one, request)) is not None]
    allowed = profile.allowed_scopes or clients.baseline(servers)
    asked = request.POST.get("scope", "").split() or allowed
    granted = [one for one in clients.granted(asked, client) if one in allowed]
    if not granted:
        raise Refused("invalid_scope")
    return granted


# JWT bearer: identity assertions ------------------------------------------------------------------

# The word of a company's identity provider in place of a user's consent. An Identity Assertion
# JWT Authorization Grant ("ID-JAG", RFC 7523, section 2.1) says that a user of the company may
# use a client at a server of this site
# (``io.modelcontextprotocol/enterprise-managed-authorization``). It is good once, for one client
# and one resource, and the token that it gives is short-lived: the company decides anew each
# time.

logger = logging.getLogger("mcp_django.security")

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TYP = "oauth-id-jag+jwt"
TOKEN_SECONDS = 300
MAX_ASSERTION_SECONDS = 600


def issue_for_assertion(request: HttpRequest) -> dict[str, Any]:
    """A token of five minutes for the user whom an assertion is about, and no refresh token.

    Raises:
        Refused: the assertion does not hold, or is not for this client, server or user.
    """
    client = clients.identify_confidential(request)
    claims, entry = _claims(request, client)
    resources = _vouched_resources(claims, request)
    granted = _vouched_scopes(claims, client, resources, request)
    user = _user(entry, claims)
    for one in resources:
        if not can_connect(user, find_server(one, request), client.client_id):
            raise Refused("invalid_grant")
    _see_upstream(user, resources)
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
    return _issue_token(
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
            find_key=signed.find_key_of(entry.issuer, jwks=entry.jwks, jwks_url=entry.jwks_url),
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


def _is_us(audience: Any, request: HttpRequest) -> bool:
    """Whether the audience is our issuer, and nobody else besides."""
    named = audience if isinstance(audience, list) else [audience]
    ours = issuer_of(request)
    return len(named) == 1 and isinstance(named[0], str) and canonical(named[0]) == canonical(ours)


def _vouched_resources(claims: dict[str, Any], request: HttpRequest) -> list[str]:
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


def _vouched_scopes(
    claims: dict[str, Any], client: Any, resources: list[str], request: HttpRequest
) -> list[str]:
    """What the company vouches for, as far as it is asked for and exists here.

    Without a word of either it is what the servers need of every caller.
    """
    vouched, asked = claims.get("scope"), request.POST.get("scope", "").split()
    if vouched is None:
        vouched = " ".join(clients.baseline(find_server(one, request) for one in resources))
    if not isinstance(vouched, str) or not clients.granted(vouched.split(), client):
        raise Refused("invalid_grant", "The assertion has no scope of this site.")
    wanted = [one for one in vouched.split() if not asked or one in asked]
    granted = clients.granted(wanted, client)
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


# Issuing the access token -------------------------------------------------------------------------


def _see_upstream(user: Any, resources: Sequence[str]) -> None:
    """See that a token for these resources would open them: nobody is there to sign in upstream.

    Raises:
        Refused: a server stands on access that the user has not given (``invalid_target``).
    """
    if missing := bindings.missing(user, resources):
        raise Refused(
            "invalid_target",
            f"The server needs the user's account at {missing!r}, which is not connected. "
            "The user connects it on the page of connected assistants.",
        )


@sensitive_variables("value")
def _issue_token(
    request: HttpRequest,
    *,
    user: Any,
    client: Any,
    scopes: Sequence[str],
    resources: Sequence[str],
    seconds: int,
    grant: str,
) -> dict[str, Any]:
    """A new access token for some seconds, as the token endpoint answers it."""
    value = secrets.token_urlsafe(32)
    token = get_access_token_model()(
        user=user,
        application=client,
        scope=" ".join(scopes),
        resource=list(resources),
        expires=timezone.now() + timedelta(seconds=seconds),
    )
    set_token_value(token, value)
    token.save()
    bindings.bind(token)
    clients.note_use(client.client_id)
    note_issue(token, request, grant=grant)
    return {
        "access_token": value,
        "token_type": "Bearer",
        "expires_in": seconds_left(token),
        "scope": token.scope,
    }
