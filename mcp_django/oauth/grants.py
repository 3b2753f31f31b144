"""Grants that the toolkit does not provide: client credentials and JWT bearer (ID-JAG).

Both issue one access token without a refresh token; the client repeats the grant instead.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import Any

from django.contrib.auth import get_user_model
from django.db import IntegrityError, router, transaction
from django.http import HttpRequest
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables
from oauth2_provider.models import get_access_token_model, set_token_value
from oauth2_provider.settings import oauth2_settings

from mcp_django.auth import security_log
from mcp_django.auth.backends.external import (
    find_identity,
    find_user,
    is_external_id,
    link_identity,
)
from mcp_django.auth.endpoints import all_resources, canonicalize_url, find_resources, find_server
from mcp_django.conf import TrustedIssuer, get_settings
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.execution.policy import can_connect
from mcp_django.models import AuthEvent, ExternalIdentity
from mcp_django.oauth import clients
from mcp_django.oauth.assertions import import_assertion_jwts
from mcp_django.oauth.models import ClientProfile
from mcp_django.oauth.responses import OAuthError, issuer_of
from mcp_django.oauth.upstream import bindings
from mcp_django.protocol.text import storable

# RFC 6749, section 4.4, and the extension ``io.modelcontextprotocol/oauth-client-credentials``: a
# machine client acts as a service account, without a user who signs in. It has to be registered
# manually, with this grant type and a ``ClientProfile``. The user of the toolkit's application owns
# the registration and is never the user that the client acts as.


def issue_client_credentials(request: HttpRequest) -> dict[str, Any]:
    """Issue a token for the service account of a machine client.

    Raises:
        OAuthError: if the client is not a machine client, or requests what it may not have.
    """
    client = clients.authenticate_confidential_client(request)
    profile = ClientProfile.of_client(client.client_id)
    if (
        client.authorization_grant_type != client.GRANT_CLIENT_CREDENTIALS
        or client.client_type != client.CLIENT_CONFIDENTIAL
        or not clients.is_manually_registered(client)
        or profile is None
        or profile.service_user is None
        or not profile.service_user.is_active
    ):
        raise OAuthError("unauthorized_client")
    resources = _resources_for(profile, request)
    # The scopes are the requested ones that are allowed, or all allowed ones.
    servers = [
        server for resource in resources if (server := find_server(resource, request)) is not None
    ]
    allowed = profile.allowed_scopes or clients.required_scopes(servers)
    requested = request.POST.get("scope", "").split() or allowed
    granted = [scope for scope in clients.allowed_scopes(requested, client) if scope in allowed]
    if not granted:
        raise OAuthError("invalid_scope")
    _check_upstream(profile.service_user, resources)
    return _issue_token(
        request,
        user=profile.service_user,
        client=client,
        scopes=granted,
        resources=resources,
        seconds=int(oauth2_settings.ACCESS_TOKEN_EXPIRE_SECONDS),
        grant="client_credentials",
    )


def _resources_for(profile: ClientProfile, request: HttpRequest) -> list[str]:
    """Return the resources of the token: the requested ones, or the only allowed one.

    Raises:
        OAuthError: if a requested resource is not allowed, none is requested and not exactly one is
            allowed, or the account may not connect (``invalid_target``).
    """
    allowed = {canonicalize_url(resource) for resource in profile.allowed_resources} or {
        *all_resources(request)
    }
    resources = request.POST.getlist("resource")
    if not resources:
        resources = [
            resource for resource in allowed if resource and find_server(resource, request)
        ]
        if len(resources) != 1:
            raise OAuthError(
                "invalid_target",
                "Send resource: the client does not have exactly one allowed server.",
            )
    for resource in resources:
        server = find_server(resource, request)
        if (
            server is None
            or (profile.allowed_resources and resource not in allowed)
            or not can_connect(profile.service_user, server, profile.client_id)
        ):
            raise OAuthError("invalid_target")
    return resources


# JWT bearer: identity assertions ------------------------------------------------------------------

# An Identity Assertion JWT Authorization Grant ("ID-JAG", RFC 7523, section 2.1) replaces the
# user's consent: with it, a company's identity provider authorizes one of its users to use a client
# at a server of this site (``io.modelcontextprotocol/enterprise-managed-authorization``). It can be
# used once, by one client, for the resources that it names. The issued token is short-lived, so the
# identity provider has to authorize the user again for the next one.

logger = logging.getLogger("mcp_django.security")

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TYP = "oauth-id-jag+jwt"
TOKEN_SECONDS = 300
MAX_ASSERTION_SECONDS = 600


def issue_for_assertion(request: HttpRequest) -> dict[str, Any]:
    """Issue an access token of five minutes for the subject of an identity assertion.

    Raises:
        OAuthError: if the assertion is not valid, or not for this client, server or user.
    """
    client = clients.authenticate_confidential_client(request)
    claims, trusted_issuer = _verify_assertion(request, client)
    resources = _asserted_resources(claims, request)
    granted = _asserted_scopes(claims, client, resources, request)
    user = _user(trusted_issuer, claims)
    for resource in resources:
        if not can_connect(user, find_server(resource, request), client.client_id):
            raise OAuthError("invalid_grant")
    _check_upstream(user, resources)
    # Last, so that a request rejected for another reason can be corrected and sent again.
    if not import_assertion_jwts().mark_used(claims):
        security_log.record_event(
            AuthEvent.Kind.REPLAY,
            request=request,
            user=user,
            client_id=client.client_id,
            what="identity assertion",
            issuer=trusted_issuer.issuer,
        )
        raise OAuthError("invalid_grant")
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
def _verify_assertion(request: HttpRequest, client: Any) -> tuple[dict[str, Any], TrustedIssuer]:
    """Return the claims of the assertion and its trusted issuer."""
    signed = import_assertion_jwts()
    assertion = request.POST.get("assertion", "")
    if not assertion:
        raise OAuthError("invalid_request", "Send the assertion.")
    try:
        issuer = signed.read_unverified_claims(assertion).get("iss")
        trusted_issuers = get_settings().oauth.trusted_issuers
        trusted_issuer: Any = next(
            (candidate for candidate in trusted_issuers if candidate.issuer == issuer), None
        )
        signed.require(
            trusted_issuer is not None, "The issuer is not among OAUTH['TRUSTED_ISSUERS']."
        )
        claims: dict[str, Any] = signed.verify_assertion(
            assertion,
            find_key=signed.make_key_finder(
                trusted_issuer.issuer, jwks=trusted_issuer.jwks, jwks_url=trusted_issuer.jwks_url
            ),
            algorithms=trusted_issuer.algorithms,
            issuer=trusted_issuer.issuer,
            required=("iat", "jti", "client_id", "resource"),
            max_seconds=MAX_ASSERTION_SECONDS,
            typ=TYP,
            leeway=trusted_issuer.leeway,
        )
        signed.require(
            _is_own_audience(claims["aud"], request),
            "Its audience is another authorization server.",
        )
        signed.require(claims["client_id"] == client.client_id, "It was issued to another client.")
        signed.require("cnf" not in claims, "It is bound to a key (DPoP), unsupported here.")
        # A subject is unique only within its tenant.
        signed.require(
            claims.get("tenant", "") == trusted_issuer.tenant, "It is from another tenant."
        )
    except signed.InvalidAssertion as exc:
        logger.info("Identity assertion for %r rejected: %s", client.client_id, exc)
        raise OAuthError("invalid_grant") from exc
    return claims, trusted_issuer


def _is_own_audience(audience: Any, request: HttpRequest) -> bool:
    """Return whether the audience is the issuer of this site and nothing else."""
    audiences = audience if isinstance(audience, list) else [audience]
    issuer = issuer_of(request)
    return (
        len(audiences) == 1
        and isinstance(audiences[0], str)
        and canonicalize_url(audiences[0]) == canonicalize_url(issuer)
    )


def _asserted_resources(claims: dict[str, Any], request: HttpRequest) -> list[str]:
    """Return the resources of the assertion; the request may name a subset of them."""
    claim = claims["resource"]
    listed = [claim] if isinstance(claim, str) else claim
    is_text = isinstance(listed, list) and all(isinstance(resource, str) for resource in listed)
    vouched = find_resources(listed, request) if is_text else None
    if not vouched:
        raise OAuthError(
            "invalid_grant", "The resource of the assertion is not a server of this site."
        )
    requested = request.POST.getlist("resource")
    if not {*requested} <= {*vouched}:
        raise OAuthError("invalid_target")
    return requested or vouched


def _asserted_scopes(
    claims: dict[str, Any], client: Any, resources: list[str], request: HttpRequest
) -> list[str]:
    """Return the scopes of the assertion that are requested and exist here.

    If the assertion has no scope claim, the scopes that the servers require of every caller are
    used instead.
    """
    vouched, requested = claims.get("scope"), request.POST.get("scope", "").split()
    if vouched is None:
        vouched = " ".join(
            clients.required_scopes(find_server(resource, request) for resource in resources)
        )
    if not isinstance(vouched, str) or not clients.allowed_scopes(vouched.split(), client):
        raise OAuthError("invalid_grant", "The assertion has no scope of this site.")
    scopes = [scope for scope in vouched.split() if not requested or scope in requested]
    granted = clients.allowed_scopes(scopes, client)
    if not granted:
        raise OAuthError("invalid_scope")
    return granted


def _user(trusted_issuer: TrustedIssuer, claims: dict[str, Any]) -> Any:
    """Return the active user of the assertion's subject."""
    if trusted_issuer.email_authoritative:
        _link_by_email(trusted_issuer, claims)
    try:
        return find_user(trusted_issuer.user_mapping, claims)
    except AuthenticationRequired as exc:
        logger.info("A subject of the issuer %s has no active user account.", trusted_issuer.issuer)
        raise OAuthError("invalid_grant") from exc


