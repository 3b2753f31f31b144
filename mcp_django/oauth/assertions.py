"""Client authentication by private key (RFC 7523, section 2.2; ``private_key_jwt``).

For manually registered clients whose public keys are in their ``ClientProfile``.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.views.decorators.debug import sensitive_variables
from oauth2_provider.models import get_application_model

from mcp_django.auth.endpoints import canonicalize_url, origin_of
from mcp_django.conf import ALGORITHMS
from mcp_django.oauth.models import ClientProfile
from mcp_django.oauth.responses import issuer_of
from mcp_django.protocol.text import storable

logger = logging.getLogger("mcp_django.security")

TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
MAX_SECONDS = 3600


def is_present(request: Any) -> bool:
    """Return whether an oauthlib request contains a client assertion."""
    return bool(getattr(request, "client_assertion", None))


def client_has_keys(client_id: str) -> bool:
    """Return whether the client has keys, so that it can authenticate only with them."""
    profile = ClientProfile.of_client(client_id)
    return profile is not None and profile.has_keys


@sensitive_variables("assertion")
def authenticate_by_assertion(request: Any, http: HttpRequest) -> Any:
    """Return the client whose key signed the assertion, or ``None``.

    Raises:
        ImproperlyConfigured: if PyJWT is not installed.
        AuthenticationUnavailable: if the keys have to be fetched and their URL does not respond.
    """
    signed = import_assertion_jwts()
    assertion = request.client_assertion
    if getattr(request, "client_assertion_type", None) != TYPE:
        return None
    try:
        client_id = signed.read_unverified_claims(assertion).get("sub")
        client = _registered(client_id, claimed=request.client_id)
        profile = ClientProfile.of_client(client_id) if client else None
        if profile is None or not profile.has_keys or not client.is_usable(request):
            return None
        claims = signed.verify_assertion(
            assertion,
            find_key=signed.make_key_finder(
                profile.jwks_url, jwks=profile.jwks or None, jwks_url=profile.jwks_url
            ),
            algorithms=ALGORITHMS,
            issuer=client_id,
            required=("jti",),
            max_seconds=MAX_SECONDS,
        )
        signed.require(claims["sub"] == client_id, "The claims iss and sub name different clients.")
        signed.require(_is_own_audience(claims["aud"], http), "Its audience is another server.")
        signed.require(signed.mark_used(claims), "It was already used.")
    except signed.InvalidAssertion as exc:
        logger.info("Client assertion rejected: %s", exc)
        return None
    request.client_id = client_id
    return client


def import_assertion_jwts() -> Any:
    """Import and return ``assertion_jwts``, which needs PyJWT.

    Raises:
        ImproperlyConfigured: if PyJWT is not installed.
    """
    try:
        from mcp_django.oauth import assertion_jwts
    except ImportError as exc:
        raise ImproperlyConfigured(
            "Assertions need PyJWT with cryptography: install the extra 'jwt'."
        ) from exc
    return assertion_jwts


def _registered(client_id: Any, *, claimed: str | None) -> Any:
    """Return the manually registered confidential client with this id, or ``None``."""
    if not isinstance(client_id, str) or client_id != storable(client_id):
        return None
    if claimed not in (None, "", client_id):
        return None
    model = get_application_model()
    client = model._default_manager.filter(
        client_id=client_id,
        client_type=model.CLIENT_CONFIDENTIAL,
        registration_source=model.RegistrationSource.MANUAL,
    ).first()
    # The column is the toolkit's, so the database may ignore case, accents and blanks.
    return client if client is not None and client.client_id == client_id else None


def _is_own_audience(audience: Any, request: HttpRequest) -> bool:
    """Return whether the audience is this server's issuer or its token endpoint."""
    issuer = issuer_of(request)
    ours = {canonicalize_url(issuer), issuer}
    # A site may include only the toolkit's own URLs.
    with suppress(NoReverseMatch):
        ours.add(canonicalize_url(origin_of(request) + reverse("mcp_oauth:token")))
    audiences = audience if isinstance(audience, list) else [audience]
    return any(
        isinstance(value, str) and (canonicalize_url(value) or value) in ours for value in audiences
    )