def _link_by_email(trusted_issuer: TrustedIssuer, claims: dict[str, Any]) -> None:
    """Link an unknown subject to the active user with its email address, if there is only one.

    ``email_verified`` has to be ``true`` or absent, since issuers that verify all their addresses
    leave it out. Addresses that differ only in the case of ASCII letters are the same. Databases
    and ``str.casefold`` go further, and treat mailboxes of different people as the same.
    """
    email, subject = claims.get("email"), claims.get("sub")
    if not isinstance(email, str) or not email or email != storable(email):
        return
    if claims.get("email_verified", True) is not True or not is_external_id(subject):
        return
    if find_identity(trusted_issuer.issuer, subject) is not None:
        return
    model = get_user_model()
    field = model.get_email_field_name()
    candidates = model._default_manager.filter(**{f"{field}__iexact": email, "is_active": True})
    address = email.encode().lower()
    users = (user for user in candidates if getattr(user, field).encode().lower() == address)
    match list(islice(users, 2)):
        case [user]:
            # Another request may have stored the same subject, which is then looked up.
            with (
                suppress(IntegrityError),
                transaction.atomic(using=router.db_for_write(ExternalIdentity)),
            ):
                link_identity(trusted_issuer.issuer, subject, user)


# Issuing the access token -------------------------------------------------------------------------


def _check_upstream(user: Any, resources: Sequence[str]) -> None:
    """Check that the user has the upstream access that these resources need.

    In these grants, no user is present who could sign in at the provider.

    Raises:
        OAuthError: if a server needs an account that the user has not connected
            (``invalid_target``).
    """
    if missing := bindings.missing_provider(user, resources):
        raise OAuthError(
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
    """Create an access token and return the response of the token endpoint."""
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
    bindings.bind_token(token)
    clients.update_last_used(client.client_id)
    log_issue(token, request, grant=grant)
    return {
        "access_token": value,
        "token_type": "Bearer",
        "expires_in": seconds_left(token),
        "scope": token.scope,
    }


def seconds_left(access_token: Any) -> int:
    """Return the lifetime of a new token; upstream access that it depends on may shorten it."""
    seconds: float = (access_token.expires - timezone.now()).total_seconds()
    return round(seconds)


def log_issue(access_token: Any, request: HttpRequest, *, grant: str) -> None:
    """Record an issued token in the security log."""
    security_log.record_event(
        AuthEvent.Kind.ISSUE,
        request=request,
        user=access_token.user,
        client_id=access_token.application.client_id,
        grant=grant,
        scopes=access_token.scope.split(),
        resources=access_token.resource,
    )
